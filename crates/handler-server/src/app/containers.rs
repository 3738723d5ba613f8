//! What the engines differ in: images resolved to ids, confinement, transparent mode, runtime, writable folders, the display.

use crate::config::DisplayPlaces;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::images::{ImageError, ImageStore};
use handler_types::ProblemCode;
use handler_types::image::{ImageMount, ImageUse};
use handler_types::sandbox::{CreateSandbox, SandboxSpec};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Fills these parts of a spec from the request.
///
/// # Errors
/// A backend without images, an image that is not there, a display that is not there or not unambiguous.
pub async fn fill(app: &App, request: &CreateSandbox, spec: &mut SandboxSpec) -> ApiResult<()> {
    spec.confinement = request.confinement;
    spec.transparent = request.transparent;
    spec.runtime.clone_from(&request.runtime);
    spec.writable_paths.clone_from(&request.writable_paths);
    spec.path_append.clone_from(&request.path_append);
    if request.display {
        spec.display = Some(display(&app.settings.display)?);
    }
    if request.image.is_none() && request.image_mounts.is_empty() {
        return Ok(());
    }
    let store = store(app, &spec.backend)?;
    if let Some(reference) = &request.image {
        spec.image = Some(resolve(&store, reference).await?);
    }
    for (target, reference) in &request.image_mounts {
        spec.image_mounts.push(ImageMount {
            image: resolve(&store, reference).await?,
            target: target.clone(),
        });
    }
    Ok(())
}

fn store(app: &App, backend: &str) -> ApiResult<Arc<dyn ImageStore>> {
    let driver = app
        .engine
        .drivers()
        .iter()
        .find(|driver| driver.backend() == backend);
    let store = driver.and_then(|driver| driver.images());
    store.ok_or_else(|| {
        ApiError::new(
            ProblemCode::Invalid,
            format!("`{backend}` sandboxes do not start from images"),
        )
    })
}

/// Pins an image: what the name means now.
async fn resolve(store: &Arc<dyn ImageStore>, reference: &str) -> ApiResult<ImageUse> {
    let (view, _) = store.inspect(reference).await.map_err(|error| {
        let code = match &error {
            ImageError::NotFound(_) => ProblemCode::NotFound,
            ImageError::Unavailable(_) => ProblemCode::HostNotReady,
            ImageError::Invalid(_) | ImageError::Unsupported(_) => ProblemCode::Invalid,
            _ => ProblemCode::BackendFailed,
        };
        ApiError::new(code, error.to_string())
    })?;
    Ok(ImageUse {
        reference: reference.to_owned(),
        id: view.id,
    })
}

/// The one Wayland socket of this person: looked for at each start, since a compositor that restarts may change it.
fn display(places: &DisplayPlaces) -> ApiResult<String> {
    let found = match (&places.chosen, &places.name) {
        (Some(path), _) => path.clone(),
        (None, Some(name)) if name.starts_with('/') => PathBuf::from(name),
        (None, Some(name)) => in_folder(places, name)?,
        (None, None) => only_one(places)?,
    };
    let real = found.canonicalize().unwrap_or(found);
    let is_socket = std::fs::metadata(&real).is_ok_and(|data| data.file_type().is_socket());
    match real.to_str() {
        Some(text) if is_socket => Ok(text.to_owned()),
        _ => Err(no_display(&format!("{} is not a socket", real.display()))),
    }
}

fn no_display(why: &str) -> ApiError {
    ApiError::new(
        ProblemCode::Unenforceable,
        format!("there is no display to show: {why}; name its socket in HANDLER_WAYLAND_SOCKET"),
    )
}

fn in_folder(places: &DisplayPlaces, name: &str) -> ApiResult<PathBuf> {
    let folder = places.folder.as_deref();
    let folder = folder.ok_or_else(|| no_display("XDG_RUNTIME_DIR is not set"))?;
    Ok(folder.join(name))
}

fn only_one(places: &DisplayPlaces) -> ApiResult<PathBuf> {
    let folder = places.folder.clone().unwrap_or_default();
    let mut sockets = sockets_in(&folder);
    match (sockets.pop(), sockets.len()) {
        (Some(one), 0) => Ok(one),
        (Some(_), _) => Err(no_display(&format!("several are in {}", folder.display()))),
        (None, _) => Err(no_display("the daemon knows of none")),
    }
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("wayland-"))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_display_is_the_chosen_one_the_named_one_or_the_only_one() {
        let temp = tempfile::tempdir().expect("temp");
        let folder = temp.path().canonicalize().expect("path");
        let places = |chosen: Option<&str>, name: Option<&str>| DisplayPlaces {
            chosen: chosen.map(|name| folder.join(name)),
            name: name.map(str::to_owned),
            folder: Some(folder.clone()),
        };
        assert!(display(&places(None, None)).is_err(), "none");
        let _one = UnixListener::bind(folder.join("wayland-1")).expect("socket");
        std::fs::write(folder.join("wayland-1.lock"), "").expect("lock");
        let text = |name: &str| folder.join(name).to_str().expect("utf-8").to_owned();
        assert_eq!(
            display(&places(None, None)).expect("the only one"),
            text("wayland-1")
        );
        let _two = UnixListener::bind(folder.join("wayland-2")).expect("socket");
        assert!(display(&places(None, None)).is_err(), "several");
        assert_eq!(
            display(&places(None, Some("wayland-2"))).expect("named"),
            text("wayland-2")
        );
        assert_eq!(
            display(&places(Some("wayland-1"), Some("wayland-2"))).expect("chosen"),
            text("wayland-1")
        );
        assert!(
            display(&places(Some("wayland-1.lock"), None)).is_err(),
            "no socket"
        );
    }
}
