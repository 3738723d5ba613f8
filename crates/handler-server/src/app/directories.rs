//! Rules of work folders (contract D.13): which there are, what is in them, and new ones.

use super::host::folder_error;
use super::projects::{self, project_ref};
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::folders::{FolderError, Root, SubFolders, WorkFolders};
use handler_types::ProblemCode;
use handler_types::folder::{
    CreateDirectoryRequest, DirectoryListing, WorkFolderView, WorkFoldersInfo, WorkFoldersRequest,
};
use std::path::Path;

/// The roots, where they lead, and which projects lie in them.
///
/// # Errors
/// A broken file.
pub async fn folders(app: &App) -> ApiResult<WorkFoldersInfo> {
    let roots = app.folders.list().map_err(|error| folder_error(&error))?;
    let projects = projects::rows(app).await?;
    let view = |root: Root| {
        let path = root.path.clone().unwrap_or_else(|| app.folders.full(&root));
        let own = projects
            .iter()
            .filter(|project| Path::new(&project.settings.folder).starts_with(&path));
        WorkFolderView {
            projects: own.map(project_ref).collect(),
            root: root.written,
            path: path.to_string_lossy().into_owned(),
            exists: root.path.is_some(),
        }
    };
    let folders = roots.into_iter().map(view).collect();
    Ok(WorkFoldersInfo { folders })
}

/// Sets the whole list.
///
/// # Errors
/// 403 for a folder that may never be one; the list is then as before.
pub async fn set_folders(app: &App, request: WorkFoldersRequest) -> ApiResult<WorkFoldersInfo> {
    app.folders.set(&request.roots).map_err(|error| {
        let mut refused = folder_error(&error);
        if matches!(
            refused.0.code,
            ProblemCode::PathNotAllowed | ProblemCode::Invalid
        ) {
            let title = "folder not allowed";
            refused = ApiError::titled(ProblemCode::PathNotAllowed, title, chain(&error));
        }
        refused
    })?;
    folders(app).await
}

/// The folders in a folder; without one, the roots.
///
/// # Errors
/// 403 for what lies in no work folder.
pub async fn list(app: &App, path: String) -> ApiResult<DirectoryListing> {
    if path.is_empty() {
        let roots = app.folders.list().map_err(|error| folder_error(&error))?;
        let there = roots.into_iter().filter_map(|root| root.path);
        return Ok(DirectoryListing {
            path: None,
            parent: None,
            folders: there
                .map(|path| path.to_string_lossy().into_owned())
                .collect(),
            more: false,
        });
    }
    looked(app, move |folders| folders.look(Path::new(&path))).await
}

/// Makes a folder, and gives what is in it: nothing.
///
/// # Errors
/// 403 for a place that lies in no work folder, 409 when it is there, 400 for its name.
pub async fn make(app: &App, request: CreateDirectoryRequest) -> ApiResult<DirectoryListing> {
    looked(app, move |folders| {
        folders.make(Path::new(&request.parent), &request.name)
    })
    .await
}

async fn looked(
    app: &App,
    look: impl FnOnce(&WorkFolders) -> Result<SubFolders, FolderError> + Send + 'static,
) -> ApiResult<DirectoryListing> {
    let folders = app.folders.clone();
    let found = tokio::task::spawn_blocking(move || look(&folders)).await;
    let found = found
        .map_err(|_| ApiError::new(ProblemCode::Internal, "the look at the disk ended early"))?
        .map_err(|error| refused(&error))?;
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    Ok(DirectoryListing {
        path: Some(text(found.path)),
        parent: found.parent.map(text),
        folders: found.names,
        more: found.more,
    })
}

fn refused(error: &FolderError) -> ApiError {
    match error {
        FolderError::Exists { .. } => {
            ApiError::titled(ProblemCode::Conflict, "folder exists", error.to_string())
        }
        FolderError::BadName => ApiError::new(ProblemCode::Invalid, error.to_string()),
        other => folder_error(other),
    }
}
