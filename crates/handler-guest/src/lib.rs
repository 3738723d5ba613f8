//! The program inside every sandbox.

pub mod launch;
