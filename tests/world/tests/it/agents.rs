//! Projects and agents: made by command line and API, run for real, changed while they run, removed.

mod kept;
mod refused;
mod run;
