//! One viewer of a terminal: frames from its queue to the socket, keys and commands from the socket.
//!
//! The socket is written one frame at a time, so what a stalled viewer holds is one frame and what its queue bounds.

use super::processes::AckBy;
use crate::app::terminals::{Frame, Hub, Next, ViewerId};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures::stream::SplitStream;
use futures::{SinkExt as _, StreamExt as _};
use handler_types::guest::TtySize;
use handler_types::terminal::{TerminalCommand, TerminalEvent, ViewerMode};
use tokio::sync::watch;

/// Most bytes a viewer that acknowledges is ahead.
const AHEAD: u64 = 512 * 1024;

/// What a viewer asked for.
#[derive(Debug)]
pub struct Viewer {
    /// What it may do.
    pub mode: ViewerMode,
    /// Its size.
    pub size: Option<TtySize>,
    /// Lines before the screen.
    pub scrollback: usize,
    /// Who acknowledges.
    pub ack: AckBy,
}

/// Runs until the viewer leaves or the terminal ends.
pub async fn run(socket: WebSocket, hub: Hub, viewer: Viewer) {
    let (mut sink, source) = socket.split();
    let attached = hub
        .attach(viewer.mode, viewer.size, viewer.scrollback)
        .await;
    let Some(attached) = attached else {
        let closed = TerminalEvent::Closed {
            reason: "the terminal was closed just now".to_owned(),
            retry: false,
        };
        sink.send(text(&closed)).await.ok();
        return;
    };
    let (drawn, mut acked) = watch::channel(0_u64);
    let input = take_input(source, &hub, attached.id, viewer.mode, drawn);
    tokio::pin!(input);
    let mut sent = 0_u64;
    loop {
        if viewer.ack == AckBy::Client && sent > *acked.borrow_and_update() + AHEAD {
            tokio::select! {
                () = &mut input => break,
                changed = acked.changed() => if changed.is_err() { break },
            }
            continue;
        }
        let next = tokio::select! {
            () = &mut input => break,
            next = attached.queue.next() => next,
        };
        let message = match next {
            Next::Frame(Frame::Output(bytes)) => {
                sent += bytes.len() as u64;
                Message::Binary(bytes)
            }
            Next::Frame(Frame::Event(event)) => text(&event),
            Next::Behind => {
                hub.redraw(attached.id).await;
                attached.queue.wait_for_redraw().await;
                continue;
            }
            Next::Over => {
                let frame = CloseFrame {
                    code: 1000,
                    reason: "done".into(),
                };
                sink.send(Message::Close(Some(frame))).await.ok();
                break;
            }
        };
        // A stalled viewer must not keep its frames from being read, or it could never leave.
        let written = tokio::select! {
            written = sink.send(message) => written,
            () = &mut input => break,
        };
        if written.is_err() {
            break;
        }
    }
    hub.leave(attached.id).await;
}

fn text(event: &TerminalEvent) -> Message {
    Message::text(serde_json::to_string(event).unwrap_or_default())
}

/// Takes the viewer's frames until it leaves. What a reader types is dropped.
async fn take_input(
    mut source: SplitStream<WebSocket>,
    hub: &Hub,
    viewer: ViewerId,
    mode: ViewerMode,
    drawn: watch::Sender<u64>,
) {
    while let Some(Ok(message)) = source.next().await {
        match message {
            Message::Binary(keys) if mode == ViewerMode::Write => {
                hub.type_in(keys).await;
            }
            Message::Text(text) => {
                // What cannot be read is ignored, as newer clients may say more.
                if let Ok(command) = serde_json::from_str(text.as_str()) {
                    carry_out(command, hub, viewer, &drawn).await;
                }
            }
            Message::Close(_) => return,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

async fn carry_out(
    command: TerminalCommand,
    hub: &Hub,
    viewer: ViewerId,
    drawn: &watch::Sender<u64>,
) {
    match command {
        TerminalCommand::Ack { bytes } => {
            drawn.send_if_modified(|known| {
                let is_news = bytes > *known;
                *known = bytes.max(*known);
                is_news
            });
        }
        TerminalCommand::Resize { cols, rows } => {
            hub.resize(Some(viewer), TtySize { cols, rows }, false)
                .await;
        }
        TerminalCommand::Take { cols, rows } => {
            hub.resize(Some(viewer), TtySize { cols, rows }, true).await;
        }
        TerminalCommand::Redraw => hub.redraw(viewer).await,
    }
}
