//! One viewer of a session: the WebSocket between a client and the session's owner.

use crate::app::sessions;
use crate::state::App;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use handler_session::ViewerEvent;
use handler_types::SessionId;
use std::sync::Arc;

/// Largest message from a client, bytes (contract C.1).
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// Largest that is read, so that one above [`MAX_MESSAGE`] can be answered with a close that says so.
pub const MAX_READ: usize = 4 * MAX_MESSAGE;

/// Close code: the daemon is ending; the session goes on and can be attached again.
pub(crate) const GOING_AWAY: u16 = 1001;
/// Close code: only text is spoken here.
pub(crate) const NOT_TEXT: u16 = 1003;
/// Close code: the agent cannot run.
pub(crate) const AGENT_FAILED: u16 = 1011;

/// Runs until either side leaves.
pub async fn run(mut socket: WebSocket, app: Arc<App>, id: SessionId) {
    let handle = match sessions::ensure_running(&app, &id).await {
        Ok(handle) => handle,
        Err(error) => return close(&mut socket, AGENT_FAILED, &error.0.detail).await,
    };
    let Ok((sender, mut receiver)) = handle.attach().await else {
        return close(&mut socket, AGENT_FAILED, "the session has just ended").await;
    };
    let (mut sink, mut source) = socket.split();
    let shutdown = app.shutdown.clone();
    let (code, reason) = loop {
        tokio::select! {
            () = shutdown.cancelled() => break (GOING_AWAY, "the daemon is stopping".to_owned()),
            event = receiver.next() => match event {
                ViewerEvent::Frame(frame) => {
                    let Ok(text) = Utf8Bytes::try_from(frame) else { continue };
                    if sink.send(Message::Text(text)).await.is_err() {
                        return;
                    }
                }
                ViewerEvent::Close { code, reason } => break (code, reason),
            },
            message = source.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    if sender.send(Bytes::from(text)).await.is_err() {
                        // The owner's reason comes through the receiver.
                        continue;
                    }
                }
                Some(Ok(Message::Binary(_))) => break (NOT_TEXT, "send text frames".to_owned()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
            },
        }
    };
    let frame = close_frame(code, &reason);
    sink.send(Message::Close(Some(frame))).await.ok();
}

async fn close(socket: &mut WebSocket, code: u16, reason: &str) {
    let frame = close_frame(code, reason);
    socket.send(Message::Close(Some(frame))).await.ok();
}

/// How a connection is ended: why, as far as it fits.
pub(crate) fn close_frame(code: u16, reason: &str) -> CloseFrame {
    CloseFrame {
        code,
        reason: shorten(reason).into(),
    }
}

/// A close reason holds 123 bytes.
fn shorten(reason: &str) -> String {
    let mut end = reason.len().min(120);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason[..end].to_owned()
}
