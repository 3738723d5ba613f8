//! `GET /v1/events`: server-sent events.

use super::problem::ApiResult;
use crate::state::App;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use handler_types::event::ServerEvent;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;

/// Streams what changes from now on.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    responses((status = 200, description = "`text/event-stream` of ServerEvent", content_type = "text/event-stream", body = ServerEvent)))]
pub async fn stream(
    State(app): State<Arc<App>>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let receiver = app.events.subscribe();
    let shutdown = app.shutdown.clone();
    let stream = futures::stream::unfold((receiver, shutdown), |(mut receiver, shutdown)| async {
        let (id, event) = tokio::select! {
            () = shutdown.cancelled() => return None,
            got = receiver.recv() => match got {
                Ok(pair) => pair,
                Err(RecvError::Lagged(_)) => (0, ServerEvent::Missed),
                Err(RecvError::Closed) => return None,
            },
        };
        let mut sse = Event::default();
        if id > 0 {
            sse = sse.id(id.to_string());
        }
        let json = serde_json::to_value(&event).unwrap_or_default();
        let name = json
            .get("type")
            .and_then(|t| t.as_str())
            .unwrap_or("message")
            .to_owned();
        Some((
            Ok(sse.event(name).data(json.to_string())),
            (receiver, shutdown),
        ))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}
