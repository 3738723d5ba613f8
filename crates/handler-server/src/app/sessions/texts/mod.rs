//! What was said in sessions, kept for search, and what their turns used: brought up from the logs whenever a turn or
//! a session has ended, and once after a start of the daemon.

mod export;
mod fold;
mod search;

pub use export::Format;
pub(crate) use export::export;
pub use search::{SearchQuery, UsageQuery, search, usage};

use super::folder;
use crate::state::App;
use fold::Fold;
use handler_store::rows::{Batch, Indexed};
use handler_store::{LogHistory, StoreError};
use handler_types::SessionId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Messages written at once.
const BATCH: usize = 512;

fn log(app: &App, id: &SessionId) -> PathBuf {
    folder(app, id).join("events.ndjson")
}

/// Takes in what a session's log has and the tables have not. What fails is tried again at the next end of a turn.
pub(super) async fn catch_up(app: &App, id: &SessionId) {
    if let Err(error) = try_catch_up(app, id).await {
        tracing::warn!(session = %id, %error, "a session's messages could not be kept for search");
    }
}

/// Takes in what was logged while nobody looked, all sessions one after the other.
pub(super) fn catch_up_all(app: &Arc<App>, ids: Vec<SessionId>) {
    let app = app.clone();
    handler_base::tasks::spawn_named("messages for search", async move {
        for id in ids {
            if app.shutdown.is_cancelled() {
                return;
            }
            catch_up(&app, &id).await;
        }
    });
}

/// Makes a session be found by its title.
pub(super) async fn set_title(app: &App, id: &SessionId, title: Option<&str>) {
    let done = app
        .store
        .session_texts()
        .set_title(id, title.unwrap_or_default())
        .await;
    if let Err(error) = done {
        tracing::warn!(session = %id, %error, "a session's title could not be kept for search");
    }
}

async fn try_catch_up(app: &App, id: &SessionId) -> Result<(), StoreError> {
    let texts = app.store.session_texts();
    loop {
        let from = texts.indexed(id).await?;
        let path = log(app, id);
        let before = from.seq;
        let read = tokio::task::spawn_blocking(move || read(&path, from)).await;
        let batch = match read {
            Ok(Ok(Some(batch))) => batch,
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(session = %id, %error, "a log cannot be read");
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        if batch.indexed.seq <= before {
            return Ok(());
        }
        match texts.add(id, batch).await {
            // Removed meanwhile: nothing to keep.
            Err(StoreError::NotFound { .. }) => return Ok(()),
            other => other?,
        }
    }
}

/// The next batch; none when there is no log.
fn read(path: &Path, from: Indexed) -> std::io::Result<Option<Batch>> {
    let Some(mut history) = LogHistory::open(path, from.bytes)? else {
        return Ok(None);
    };
    let mut at = history.offset();
    let mut fold = Fold::new(from);
    while fold.messages() < BATCH {
        let Some(line) = history.next_line()? else {
            break;
        };
        at += line.len() as u64 + 1;
        fold.take(line, at);
    }
    Ok(Some(fold.give()))
}
