//! What Handler keeps: SQLite rows, event-log files, sealed secret values, hand-written files, and the
//! folders they lie in.
//!
//! This is the only room that opens the database or a secret value. It knows nothing of lifecycles,
//! conversations or backends: it stores what its callers decided.

pub mod accounts;
pub mod audit;
pub mod caches;
pub mod contexts;
pub mod db;
pub mod folders;
pub mod knowledge;
pub mod limits;
pub mod log;
pub mod logins;
pub mod named;
pub mod paths;
pub mod providers;
pub mod redact;
mod reference;
pub mod rows;
pub mod secrets;
mod strict;

pub use db::{OpenError, Store, StoreError};
pub use log::{EventLog, LogHistory};
pub use paths::Layout;
pub use redact::Redactor;
pub use secrets::SecretStore;
