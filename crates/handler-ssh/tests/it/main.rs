//! The server over a real guest (a plain process, no isolation), spoken to by the system's own SSH programs.

mod commands;
mod stage;
