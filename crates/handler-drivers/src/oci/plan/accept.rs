//! What is refused before anything is made.
//!
//! Besides what native refuses of paths, mounts and variables:
//!
//! | refused | why |
//! |---|---|
//! | no image | a container starts from one |
//! | a path with `:`, `,` or a line break | engines split their options there |
//! | `PATH` in the environment together with folders to append | which one counts would be luck |
//! | a display together with `WAYLAND_DISPLAY`, `XDG_RUNTIME_DIR` or `DISPLAY` | they are set by us |
//! | stand-ins without network, or with variables of certificates set | the filter could not give their values |
//! | transparent mode required without a filter, without strict confinement | there is nothing to catch, or nobody who keeps it |
//! | what the engine cannot do here: runtime, limits (strict), nesting, image mounts | never pretended |

use super::NESTED_DEVICES;
use crate::native::plan as native;
use crate::native::system::CA_VARIABLES;
use crate::oci::info::EngineInfo;
use crate::oci::transparent;
use handler_engine::driver::DriverError;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Confinement, SandboxSpec};
use std::path::Path;

/// Refuses what can never be; with `engine`, also what this engine cannot do here.
pub(in crate::oci) fn check(
    spec: &SandboxSpec,
    backend: &str,
    engine: Option<&EngineInfo>,
) -> Result<(), DriverError> {
    if spec.backend != backend {
        return Err(invalid(format!("{} is not {backend}", spec.backend)));
    }
    if spec.image.is_none() {
        return Err(invalid(format!(
            "{backend} sandboxes start from an image: name one (`--image`)"
        )));
    }
    native::check_spec(spec, &[])?;
    places(spec)?;
    variables(spec)?;
    transparent::accept(spec, engine)?;
    if let Some(socket) = &spec.display {
        is_socket(socket)?;
    }
    engine.map_or(Ok(()), |engine| abilities(spec, backend, engine))
}

fn invalid(text: impl Into<String>) -> DriverError {
    DriverError::Invalid(text.into())
}

fn places(spec: &SandboxSpec) -> Result<(), DriverError> {
    let mounts = spec
        .mounts
        .iter()
        .flat_map(|mount| [&mount.source, &mount.target]);
    let images = spec.image_mounts.iter().map(|mount| &mount.target);
    let files = spec.files.iter().map(|file| &file.target);
    let all = mounts
        .chain(images)
        .chain(files)
        .chain(&spec.scope)
        .chain(&spec.display)
        .chain(&spec.writable_paths)
        .chain(&spec.path_append)
        .chain([&spec.home]);
    for path in all {
        native::plain(path)?;
        if path.contains([':', ',', '\n', '\r']) {
            return Err(DriverError::Unenforceable(format!(
                "{path:?} holds a colon, a comma or a line break, which container engines cannot be told"
            )));
        }
    }
    Ok(())
}

fn variables(spec: &SandboxSpec) -> Result<(), DriverError> {
    let has = |name: &str| spec.env.contains_key(name);
    if !spec.path_append.is_empty() && has("PATH") {
        return Err(invalid(
            "PATH is set and folders are to be appended to the image's: choose one",
        ));
    }
    let of_display = ["WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DISPLAY"];
    if spec.display.is_some() && of_display.iter().any(|name| has(name)) {
        return Err(invalid(format!(
            "with a display, {} are not to be set",
            of_display.join(", ")
        )));
    }
    if spec.phantoms.is_empty() {
        return Ok(());
    }
    if spec.network == NetworkPolicy::None {
        return Err(invalid(
            "secrets are given by the network filter, and there is no network",
        ));
    }
    match CA_VARIABLES.iter().find(|name| has(name)) {
        Some(name) => Err(invalid(format!(
            "{name} is set for secrets and must not be set otherwise"
        ))),
        None => Ok(()),
    }
}

/// A display that is not there is refused, never left out.
fn is_socket(path: &str) -> Result<(), DriverError> {
    use std::os::unix::fs::FileTypeExt;
    let data = std::fs::symlink_metadata(path);
    if data.is_ok_and(|data| data.file_type().is_socket()) {
        return Ok(());
    }
    Err(DriverError::Unenforceable(format!(
        "the display {path} is not a socket"
    )))
}

fn abilities(spec: &SandboxSpec, backend: &str, engine: &EngineInfo) -> Result<(), DriverError> {
    let cannot = |text: String| Err(DriverError::Unenforceable(text));
    if let Some(runtime) = &spec.runtime
        && let Err(why) = engine.runtime(runtime)
    {
        return cannot(why);
    }
    if !spec.image_mounts.is_empty() && !engine.image_mounts {
        return cannot(format!(
            "this {backend} cannot mount images (Docker 28 or newer can, and every Podman)"
        ));
    }
    if spec.confinement == Confinement::Nested
        && let Some(why) = engine.nested_obstacle()
    {
        return cannot(why);
    }
    let missing = limits_missing(spec, engine);
    if spec.strict_limits
        && let Some(text) = missing.into_iter().next()
    {
        return cannot(text);
    }
    Ok(())
}

/// Limits that were asked for and that this engine does not enforce, in words.
pub(in crate::oci) fn limits_missing(spec: &SandboxSpec, engine: &EngineInfo) -> Vec<String> {
    let asked = [
        (
            "memory",
            spec.resources.memory_mib.is_some(),
            engine.memory_limit,
        ),
        ("cpu", spec.resources.cpus.is_some(), engine.cpu_limit),
        ("process", spec.resources.pids.is_some(), engine.pids_limit),
    ];
    let missing = asked.iter().filter(|(_, asked, can)| *asked && !can);
    missing
        .map(|(name, ..)| {
            format!(
                "The {name} limit cannot be enforced here: {}.",
                engine.limits_why()
            )
        })
        .collect()
}

/// Devices that are missing on this host for running containers inside.
pub(in crate::oci) fn missing_device() -> Option<&'static str> {
    NESTED_DEVICES
        .into_iter()
        .find(|device| !Path::new(device).exists())
}
