//! The store through its seam: imports, pulls from a registry of our own, crashes, sharing.

mod importing;
mod pulling;
mod registry;
mod sharing;
#[path = "../../src/test_tar.rs"]
#[expect(dead_code, reason = "shared with the unit tests")]
mod test_tar;
mod world;
