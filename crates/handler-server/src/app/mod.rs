//! Rules per resource. No HTTP here, no SQL.

pub mod agent;
pub mod archives;
pub mod builds;
pub mod containers;
pub mod egress_events;
pub mod exec;
pub mod exec_stream;
pub mod git;
pub mod harnesses;
pub mod host;
pub mod images;
pub mod lifetime;
pub mod limits;
pub mod observe;
pub mod ports;
pub mod presets;
pub mod previews;
pub mod providers;
pub mod quick_files;
pub mod sandboxes;
pub mod secrets;
pub mod sessions;
pub mod spool;
pub mod terminals;
