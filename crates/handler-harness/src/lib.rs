//! Harness descriptors and render: what to launch for an agent program, as pure data.
//!
//! Nothing here reads a clock, a disk, a network or an environment: the data files are part of the
//! program, everything else comes in as an argument, and the same input gives the same answer.

#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")
)]

mod descriptor;
mod endpoint;
mod install;
pub mod mcp;
mod nearest;
mod recipes;
mod render;
mod templates;

pub use descriptor::{UnknownHarness, descriptor, descriptors, require, usable_harnesses};
pub use endpoint::{Endpoint, EndpointError};
pub use install::{InstallFile, InstallPlan, install_plan, version_line};
pub use recipes::{
    CONTAINERFILE, TOOLBOX, TOOLBOX_FILES, VERSION_FILE, image_context, image_prefix,
    image_repository,
};
pub use render::{RenderError, render};
pub use templates::{template, templates};
