//! `/v1/sessions` looked back at: search, usage, documents; renaming and putting away.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::sessions as rules;
use crate::app::sessions::{Format, SearchQuery, UsageQuery};
use crate::state::App;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use handler_types::api::Page;
use handler_types::session::SessionView;
use handler_types::session_text::{ChangeSession, SessionHit, UsageSumView};
use std::sync::Arc;
use tokio_stream::wrappers::ReceiverStream;

type S = State<Arc<App>>;

/// Renames a session, or puts it away: out of lists, stopped, its history kept.
#[utoipa::path(patch, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    request_body = ChangeSession,
    responses((status = 200, body = SessionView), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn change(
    State(app): S,
    Path(id): Path<String>,
    Document(wanted): Document<ChangeSession>,
) -> ApiResult<Json<SessionView>> {
    Ok(Json(rules::alter(&app, &id, wanted).await?))
}

/// Finds messages and titles by their words, the latest first.
#[utoipa::path(get, path = "/v1/sessions/search", tag = "sessions", params(SearchQuery),
    responses((status = 200, body = Page<SessionHit>), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn search(
    State(app): S,
    Query(query): Query<SearchQuery>,
) -> ApiResult<Json<Page<SessionHit>>> {
    Ok(Json(rules::search(&app, query).await?))
}

/// Sums up what turns used, as agents told it: tokens and, where they tell it, cost.
#[utoipa::path(get, path = "/v1/sessions/usage", tag = "sessions", params(UsageQuery),
    responses((status = 200, body = Vec<UsageSumView>), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn usage(
    State(app): S,
    Query(query): Query<UsageQuery>,
) -> ApiResult<Json<Vec<UsageSumView>>> {
    Ok(Json(rules::usage(&app, query).await?))
}

/// Which document.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// `markdown` (default) or `json`.
    #[serde(default)]
    pub format: Format,
}

/// The session as one document, to keep or to show.
#[utoipa::path(get, path = "/v1/sessions/{id}/export", tag = "sessions",
    params(("id" = String, Path), ExportQuery),
    responses((status = 200, description = "The document", content((String = "text/markdown"), (String = "application/json"))),
        (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn export(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<ExportQuery>,
) -> ApiResult<Response> {
    let (session, pieces) = rules::export(&app, &id, query.format).await?;
    let (media, ending) = match query.format {
        Format::Markdown => ("text/markdown; charset=utf-8", "md"),
        Format::Json => ("application/json", "json"),
    };
    let name = format!("attachment; filename=\"{}.{ending}\"", session.id);
    let headers = [
        (header::CONTENT_TYPE, media.to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    let body = Body::from_stream(ReceiverStream::new(pieces));
    Ok((headers, body).into_response())
}
