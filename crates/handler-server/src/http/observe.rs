//! Observation: agents, activity, figures, logs of sandboxes; figures of this host. Nothing here wakes a sandbox.

use super::problem::{ApiError, ApiResult};
use crate::app::observe::log::{MOST_LINES, Wanted};
use crate::app::observe::{activity, agents, host, metrics as figures, prometheus};
use crate::app::sandboxes::find;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::Stream;
use handler_types::observe::{
    AgentList, HostStats, LogLine, LogLines, LogSource, MetricsHistory, SandboxActivity,
    SandboxMetrics,
};
use handler_types::{ProblemCode, SandboxId};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

type S = State<Arc<App>>;

/// Lines given when nobody says how many.
const TAIL: usize = 200;
/// Samples given likewise: all that are kept.
const SAMPLES: usize = 360;

/// Which agent programs a sandbox has and runs. Looked at anew after 15 seconds.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/agents", tag = "observe", params(("id" = String, Path)),
    responses((status = 200, body = AgentList), (status = 409, description = "It does not run", body = handler_types::Problem)))]
pub async fn agents(State(app): S, Path(id): Path<String>) -> ApiResult<Json<AgentList>> {
    Ok(Json(agents::list(&app, &id).await?))
}

/// What a sandbox's terminals and sessions do, and why that is said. Changes come as `activity` events.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/activity", tag = "observe", params(("id" = String, Path)),
    responses((status = 200, body = SandboxActivity)))]
pub async fn activity(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxActivity>> {
    Ok(Json(activity::of(&app, &id).await?))
}

/// What a sandbox uses now.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/metrics", tag = "observe", params(("id" = String, Path)),
    responses((status = 200, body = SandboxMetrics)))]
pub async fn metrics(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxMetrics>> {
    Ok(Json(figures::now(&app, &id).await?))
}

/// Which samples.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Not before: RFC 3339, or milliseconds since the epoch.
    pub from: Option<String>,
    /// Not after, likewise.
    pub to: Option<String>,
    /// At most the last so many (1–360, default 360).
    pub limit: Option<usize>,
}

/// What a running sandbox used over the last half hour, a sample every five seconds.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/metrics/history", tag = "observe",
    params(("id" = String, Path), HistoryQuery), responses((status = 200, body = MetricsHistory)))]
pub async fn history(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> ApiResult<Json<MetricsHistory>> {
    let id = find(&app, &id).await?.id;
    let from = time("from", query.from.as_deref())?.unwrap_or(i64::MIN);
    let to = time("to", query.to.as_deref())?.unwrap_or(i64::MAX);
    let limit = query.limit.unwrap_or(SAMPLES);
    if !(1..=SAMPLES).contains(&limit) {
        return Err(ApiError::new(ProblemCode::Invalid, "limit: from 1 to 360"));
    }
    let samples = &app.observe.samples;
    Ok(Json(samples.between(&id, from, to, limit)))
}

/// What this machine has and uses.
#[utoipa::path(get, path = "/v1/host/stats", tag = "host", responses((status = 200, body = HostStats)))]
pub async fn host_stats(State(app): S) -> ApiResult<Json<HostStats>> {
    Ok(Json(host::stats(&app).await?))
}

/// The host's figures for Prometheus, as OpenMetrics text. Opened by the API's token, or by the one in the config
/// folder's `metrics-token`, which opens nothing else. No series names a sandbox.
#[utoipa::path(get, path = "/metrics", tag = "host",
    responses((status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text", body = String)))]
pub async fn prometheus(State(app): S) -> Response {
    let text = prometheus::text(&app).await;
    ([(header::CONTENT_TYPE, prometheus::MEDIA_TYPE)], text).into_response()
}

/// Which lines of a log.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// At most the last so many lines (0–10000, default 200).
    pub tail: Option<usize>,
    /// Not before: RFC 3339, or milliseconds since the epoch.
    pub since: Option<String>,
    /// Only lines behind this number (`seq`), to go on where one was.
    pub after: Option<u64>,
    /// Only lines of this source.
    pub source: Option<LogSource>,
    /// Go on with lines as they come: `text/event-stream` of LogLine, the id of an event is its `seq`.
    #[serde(default)]
    pub follow: bool,
}

/// A sandbox's log: steps of its life, commands, terminals, refusals of the filter, what its guest said. Secret values
/// are taken out. Kept over restarts of the daemon, at most about 4 MiB.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/logs", tag = "observe", params(("id" = String, Path), LogQuery),
    responses((status = 200, description = "With `follow`: an event stream of LogLine", body = LogLines)))]
pub async fn logs(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let id = find(&app, &id).await?.id;
    let tail = query.tail.unwrap_or(TAIL);
    if tail > MOST_LINES {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "tail: from 0 to 10000 lines",
        ));
    }
    let last_event = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let wanted = Wanted {
        source: query.source,
        since: time("since", query.since.as_deref())?,
        after: query.after.or(last_event),
        tail,
    };
    if query.source == Some(LogSource::Container) {
        return Ok(Json(container(&app, &id, tail).await).into_response());
    }
    if !query.follow {
        return Ok(Json(app.observe.logs.read(&id, wanted).await).into_response());
    }
    let follower = Follower::start(app, id, wanted).await;
    let stream = futures::stream::unfold(follower, |mut follower| async move {
        let line = follower.next().await?;
        Some((Ok::<_, Infallible>(event(&line)), follower))
    });
    Ok(keep(stream))
}

fn keep(stream: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(stream)
        .keep_alive(KeepAlive::default())
        .into_response()
}

fn event(line: &LogLine) -> Event {
    let json = serde_json::to_string(line).unwrap_or_default();
    Event::default()
        .event("line")
        .id(line.seq.to_string())
        .data(json)
}

/// The engine's own log of a container, whose lines have no numbers of ours.
async fn container(app: &App, id: &SandboxId, tail: usize) -> LogLines {
    let lines = app.engine.instance_log(id, tail).await.unwrap_or_default();
    let at = handler_base::clock::rfc3339(handler_base::clock::now_ms());
    let from = lines.len().saturating_sub(tail);
    LogLines {
        truncated: from > 0,
        lines: lines[from..]
            .iter()
            .map(|text| LogLine {
                seq: 0,
                at: at.clone(),
                source: LogSource::Container,
                level: handler_types::observe::LogLevel::Info,
                message: text
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(4096)
                    .collect(),
            })
            .collect(),
    }
}

/// Somebody who reads a log as it grows. Numbers tell what was given: nothing is doubled, and what came too fast is
/// read from the file.
struct Follower {
    app: Arc<App>,
    id: SandboxId,
    wanted: Wanted,
    last: u64,
    ready: VecDeque<LogLine>,
    live: broadcast::Receiver<(SandboxId, LogLine)>,
}

impl Follower {
    async fn start(app: Arc<App>, id: SandboxId, wanted: Wanted) -> Self {
        let live = app.observe.logs.follow();
        let mut follower = Self {
            last: wanted.after.unwrap_or_default(),
            ready: VecDeque::new(),
            app,
            id,
            wanted,
            live,
        };
        follower.read(wanted).await;
        follower
    }

    async fn read(&mut self, wanted: Wanted) {
        // None wanted of those that are there: only their numbers count.
        let whole = Wanted {
            tail: wanted.tail.max(1),
            ..wanted
        };
        let lines = self.app.observe.logs.read(&self.id, whole).await.lines;
        self.last = lines.last().map_or(self.last, |line| line.seq);
        if wanted.tail > 0 {
            self.ready.extend(lines);
        }
    }

    /// The next line; none when the sandbox is gone or the daemon stops.
    async fn next(&mut self) -> Option<LogLine> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            let got = tokio::select! {
                () = self.app.shutdown.cancelled() => return None,
                got = self.live.recv() => got,
                () = tokio::time::sleep(std::time::Duration::from_secs(5)) => {
                    self.app.engine.get(&self.id).ok()?;
                    continue;
                }
            };
            match got {
                Ok((id, line)) if id == self.id && line.seq > self.last => {
                    self.last = line.seq;
                    if self
                        .wanted
                        .source
                        .is_none_or(|source| source == line.source)
                    {
                        return Some(line);
                    }
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => {
                    let missed = Wanted {
                        after: Some(self.last),
                        tail: MOST_LINES,
                        ..self.wanted
                    };
                    self.read(missed).await;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// A time of a query.
pub(super) fn time(name: &str, text: Option<&str>) -> ApiResult<Option<i64>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let ms = text
        .parse()
        .ok()
        .or_else(|| handler_base::clock::parse_rfc3339(text));
    ms.map(Some).ok_or_else(|| {
        ApiError::new(
            ProblemCode::Invalid,
            format!("{name}: a time like 2026-01-31T12:00:00Z, or milliseconds since the epoch"),
        )
    })
}
