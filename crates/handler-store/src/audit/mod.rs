//! The audit log on disk: files of JSON lines, each line with the hash of the one before, over files.
//!
//! Invariant: lines are only ever appended. A line that was cut off is moved aside before the next is written, and a
//! line says so; old files go whole, and a line says so too. What is gone without being told breaks the chain.

mod files;
mod line;
mod read;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use files::paths;
pub use read::{Place, Wanted, read};
pub use verify::verify;
pub use writer::{AuditError, AuditSizes, AuditWriter};
