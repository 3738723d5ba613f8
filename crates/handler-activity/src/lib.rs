//! Tells which agent programs are installed and running, and what the program of a terminal is doing.
//!
//! Everything here is a function over data: processes and rows of text come in, a state and the rule that decided
//! come out. No clock, no files, no terminal sequences. Rules are data (`data/`), one file per harness. Whatever the
//! text is, time is bounded: rows and their length are cut first, and the expressions run in linear time.

pub mod agents;
mod catalogue;
mod choices;
mod classify;
mod lines;
mod rules;
mod shell;

pub use classify::{Reading, Screen, classify};
pub use shell::ShellState;
