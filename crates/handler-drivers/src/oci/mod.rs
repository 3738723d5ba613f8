//! The `podman` and `docker` drivers: sandboxes as containers of an engine that is installed.
//!
//! One driver, two engines: what they share goes through Docker's API, what only Podman can say through its own.
//! The guest is PID 1 of each container. `README.md` says what these backends guarantee and refuse.

mod api;
mod error;

pub use api::{Answer, Flavour, OciApi, OciSource, OciUse};
pub use error::OciError;
