//! The store against real files in temporary folders.

mod children;
mod event_log;
mod event_log_faults;
mod figures;
mod fixtures;
mod idempotency;
mod migrations;
mod sandboxes;
mod sessions;
