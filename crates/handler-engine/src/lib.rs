//! Sandbox lifecycle: driver trait, one owner task per sandbox, guest link, egress link, reconcile.

pub mod driver;
