//! Flags for what engines differ in: images, confinement, transparent mode.

use super::sandbox::pairs;
use crate::exit::Failure;
use clap::Args;
use handler_types::network::Transparent;
use handler_types::sandbox::{Confinement, CreateSandbox};

/// What only they have.
#[derive(Debug, Default, Args)]
pub struct ContainerArgs {
    /// Image it starts from, by name or id (podman, docker; native starts from the host's system folders without one)
    #[arg(long)]
    pub image: Option<String>,
    /// File system of another image, read-only: TARGET=IMAGE (repeatable)
    #[arg(long, value_name = "TARGET=IMAGE")]
    pub image_mount: Vec<String>,
    /// How locked down it is: strict, nested (containers can run inside) or privileged
    #[arg(long, value_name = "LEVEL", value_parser = confinement)]
    pub confinement: Option<Confinement>,
    /// Catch programs that ignore proxy variables: auto (native sandboxes, where /dev/net/tun is), off or required (containers too)
    #[arg(long, value_name = "WHEN", value_parser = transparent)]
    pub transparent: Option<Transparent>,
    /// Container runtime, e.g. crun or runsc (gVisor)
    #[arg(long)]
    pub runtime: Option<String>,
    /// Another writable folder inside, private and empty at each start (repeatable)
    #[arg(long, value_name = "PATH")]
    pub writable: Vec<String>,
    /// A folder appended to the image's PATH (repeatable)
    #[arg(long, value_name = "PATH")]
    pub path_append: Vec<String>,
    /// Let it draw on your Wayland display
    #[arg(long)]
    pub display: bool,
}

pub(super) fn confinement(text: &str) -> Result<Confinement, String> {
    match text {
        "strict" => Ok(Confinement::Strict),
        "nested" => Ok(Confinement::Nested),
        "privileged" => Ok(Confinement::Privileged),
        _ => Err("strict, nested or privileged".to_owned()),
    }
}

fn transparent(text: &str) -> Result<Transparent, String> {
    match text {
        "auto" => Ok(Transparent::Auto),
        "off" => Ok(Transparent::Off),
        "required" => Ok(Transparent::Required),
        _ => Err("auto, off or required".to_owned()),
    }
}

/// Puts them into a request.
///
/// # Errors
/// [`Failure::Usage`].
pub(super) fn apply(args: ContainerArgs, request: &mut CreateSandbox) -> Result<(), Failure> {
    request.image_mounts = pairs(&args.image_mount, "--image-mount")?;
    request.image = args.image;
    request.confinement = args.confinement.unwrap_or_default();
    request.transparent = args.transparent.unwrap_or_default();
    request.runtime = args.runtime;
    request.writable_paths = args.writable;
    request.path_append = args.path_append;
    request.display = args.display;
    Ok(())
}
