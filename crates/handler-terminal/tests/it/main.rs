//! Screens against screens: cut streams, redraws and snapshots.

mod streams;
