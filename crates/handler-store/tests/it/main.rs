//! The store against real files in temporary folders.

mod agents;
mod children;
mod crash;
mod event_log;
mod event_log_faults;
mod figures;
mod fixtures;
mod folders;
mod idempotency;
mod knowledge;
mod migrations;
mod providers;
mod resolve;
mod sandboxes;
mod secrets;
mod sessions;
mod texts;
