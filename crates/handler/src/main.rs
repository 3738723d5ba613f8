//! The installed program.
fn main() {}
