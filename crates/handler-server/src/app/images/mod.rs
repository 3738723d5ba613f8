//! Rules of images: the stores of the backends, who uses an image, and Handler's own images.

pub mod check;
pub mod context;
pub mod harness_images;
mod mcp_probe;
mod probe;
pub mod settings;
pub mod toolbox;
pub mod updates;
pub mod versions;

use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::images::{ImageError, ImageStore};
use handler_types::ProblemCode;
use handler_types::event::ServerEvent;
use handler_types::image::ImageView;
use std::sync::Arc;

/// Most containers' or sandboxes' names told in one refusal.
const SHOWN: usize = 5;

/// An error of a store as the API's.
#[must_use]
pub fn image_error(error: ImageError) -> ApiError {
    let code = match &error {
        ImageError::NotFound(_) => ProblemCode::NotFound,
        ImageError::Invalid(_) => ProblemCode::Invalid,
        ImageError::InUse(_) | ImageError::Cancelled => ProblemCode::Conflict,
        ImageError::Unsupported(_) => ProblemCode::Unenforceable,
        ImageError::Unavailable(_) => ProblemCode::HostNotReady,
        ImageError::NoSpace(_) => ProblemCode::NoSpace,
        ImageError::Failed(_) => ProblemCode::BackendFailed,
    };
    ApiError::new(code, error.to_string())
}

/// The store of a backend.
///
/// # Errors
/// A backend that is not there or has no images.
pub fn store(app: &App, backend: &str) -> Result<Arc<dyn ImageStore>, ImageError> {
    let driver = app.engine.drivers().iter().find(|d| d.backend() == backend);
    let Some(driver) = driver else {
        let known = backends(app).join(", ");
        let shown: String = backend.chars().take(40).collect();
        return Err(ImageError::Invalid(format!(
            "there is no backend `{shown}` with images; there are: {known}"
        )));
    };
    driver
        .images()
        .ok_or_else(|| ImageError::Unsupported(format!("`{backend}` has no images")))
}

/// Backends with images.
#[must_use]
pub fn backends(app: &App) -> Vec<&'static str> {
    let drivers = app.engine.drivers().iter();
    drivers
        .filter(|driver| driver.images().is_some())
        .map(|driver| driver.backend())
        .collect()
}

/// The backend meant: the one said, else `images.toml`'s, else the first on this host that can build.
///
/// # Errors
/// None is there; a broken `images.toml`.
pub async fn backend(app: &App, said: Option<&str>) -> ApiResult<String> {
    let wanted = match said {
        Some(backend) => Some(backend.to_owned()),
        None => settings::read(app).map_err(image_error)?.backend,
    };
    if let Some(backend) = wanted {
        store(app, &backend).map_err(image_error)?;
        return Ok(backend);
    }
    for driver in app.engine.drivers() {
        if driver.images().is_some() && driver.capabilities().await.build {
            return Ok(driver.backend().to_owned());
        }
    }
    Err(ApiError::new(
        ProblemCode::HostNotReady,
        "no container engine of this host can build images: install Podman, or name a backend",
    ))
}

/// Sandboxes that start from an image or show it.
fn users(app: &App, backend: &str, id: &str) -> Vec<String> {
    let all = app.engine.list().into_iter();
    all.filter(|view| view.backend == backend)
        .filter(|view| {
            let is_root = view.image.as_ref().is_some_and(|image| image.id == id);
            let shows = || {
                let spec = app.engine.spec(&view.id).ok();
                spec.is_some_and(|spec| spec.image_mounts.iter().any(|m| m.image.id == id))
            };
            is_root || shows()
        })
        .map(|view| view.id.to_string())
        .collect()
}

/// All images of a backend, or of all that answer.
///
/// # Errors
/// A backend that was named and does not answer.
pub async fn list(app: &App, said: Option<&str>) -> ApiResult<Vec<ImageView>> {
    let mut views = Vec::new();
    for backend in backends(app) {
        if said.is_some_and(|said| said != backend) {
            continue;
        }
        let listed = match store(app, backend) {
            Ok(store) => store.list().await,
            Err(error) => Err(error),
        };
        match listed {
            Ok(images) => views.extend(images),
            Err(error) if said.is_some() => return Err(image_error(error)),
            Err(error) => tracing::debug!(%error, backend, "images are not listed"),
        }
    }
    if let Some(said) = said.filter(|said| !backends(app).contains(said)) {
        store(app, said).map_err(image_error)?;
    }
    for view in &mut views {
        view.used_by = users(app, &view.backend, &view.id);
    }
    Ok(views)
}

/// One image with its configuration. Without a backend the first that has it.
///
/// # Errors
/// 404; a backend that does not answer.
pub async fn inspect(app: &App, said: Option<&str>, reference: &str) -> ApiResult<ImageView> {
    let candidates: Vec<String> = match said {
        Some(backend) => vec![backend.to_owned()],
        None => backends(app).iter().map(|b| (*b).to_owned()).collect(),
    };
    let mut refusal = ImageError::NotFound(reference.chars().take(200).collect());
    for backend in candidates {
        let found = match store(app, &backend) {
            Ok(store) => store.inspect(reference).await,
            Err(error) => Err(error),
        };
        match found {
            Ok((mut view, config)) => {
                view.config = Some(config);
                view.used_by = users(app, &view.backend, &view.id);
                return Ok(view);
            }
            Err(error) if said.is_some() => refusal = error,
            Err(error @ ImageError::Invalid(_)) => refusal = error,
            Err(_) => {}
        }
    }
    Err(image_error(refusal))
}

/// Removes a name, and the image with its last one.
///
/// # Errors
/// 404; 409 while a sandbox or container uses it.
pub async fn remove(app: &App, said: Option<&str>, reference: &str) -> ApiResult<()> {
    let view = inspect(app, said, reference).await?;
    let is_last_name = view.names.len() <= 1 || view.id.contains(reference);
    if is_last_name && !view.used_by.is_empty() {
        let shown: Vec<&str> = view
            .used_by
            .iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect();
        return Err(ApiError::new(
            ProblemCode::Conflict,
            format!(
                "sandboxes use the image: {}; remove them first",
                shown.join(", ")
            ),
        ));
    }
    let store = store(app, &view.backend).map_err(image_error)?;
    store.remove(reference).await.map_err(image_error)?;
    changed(app, &view.backend);
    Ok(())
}

/// Gives an image another name.
///
/// # Errors
/// What the store refuses.
pub async fn tag(
    app: &App,
    said: Option<&str>,
    reference: &str,
    name: &str,
) -> ApiResult<ImageView> {
    let view = inspect(app, said, reference).await?;
    let store = store(app, &view.backend).map_err(image_error)?;
    store.tag(&view.id, name).await.map_err(image_error)?;
    changed(app, &view.backend);
    inspect(app, Some(&view.backend), name).await
}

/// Tells everyone that a backend's images are other ones.
pub(crate) fn changed(app: &App, backend: &str) {
    app.events.publish(ServerEvent::Images {
        backend: backend.to_owned(),
    });
}
