//! `/v1/builds`: start, list, show, follow and cancel long work on images.

use super::images::BackendQuery;
use super::problem::{ApiError, ApiResult};
use super::upload;
use crate::app::builds::{self as rules, Upload, Work};
use crate::app::images;
use crate::state::App;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::Stream;
use handler_types::build::{BuildFrame, BuildKind, BuildRequest, BuildView, ContextBuild};
use handler_types::{BuildId, ProblemCode};
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::sync::Arc;

type S = State<Arc<App>>;

/// Longest JSON request, bytes.
const MAX_JSON: usize = 1024 * 1024;

/// What is to be built of an uploaded context.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ContextQuery {
    /// A [`ContextBuild`] as JSON; only with a tar archive as body.
    pub request: Option<String>,
}

/// Where in a log.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Bytes to leave out.
    #[serde(default)]
    pub offset: u64,
}

/// Queues a build: of one of Handler's own images (JSON body), or of an uploaded context (a tar archive as body,
/// `?request=` says what is to be made of it).
#[utoipa::path(post, path = "/v1/builds", tag = "builds", params(ContextQuery),
    request_body(content((BuildRequest = "application/json"), (Vec<u8> = "application/x-tar"))),
    responses((status = 202, body = BuildView), (status = "4XX", body = handler_types::Problem)))]
pub async fn create(
    State(app): S,
    Query(query): Query<ContextQuery>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<BuildView>)> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let view = match kind.map(|kind| kind.split(';').next().unwrap_or_default().trim()) {
        Some("application/json") => {
            let bytes = axum::body::to_bytes(body, MAX_JSON).await.map_err(|_| {
                ApiError::new(ProblemCode::TooLarge, "the body is larger than 1 MiB")
            })?;
            target(&app, parse(&bytes)?).await?
        }
        Some("application/x-tar" | "application/gzip" | "application/octet-stream") => {
            let request = query.request.as_deref().unwrap_or("{}");
            context(&app, parse(request.as_bytes())?, body).await?
        }
        _ => {
            return Err(ApiError::new(
                ProblemCode::Invalid,
                "content-type: application/json with a target, or application/x-tar with a context",
            ));
        }
    };
    Ok((StatusCode::ACCEPTED, Json(view)))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::new(ProblemCode::Invalid, format!("the request: {error}")))
}

async fn target(app: &Arc<App>, request: BuildRequest) -> ApiResult<BuildView> {
    let (kind, work) = if request.target == "toolbox" {
        (BuildKind::Toolbox, Work::Toolbox)
    } else {
        let descriptor = crate::app::harnesses::descriptor(&request.target)?;
        (BuildKind::Harness, Work::Harness(descriptor))
    };
    let backend = images::backend(app, request.backend.as_deref()).await?;
    rules::submit(app, kind, &backend, &request.target, work)
}

async fn context(app: &Arc<App>, request: ContextBuild, body: Body) -> ApiResult<BuildView> {
    let bad = request
        .tags
        .iter()
        .find(|tag| !handler_drivers::oci::images::is_image_name(tag));
    if let Some(tag) = bad {
        let shown: String = tag.chars().take(80).collect();
        return Err(ApiError::new(
            ProblemCode::Invalid,
            format!("tags: `{shown}` cannot be the name of an image"),
        ));
    }
    let backend = images::backend(app, request.backend.as_deref()).await?;
    let target = request
        .tags
        .first()
        .cloned()
        .unwrap_or_else(|| "context".to_owned());
    let upload = Upload::begin(app, BuildKind::Context, &backend, &target)?;
    upload::receive(body, &upload.path()).await?;
    rules::submit_upload(app, upload, Work::Context(request))
}

/// Builds, newest first; the last 20 are kept.
#[utoipa::path(get, path = "/v1/builds", tag = "builds", params(BackendQuery),
    responses((status = 200, body = Vec<BuildView>)))]
pub async fn list(State(app): S, Query(query): Query<BackendQuery>) -> Json<Vec<BuildView>> {
    let mut views = rules::list(&app);
    if let Some(backend) = query.backend {
        views.retain(|view| view.backend == backend);
    }
    Json(views)
}

/// One build, by id or the beginning of it.
#[utoipa::path(get, path = "/v1/builds/{id}", tag = "builds", params(("id" = String, Path)),
    responses((status = 200, body = BuildView), (status = 404, body = handler_types::Problem)))]
pub async fn get(State(app): S, Path(id): Path<String>) -> ApiResult<Json<BuildView>> {
    Ok(Json(rules::get(&app, &id)?))
}

/// Cancels a build; nothing of it is left when it is `cancelled`.
#[utoipa::path(post, path = "/v1/builds/{id}/cancel", tag = "builds", params(("id" = String, Path)),
    responses((status = 200, body = BuildView)))]
pub async fn cancel(State(app): S, Path(id): Path<String>) -> ApiResult<Json<BuildView>> {
    Ok(Json(rules::cancel(&app, &id)?))
}

/// A piece of a build's log (at most 1 MiB, whole lines); `x-next-offset` says where to go on.
#[utoipa::path(get, path = "/v1/builds/{id}/log", tag = "builds", params(("id" = String, Path), LogQuery),
    responses((status = 200, content_type = "text/plain", body = String)))]
pub async fn log(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> ApiResult<Response> {
    let id = rules::find(&app, &id)?;
    let (text, next) = rules::log_piece(&app, &id, query.offset).await?;
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (
            header::HeaderName::from_static("x-next-offset"),
            next.to_string(),
        ),
    ];
    Ok((headers, text).into_response())
}

/// Follows a build: its log from an offset, then its end.
#[utoipa::path(get, path = "/v1/builds/{id}/follow", tag = "builds", params(("id" = String, Path), LogQuery),
    responses((status = 200, description = "`text/event-stream` of BuildFrame", content_type = "text/event-stream",
        body = BuildFrame)))]
pub async fn follow(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let id = rules::find(&app, &id)?;
    let (log, changed) = rules::watch_build(&app, &id)
        .ok_or_else(|| ApiError::new(ProblemCode::NotFound, "the build is gone"))?;
    let follower = Follower {
        app,
        id,
        offset: query.offset,
        log,
        changed,
        is_done: false,
    };
    let stream = futures::stream::unfold(follower, |mut follower| async {
        let frame = follower.next().await?;
        let json = serde_json::to_value(&frame).unwrap_or_default();
        let name = json["type"].as_str().unwrap_or("message").to_owned();
        let event = Event::default().event(name).data(json.to_string());
        Some((Ok(event), follower))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

struct Follower {
    app: Arc<App>,
    id: BuildId,
    offset: u64,
    log: tokio::sync::watch::Receiver<u64>,
    changed: tokio::sync::watch::Receiver<u64>,
    is_done: bool,
}

impl Follower {
    /// The next frame; none after the end.
    async fn next(&mut self) -> Option<BuildFrame> {
        if self.is_done {
            return None;
        }
        loop {
            // Looked at before the log, so that a build that is over has all of its log read.
            self.changed.borrow_and_update();
            let build = rules::get(&self.app, self.id.as_str()).ok()?;
            self.log.borrow_and_update();
            let piece = rules::log_piece(&self.app, &self.id, self.offset)
                .await
                .ok();
            if let Some((text, next)) = piece.filter(|(text, _)| !text.is_empty()) {
                self.offset = next;
                return Some(BuildFrame::Log { offset: next, text });
            }
            if build.state.is_over() {
                self.is_done = true;
                return Some(BuildFrame::Build {
                    build: Box::new(build),
                });
            }
            let shutdown = self.app.shutdown.clone();
            let is_writing = self.log.has_changed().is_ok();
            tokio::select! {
                () = shutdown.cancelled() => return None,
                changed = self.changed.changed() => changed.ok()?,
                // A log whose writer is gone does not grow any more; the record tells the rest.
                _ = self.log.changed(), if is_writing => {}
            }
        }
    }
}
