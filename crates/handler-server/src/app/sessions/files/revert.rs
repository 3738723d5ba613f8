//! Differences from the session's start, and changes taken back by the person.

use super::look::{before, change};
use super::{Opened, as_text, blocking, kept, open, refused};
use crate::http::problem::ApiResult;
use crate::state::App;
use handler_folder::baseline::Baseline;
use handler_folder::{FolderError, Root, Writer, git, sha256};
use handler_types::ProblemCode;
use handler_types::session_folder::{FileChange, RevertRequest, SessionDiff};

/// Changes are taken back one after the other: each also changes what is recorded of the start.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A changed file, as it is and as it was.
struct Versions {
    change: Option<FileChange>,
    /// Its content; none when it is gone or too large.
    now: Option<Vec<u8>>,
    before: Option<Vec<u8>>,
    /// Bytes and permissions at the start.
    then: Option<(u64, u32)>,
}

async fn versions(app: &App, opened: &Opened, path: &str) -> ApiResult<Versions> {
    let (root, baseline, asked) = (
        opened.root.clone(),
        opened.baseline.clone(),
        path.to_owned(),
    );
    let (change, now, then) = blocking(move || {
        let change = change(&root, baseline.as_deref(), &asked)?;
        let now = match root.read(&asked, git::MAX_FILE) {
            Err(FolderError::NotFound(_)) if change == Some(FileChange::Deleted) => None,
            Err(error) => return Err(refused(error)),
            Ok((bytes, is_all)) => is_all.then_some(bytes),
        };
        let then = baseline.and_then(|baseline| baseline.files.get(&asked).copied());
        Ok((change, now, then.map(|stat| (stat.size, stat.mode & 0o777))))
    })
    .await?;
    Ok(Versions {
        change,
        now,
        before: before(app, opened, change, path).await,
        then,
    })
}

impl Versions {
    /// Both as texts; a version that is not there is an empty one.
    fn texts(&self) -> Result<(String, String), &'static str> {
        const NO_TEXT: &str = "it is no text, or larger than 1 MiB";
        const NONE: &str =
            "there is no earlier version: it is not in the commit of the session's start";
        let text = |bytes: &Vec<u8>| as_text(bytes.clone()).ok_or(NO_TEXT);
        let now = || self.now.as_ref().ok_or(NO_TEXT).and_then(text);
        let before = || self.before.as_ref().ok_or(NONE).and_then(text);
        match self.change {
            None => Err("it did not change, or is not followed"),
            Some(FileChange::Added) => Ok((String::new(), now()?)),
            Some(FileChange::Deleted) => Ok((before()?, String::new())),
            Some(FileChange::Modified) => Ok((before()?, now()?)),
        }
    }

    /// At the start the file was not as in the commit: the person was working on it.
    fn had_own_edits(&self) -> bool {
        let length = self.before.as_ref().map(|before| before.len() as u64);
        let then = self.then.map(|(size, _)| size);
        length
            .zip(then)
            .is_some_and(|(length, size)| length != size)
    }

    fn is_revertable(&self) -> bool {
        match self.change {
            None => false,
            Some(FileChange::Added) => self.now.is_some(),
            Some(FileChange::Modified) => self.now.is_some() && self.before.is_some(),
            Some(FileChange::Deleted) => self.before.is_some(),
        }
    }

    fn diff(&self, path: String) -> SessionDiff {
        let (hunks, why) = match self.texts() {
            Ok((before, now)) => (handler_folder::diff::hunks(&before, &now), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let why = match why {
            None if hunks.is_empty() && self.change == Some(FileChange::Modified) => {
                Some("its text is as it was: it was written to, or its permissions changed")
            }
            why => why,
        };
        SessionDiff {
            path,
            change: self.change,
            digest: self.now.as_deref().map(sha256),
            revertable: self.is_revertable(),
            hunks,
            why: why.map(str::to_owned),
        }
    }
}

/// What changed in a file since the session started.
///
/// # Errors
/// 404; 400 `path not shown`.
pub async fn diff(app: &App, session: &str, path: String) -> ApiResult<SessionDiff> {
    let opened = open(app, session, None).await?;
    let versions = versions(app, &opened, &path).await?;
    blocking(move || Ok(versions.diff(path))).await
}

/// What is to be done.
enum Step {
    Remove,
    Write { content: Vec<u8>, mode: Option<u32> },
    Create { content: Vec<u8>, mode: u32 },
}

/// Takes back a hunk or all of what changed in a file, if it still is what the person saw. Tells the difference that
/// is left.
///
/// # Errors
/// 404; 400 `path not shown`; 409 `changed meanwhile` and `cannot be reverted`.
pub async fn revert(app: &App, session: &str, asked: RevertRequest) -> ApiResult<SessionDiff> {
    let _turn = TURN.lock().await;
    let opened = open(app, session, None).await?;
    let versions = versions(app, &opened, &asked.path).await?;
    let step = step(&versions, &asked).map_err(refused)?;
    let digest = asked.digest.unwrap_or_default();
    let (root, path) = (opened.root.clone(), asked.path.clone());
    let is_whole = match &step {
        Step::Write { content, mode } => {
            let mode_stays = mode.is_some() || versions.then.is_none();
            versions.before.as_ref() == Some(content) && mode_stays
        }
        Step::Remove | Step::Create { .. } => true,
    };
    let baseline = opened.baseline.clone();
    let settled = blocking(move || {
        apply(&root, &path, &digest, step).map_err(refused)?;
        let settle = |baseline: &Baseline| {
            let mut baseline = baseline.clone();
            baseline.settle(&root, &path);
            baseline
        };
        Ok(baseline.as_deref().filter(|_| is_whole).map(settle))
    })
    .await?;
    if let Some(baseline) = settled {
        kept::keep(app, &opened.row.id, baseline).await?;
    }
    after(app, session, asked.path).await
}

/// The difference that is left; a file that is gone as it was is no error here.
async fn after(app: &App, session: &str, path: String) -> ApiResult<SessionDiff> {
    match diff(app, session, path.clone()).await {
        Err(error) if error.0.code == ProblemCode::NotFound => Ok(SessionDiff {
            path,
            change: None,
            digest: None,
            revertable: false,
            hunks: Vec::new(),
            why: None,
        }),
        other => other,
    }
}

fn step(versions: &Versions, asked: &RevertRequest) -> Result<Step, FolderError> {
    let refuse = |why: &str| Err(FolderError::Refused(format!("`{}`: {why}", asked.path)));
    let is_seen = versions.now.as_deref().map(sha256) == asked.digest;
    if !is_seen {
        let why = format!(
            "`{}` changed meanwhile: look at the difference again, and send its digest",
            asked.path
        );
        return Err(FolderError::Changed(why));
    }
    if !versions.is_revertable() {
        let why = versions.texts().err();
        return refuse(why.unwrap_or("there is no earlier version"));
    }
    let hunk = match &asked.hunk {
        None => None,
        Some(id) => match versions.texts() {
            Err(why) => return refuse(why),
            Ok((before, now)) => match handler_folder::diff::without(&before, &now, id) {
                Some(text) => Some(text.into_bytes()),
                None => return refuse("it has no such hunk; look at the difference again"),
            },
        },
    };
    let before = versions.before.clone().unwrap_or_default();
    let mode = versions.then.map(|(_, mode)| mode);
    Ok(match (versions.change, hunk) {
        (Some(FileChange::Added), _) => Step::Remove,
        (Some(FileChange::Deleted), _) => Step::Create {
            content: before,
            mode: mode.unwrap_or(0o644),
        },
        (_, Some(content)) => {
            let mode = mode.filter(|_| content == before);
            Step::Write { content, mode }
        }
        (_, None) if versions.had_own_edits() => {
            return refuse(
                "it had edits that were not committed when the session started, which would be lost; take back its \
                 hunks one by one",
            );
        }
        (_, None) => Step::Write {
            content: before,
            mode,
        },
    })
}

fn apply(root: &Root, path: &str, digest: &str, step: Step) -> Result<(), FolderError> {
    let writer = Writer::new(root, path)?;
    match step {
        Step::Create { content, mode } => writer.create(&content, mode),
        Step::Remove => writer.remove(&writer.found()?, digest),
        Step::Write { content, mode } => writer.replace(&writer.found()?, digest, &content, mode),
    }
}
