//! `/v1/audit`: what the filter decided and who changed what, page by page, as it comes, checked, or whole.

use super::observe::time;
use super::problem::{ApiError, ApiResult};
use crate::app::sandboxes::find;
use crate::state::App;
use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use handler_store::audit::{Place, Wanted};
use handler_types::audit::{AuditPage, AuditRecord, AuditVerdict};
use handler_types::egress::EgressDecision;
use handler_types::{ProblemCode, SandboxId, SessionId};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::io::ReaderStream;

type S = State<Arc<App>>;

/// Lines of an answer when nobody says how many.
const LIMIT: usize = 200;
/// Most lines of an answer.
const MOST: usize = 1000;

/// Which lines.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only behind this number: `next` of the page before. Without it, the last lines.
    pub after: Option<u64>,
    /// 1–1000 (default 200).
    pub limit: Option<usize>,
    /// Not before: RFC 3339, or milliseconds since the epoch.
    pub since: Option<String>,
    /// Before, likewise.
    pub until: Option<String>,
    /// Only about this sandbox: id, unique prefix or name, or the id of one that is gone.
    pub sandbox: Option<String>,
    /// Only about this session (its id).
    pub session: Option<String>,
    /// Only events with this decision.
    pub decision: Option<EgressDecision>,
    /// Only about hosts with this text in them.
    pub host: Option<String>,
    /// Go on with lines as they are written, as events of a stream.
    #[serde(default)]
    pub follow: bool,
}

/// Lines of the audit log: those behind `after`, or the last ones.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, body = AuditPage), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn list(State(app): S, Query(query): Query<AuditQuery>) -> ApiResult<Response> {
    let wanted = wanted(&app, &query).await?;
    let (records, place) = app.audit.read(wanted.clone(), None).await?;
    if query.follow {
        return Ok(follow(app, wanted, records, place));
    }
    let is_full = query.after.is_some() && records.len() == wanted.most;
    let next = records.last().filter(|_| is_full).map(|record| record.seq);
    Ok(Json(AuditPage { records, next }).into_response())
}

async fn wanted(app: &App, query: &AuditQuery) -> ApiResult<Wanted> {
    let most = query.limit.unwrap_or(LIMIT);
    if !(1..=MOST).contains(&most) {
        return Err(invalid("limit: from 1 to 1000 lines"));
    }
    let about = match (&query.sandbox, &query.session) {
        (Some(_), Some(_)) => return Err(invalid("sandbox and session: give one of them")),
        (Some(text), None) => Some(sandbox(app, text).await?),
        (None, Some(text)) => {
            let id: Result<SessionId, _> = text.parse();
            Some(id.map_err(|_| invalid("session: a whole id"))?.to_string())
        }
        (None, None) => None,
    };
    Ok(Wanted {
        after: query.after.unwrap_or_default(),
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
        about,
        decision: query.decision,
        host: query.host.as_ref().map(|host| host.to_ascii_lowercase()),
        last: query.after.is_none(),
        most,
    })
}

fn invalid(detail: &str) -> ApiError {
    ApiError::new(ProblemCode::Invalid, detail)
}

/// The id of a sandbox; one that is gone is known by its whole id only.
async fn sandbox(app: &App, text: &str) -> ApiResult<String> {
    match (find(app, text).await, text.parse::<SandboxId>()) {
        (Ok(view), _) => Ok(view.id.to_string()),
        (Err(_), Ok(id)) => Ok(id.to_string()),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Somebody who reads the log as it grows.
struct Follower {
    app: Arc<App>,
    wanted: Wanted,
    place: Place,
    ready: VecDeque<AuditRecord>,
    written: watch::Receiver<u64>,
}

fn follow(app: Arc<App>, mut wanted: Wanted, records: Vec<AuditRecord>, place: Place) -> Response {
    (wanted.last, wanted.most) = (false, MOST);
    let mut written = app.audit.written();
    // Whatever was written since the first look is looked for at once.
    written.mark_changed();
    let follower = Follower {
        app,
        wanted,
        place,
        ready: records.into(),
        written,
    };
    let stream = futures::stream::unfold(follower, |mut follower| async move {
        let record = follower.next().await?;
        let json = serde_json::to_string(&record).unwrap_or_default();
        let event = Event::default().event("line").id(record.seq.to_string());
        Some((Ok::<_, Infallible>(event.data(json)), follower))
    });
    Sse::new(stream)
        .keep_alive(KeepAlive::default())
        .into_response()
}

impl Follower {
    /// The next line; none when the daemon stops or the log cannot be read.
    async fn next(&mut self) -> Option<AuditRecord> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            tokio::select! {
                () = self.app.shutdown.cancelled() => return None,
                changed = self.written.changed() => changed.ok()?,
            }
            self.written.borrow_and_update();
            let more = self.app.audit.read(self.wanted.clone(), Some(self.place));
            let (records, place) = more.await.ok()?;
            if records.len() == self.wanted.most {
                self.written.mark_changed();
            }
            (self.ready, self.place) = (records.into(), place);
        }
    }
}

/// Checks that every line of the audit log refers to the one before it.
#[utoipa::path(get, path = "/v1/audit/verify", tag = "audit", responses((status = 200, body = AuditVerdict)))]
pub async fn verify(State(app): S) -> ApiResult<Json<AuditVerdict>> {
    Ok(Json(app.audit.verify().await?))
}

/// The audit log byte for byte, oldest line first: each line's `prev` is the SHA-256 of the line before it.
#[utoipa::path(get, path = "/v1/audit/export", tag = "audit",
    responses((status = 200, description = "JSON lines", content_type = "application/x-ndjson", body = String)))]
pub async fn export(State(app): S) -> ApiResult<Response> {
    let files = futures::stream::iter(app.audit.files().await?);
    let bytes = files.then(open).flat_map(|opened| match opened {
        Ok(file) => ReaderStream::new(file).boxed(),
        // Retired meanwhile: what follows does not fit to what came before, which a check of the export tells.
        Err(error) => futures::stream::iter([Err::<Bytes, io::Error>(error)]).boxed(),
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(bytes)).into_response())
}

async fn open(path: PathBuf) -> io::Result<tokio::io::Take<tokio::fs::File>> {
    use tokio::io::AsyncReadExt as _;
    let file = tokio::fs::File::open(path).await?;
    let length = file.metadata().await?.len();
    Ok(file.take(length))
}
