//! Rules of knowledge folders (contract D.5): what agents may be shown of the knowledge root, read-only.

use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::knowledge::{Chosen, Folder, Knowledge, KnowledgeError};
use handler_types::ProblemCode;
use handler_types::knowledge::{
    KnowledgeFolderView, KnowledgeListing, KnowledgeNote, SetKnowledgeRootRequest,
};
use handler_types::sandbox::MountSpec;

/// The one title of everything that may not be used.
const UNUSABLE: &str = "knowledge unusable";

fn refused(error: &KnowledgeError) -> ApiError {
    let text = chain(error);
    match error {
        KnowledgeError::Unusable(_) => ApiError::titled(ProblemCode::Invalid, UNUSABLE, text),
        KnowledgeError::Conflict(_) => {
            ApiError::titled(ProblemCode::Conflict, "knowledge conflict", text)
        }
        KnowledgeError::Invalid { .. } | KnowledgeError::Io { .. } => {
            ApiError::titled(ProblemCode::Invalid, UNUSABLE, text)
        }
    }
}

/// Looks at the disk where nobody waits for it.
async fn looked<T: Send + 'static>(
    app: &App,
    look: impl FnOnce(&Knowledge) -> Result<T, KnowledgeError> + Send + 'static,
) -> ApiResult<T> {
    let knowledge = app.knowledge.clone();
    let found = tokio::task::spawn_blocking(move || look(&knowledge)).await;
    found
        .map_err(|_| ApiError::new(ProblemCode::Internal, "the look at the disk ended early"))?
        .map_err(|error| refused(&error))
}

/// Where the root is and what is in it.
///
/// # Errors
/// 400 for a root that cannot be read.
pub async fn list(app: &App) -> ApiResult<KnowledgeListing> {
    looked(app, |knowledge| {
        let (root, source) = knowledge.root()?;
        let folders = knowledge.list()?;
        Ok(KnowledgeListing {
            root: root.to_string_lossy().into_owned(),
            source,
            exists: folders.is_some(),
            folders: folders.unwrap_or_default(),
        })
    })
    .await
}

/// Says where the root is. Agents' folders stay relative and follow it.
///
/// # Errors
/// 400 for a folder that cannot be the root, 409 when the environment says it.
pub async fn set_root(app: &App, asked: SetKnowledgeRootRequest) -> ApiResult<KnowledgeListing> {
    looked(app, move |knowledge| {
        knowledge.set_root(asked.root.as_deref(), asked.create)
    })
    .await?;
    list(app).await
}

/// Makes a folder.
///
/// # Errors
/// 400 for one that would lie outside the root or be hidden, 409 when it is there.
pub async fn make(app: &App, path: String) -> ApiResult<KnowledgeFolderView> {
    let made = looked(app, move |knowledge| knowledge.make(&path)).await?;
    Ok(view(made))
}

/// What is in a folder.
///
/// # Errors
/// 400 for one that may not be used.
pub async fn browse(app: &App, path: String) -> ApiResult<KnowledgeFolderView> {
    let found = looked(app, move |knowledge| knowledge.browse(&path)).await?;
    Ok(view(found))
}

/// A note.
///
/// # Errors
/// 400 for what may not be used, and for what is no text of at most 1 MiB.
pub async fn note(app: &App, path: String) -> ApiResult<KnowledgeNote> {
    let found = looked(app, move |knowledge| knowledge.note(&path)).await?;
    Ok(KnowledgeNote {
        path: found.path,
        text: found.text,
    })
}

fn view(folder: Folder) -> KnowledgeFolderView {
    KnowledgeFolderView {
        path: folder.path,
        folders: folder.folders,
        notes: folder.notes,
        index: folder.index,
    }
}

/// The folders that were chosen, as they are now.
///
/// # Errors
/// 400 with everything that is wrong.
pub async fn check(app: &App, asked: &[String]) -> ApiResult<Vec<Chosen>> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let asked = asked.to_vec();
    looked(app, move |knowledge| knowledge.check(&asked)).await
}

/// As they are kept: relative, sorted, each once.
///
/// # Errors
/// As [`check`].
pub async fn kept(app: &App, asked: &[String]) -> ApiResult<Vec<String>> {
    let found = check(app, asked).await?;
    Ok(found.into_iter().map(|chosen| chosen.relative).collect())
}

/// What a sandbox is shown of them.
///
/// # Errors
/// As [`check`]: one that is gone meanwhile fails the start.
pub async fn mounts(app: &App, asked: &[String]) -> ApiResult<Vec<MountSpec>> {
    let found = check(app, asked).await?;
    let mount = |chosen: Chosen| MountSpec {
        source: chosen.path.to_string_lossy().into_owned(),
        target: format!("/knowledge/{}", chosen.name),
        read_only: true,
    };
    Ok(found.into_iter().map(mount).collect())
}
