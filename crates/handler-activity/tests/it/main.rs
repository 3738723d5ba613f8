//! Recorded screens and tables of processes.

mod agents;
mod properties;
mod samples;
mod support;
