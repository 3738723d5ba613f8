//! The testkit tested with a stand-in daemon.

mod origins;
mod worlds;
