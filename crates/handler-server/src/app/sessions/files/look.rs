//! Looking: what changed, what is there, what a file says.

use super::{MAX_SHOWN, Opened, as_text, blocking, git, open, refused, walking};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use base64::Engine as _;
use handler_base::clock::rfc3339;
use handler_folder::baseline::Baseline;
use handler_folder::{FolderError, Kind, Limits, Root};
use handler_types::ProblemCode;
use handler_types::session_folder::{
    ChangedFile, EntryKind, FileChange, FolderEntry, SessionChanges, SessionFile, SessionFolder,
    SessionFound,
};

/// Most entries of a folder that are shown.
const MAX_ENTRIES: usize = 5000;
/// Longest text that is looked for, characters.
const MAX_TYPED: usize = 200;

/// What changed since the session started.
///
/// # Errors
/// 404; a folder that is gone.
pub async fn changes(app: &App, session: &str) -> ApiResult<SessionChanges> {
    let opened = open(app, session, None).await?;
    let Some(baseline) = opened.baseline else {
        // It has not started yet, or did before folders were followed.
        return Ok(SessionChanges {
            since: rfc3339(opened.row.created_ms),
            git: false,
            commit: None,
            files: Vec::new(),
            not_followed: true,
        });
    };
    let (root, then) = (opened.root, baseline.clone());
    let found = walking(move || Ok(then.changes(&root, Limits::default()))).await?;
    let files = found.files.into_iter().map(|file| ChangedFile {
        path: file.path,
        change: file.change,
        at: file.at.map(|nanos| rfc3339(nanos / 1_000_000)),
    });
    Ok(SessionChanges {
        since: rfc3339(baseline.since_ms),
        git: baseline.is_git,
        commit: baseline.commit.clone(),
        files: files.collect(),
        not_followed: found.not_followed,
    })
}

/// What is in a folder.
///
/// # Errors
/// 404; 400 `path not shown`.
pub async fn folder(
    app: &App,
    session: &str,
    path: String,
    mount: Option<&str>,
) -> ApiResult<SessionFolder> {
    let opened = open(app, session, mount).await?;
    blocking(move || {
        let (found, is_all) = opened.root.list(&path, MAX_ENTRIES).map_err(refused)?;
        let entries = found.into_iter().map(|entry| FolderEntry {
            name: entry.name,
            kind: match entry.kind {
                Kind::Folder => EntryKind::Folder,
                Kind::Link => EntryKind::Link,
                Kind::File | Kind::Other => EntryKind::File,
            },
            size: entry.size,
            target: entry.target,
        });
        Ok(SessionFolder {
            path,
            entries: entries.collect(),
            more: !is_all,
        })
    })
    .await
}

/// Files by what was typed of their path.
///
/// # Errors
/// 404; 400 for a text that is too long.
pub async fn find(app: &App, session: &str, typed: String) -> ApiResult<SessionFound> {
    if typed.chars().count() > MAX_TYPED {
        let detail = "q: at most 200 characters";
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    let opened = open(app, session, None).await?;
    walking(move || {
        let walked = match &opened.baseline {
            Some(baseline) => baseline.look(&opened.root, Limits::default()),
            None => Baseline::default().look(&opened.root, Limits::default()),
        };
        Ok(SessionFound {
            paths: handler_folder::find::find(&walked.files, &typed),
            not_followed: !walked.is_complete,
        })
    })
    .await
}

/// A file, as it is and as it was.
///
/// # Errors
/// 404, also for a file that is not there and was not at the start; 400 `path not shown`.
pub async fn file(
    app: &App,
    session: &str,
    path: String,
    mount: Option<&str>,
) -> ApiResult<SessionFile> {
    let opened = open(app, session, mount).await?;
    let (root, baseline, asked) = (opened.root.clone(), opened.baseline.clone(), path.clone());
    let (change, size, bytes) = blocking(move || {
        let change = change(&root, baseline.as_deref(), &asked)?;
        let (size, bytes) = match root.find_file(&asked) {
            Err(FolderError::NotFound(_)) if change == Some(FileChange::Deleted) => (None, None),
            Err(error) => return Err(refused(error)),
            Ok(place) if place.stat.size > MAX_SHOWN as u64 => (Some(place.stat.size), None),
            Ok(_) => {
                let (bytes, is_all) = root.read(&asked, MAX_SHOWN).map_err(refused)?;
                (Some(bytes.len() as u64), is_all.then_some(bytes))
            }
        };
        Ok((change, size, bytes))
    })
    .await?;
    let before = before(app, &opened, change, &path).await.and_then(as_text);
    let image = bytes.as_deref().and_then(image);
    Ok(SessionFile {
        path,
        size,
        change,
        text: bytes.and_then(as_text),
        image,
        before,
    })
}

/// How a file differs from the one at the start.
pub(super) fn change(
    root: &Root,
    baseline: Option<&Baseline>,
    path: &str,
) -> ApiResult<Option<FileChange>> {
    handler_folder::check(path).map_err(refused)?;
    Ok(baseline.and_then(|baseline| baseline.change(root, path)))
}

/// The version in the commit of the session's start of a file that is another now or gone. A pointer of Git LFS is
/// none: the file itself is elsewhere.
pub(super) async fn before(
    app: &App,
    opened: &Opened,
    change: Option<FileChange>,
    path: &str,
) -> Option<Vec<u8>> {
    if !matches!(change?, FileChange::Modified | FileChange::Deleted) {
        return None;
    }
    let commit = opened.baseline.as_ref()?.commit.clone()?;
    let bytes = git::file(app, &opened.root, &commit, path).await?;
    let is_pointer = bytes.starts_with(b"version https://git-lfs.github.com/spec/");
    (!is_pointer).then_some(bytes)
}

/// An image as an address that holds it.
fn image(bytes: &[u8]) -> Option<String> {
    let media = match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "image/webp",
        _ => return None,
    };
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    Some(format!("data:{media};base64,{data}"))
}
