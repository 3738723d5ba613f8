//! The program inside every sandbox.
