//! Renaming a session and putting it away.

use super::doc::SessionDoc;
use super::{change, end, find_row};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_store::rows::SessionPatch;
use handler_types::ProblemCode;
use handler_types::session::{SessionState, SessionView, StopHow};
use handler_types::session_text::ChangeSession;
use std::sync::Arc;

/// Longest title, characters.
const LONGEST: usize = 200;

/// Changes what is said; a session that is put away is stopped.
///
/// # Errors
/// 404, a title that is too long or of several lines.
pub async fn alter(app: &Arc<App>, text: &str, wanted: ChangeSession) -> ApiResult<SessionView> {
    check(wanted.title.as_deref())?;
    let row = find_row(app, text).await?;
    let is_live = matches!(row.state, SessionState::Starting | SessionState::Running);
    if wanted.archived == Some(true) && is_live {
        end(app, &row.id, StopHow::Explicit, "archived").await?;
    }
    let turn = app.sessions.turn(&row.id).await;
    let _turn = turn.lock().await;
    // Read again: its end has changed it.
    let row = find_row(app, row.id.as_str()).await?;
    let mut doc = SessionDoc::read(&row)?;
    if let Some(title) = wanted.title {
        let title = title.trim();
        doc.own_title = (!title.is_empty()).then(|| title.to_owned());
    }
    doc.archived = wanted.archived.unwrap_or(doc.archived);
    let patch = SessionPatch {
        document: Some(doc.to_json()),
        ..SessionPatch::default()
    };
    let view = change(app, &row.id, patch).await?;
    super::texts::set_title(app, &row.id, view.title.as_deref()).await;
    Ok(view)
}

fn check(title: Option<&str>) -> ApiResult<()> {
    let is_bad =
        |title: &str| title.chars().count() > LONGEST || title.chars().any(char::is_control);
    if title.is_some_and(is_bad) {
        let detail = "title: one line of at most 200 characters";
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    Ok(())
}
