//! What this machine can do, and where agents may work.

use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::folders::FolderError;
use handler_types::ProblemCode;
use handler_types::api::{BackendView, CheckStatus};
use std::path::Path;

/// Backends with their checks.
pub async fn backends(app: &App) -> Vec<BackendView> {
    let mut views = Vec::new();
    for driver in app.engine.drivers() {
        let checks = driver.check().await;
        let available = checks
            .iter()
            .all(|check| check.status != CheckStatus::Failed);
        views.push(BackendView {
            name: driver.backend().to_owned(),
            available,
            checks,
            capabilities: driver.capabilities().await,
        });
    }
    views
}

/// Adds one.
///
/// # Errors
/// A folder that is never allowed.
pub fn add_folder(app: &App, path: &str) -> ApiResult<()> {
    let added = app.folders.add(Path::new(path));
    added.map(drop).map_err(|e| folder_error(&e))
}

/// Takes one off the list.
///
/// # Errors
/// 404 when it is not on it.
pub fn remove_folder(app: &App, path: &str) -> ApiResult<()> {
    if !app
        .folders
        .remove(Path::new(path))
        .map_err(|e| folder_error(&e))?
    {
        return Err(ApiError::new(
            ProblemCode::NotFound,
            format!("{path} is not on the list"),
        ));
    }
    Ok(())
}

/// Why a folder cannot be used, as ours.
#[must_use]
pub fn folder_error(error: &FolderError) -> ApiError {
    let code = match error {
        FolderError::Missing { .. }
        | FolderError::NotADirectory { .. }
        | FolderError::NotAbsolute { .. } => ProblemCode::Invalid,
        FolderError::Outside { .. } | FolderError::Refused { .. } | FolderError::Hidden { .. } => {
            ProblemCode::PathNotAllowed
        }
        _ => ProblemCode::NotConfigured,
    };
    ApiError::new(code, chain(error))
}
