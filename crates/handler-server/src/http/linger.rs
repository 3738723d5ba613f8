//! Reads what is left of a request's body before a refusal is sent.
//!
//! A server that answers and closes while the client still sends makes the kernel reset the connection, and the
//! reset throws away the answer: the client would see "broken pipe" instead of the reason.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a refused client may go on sending.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whatever of the body nobody has read yet; the handler and the middleware look at the same one.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        body.size_hint()
    }
}

/// Runs the request; when it was refused, reads the rest of its body, for at most half a minute.
pub(super) async fn drain_refused(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    if body.is_end_stream() {
        return next.run(Request::from_parts(head, body)).await;
    }
    let mut rest = Shared(Arc::new(Mutex::new(body)));
    let response = next
        .run(Request::from_parts(head, Body::new(rest.clone())))
        .await;
    if response.status().is_client_error() || response.status().is_server_error() {
        let read_on = async { while matches!(rest.frame().await, Some(Ok(_))) {} };
        // A client that sends for longer than that loses the answer; it is told again when it asks again.
        let _ended = tokio::time::timeout(PATIENCE, read_on).await;
    }
    response
}
