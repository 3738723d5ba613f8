//! Sandbox lifecycle: driver trait, one owner task per sandbox, guest link, egress link, reconcile.

pub mod driver;
pub mod egress;
mod engine;
mod error;
pub mod filter;
pub mod folders;
pub mod guest;
pub mod images;
pub mod lifecycle;
mod phantom;
mod remove_tree;
pub mod rows;
mod rows_store;
pub mod shared_folder;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;

pub use engine::{
    CreateArgs, EffectProbe, Engine, EngineConfig, EngineTiming, LimitsSource, SandboxChange,
    SandboxUpdate, UseGuard,
};
pub use error::{EngineError, Retry, Whose};
pub use guest::GuestHandle;
pub use phantom::{make_login_phantom, make_phantom};
pub use remove_tree::remove_tree as remove_folder;
pub use rows_store::StoreRows;
