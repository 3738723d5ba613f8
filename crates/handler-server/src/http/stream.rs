//! One viewer of a process: output to the socket, input and commands from it.
//!
//! Output is acknowledged to the guest only after the socket took it, or after the viewer said so: a viewer
//! that does not read stalls the process, not the daemon, and nothing is dropped.

use super::processes::AckBy;
use crate::app::exec;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::{BufMut as _, BytesMut};
use futures::stream::SplitStream;
use futures::{SinkExt as _, StreamExt as _};
use handler_engine::guest::{GuestHandle, ProcessStream, StreamItem};
use handler_types::api::{StreamCommand, StreamEvent};
use handler_types::guest::ProcessInfo;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Runs until the process's output ends, the viewer leaves or the daemon stops.
pub async fn run(
    socket: WebSocket,
    guest: GuestHandle,
    info: ProcessInfo,
    mut output: ProcessStream,
    from: u64,
    ack: AckBy,
    shutdown: CancellationToken,
) {
    let process = info.process;
    let (mut sink, source) = socket.split();
    let first = StreamEvent::Attached {
        process: exec::view(&info),
        offset: from,
    };
    if sink.send(text(&first)).await.is_err() {
        return;
    }
    let (told, mut heard) = watch::channel(from);
    let input = take_input(source, guest, process, info.received, told);
    tokio::pin!(input);
    let mut sent_end = from;
    let mut exit = info.exit;
    let last = loop {
        tokio::select! {
            () = shutdown.cancelled() => break closed("the daemon is stopping; attach again", true),
            () = &mut input => return,
            Ok(()) = heard.changed(), if ack == AckBy::Client => {
                // What was not sent cannot have been seen, whatever the viewer says.
                let up_to = *heard.borrow_and_update();
                output.ack(up_to.min(sent_end));
            }
            item = output.next() => match item {
                StreamItem::Chunk { offset, stream, bytes } => {
                    let end = offset + bytes.len() as u64;
                    let mut frame = BytesMut::with_capacity(bytes.len() + 1);
                    frame.put_u8(stream as u8);
                    frame.extend_from_slice(&bytes);
                    // A stalled viewer must not keep its input from being read, or it could never leave.
                    let sent = tokio::select! {
                        sent = sink.send(Message::Binary(frame.freeze())) => sent,
                        () = &mut input => return,
                        () = shutdown.cancelled() => return,
                    };
                    if sent.is_err() {
                        return;
                    }
                    sent_end = end;
                    if ack == AckBy::Daemon {
                        output.ack(end);
                    }
                }
                StreamItem::Exited(how) => exit = Some(how),
                StreamItem::End { .. } => break match exit {
                    Some(exit) => StreamEvent::Exited { exit },
                    None => closed("the process's output ended", false),
                },
                StreamItem::Lost(reason) => break closed(&reason, false),
            },
        }
    };
    sink.send(text(&last)).await.ok();
    let frame = CloseFrame {
        code: 1000,
        reason: "done".into(),
    };
    sink.send(Message::Close(Some(frame))).await.ok();
}

pub(super) fn closed(reason: &str, retry: bool) -> StreamEvent {
    StreamEvent::Closed {
        reason: reason.to_owned(),
        retry,
    }
}

pub(super) fn text(event: &StreamEvent) -> Message {
    Message::text(serde_json::to_string(event).unwrap_or_default())
}

/// Takes the viewer's frames until it leaves.
pub(super) async fn take_input(
    mut source: SplitStream<WebSocket>,
    guest: GuestHandle,
    process: u32,
    mut offset: u64,
    told: watch::Sender<u64>,
) {
    while let Some(Ok(message)) = source.next().await {
        match message {
            Message::Binary(bytes) => {
                let length = bytes.len() as u64;
                if guest.write_stdin(process, offset, bytes).await.is_ok() {
                    offset += length;
                }
            }
            Message::Text(text) => command(&guest, process, text.as_str(), &told).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

/// Carries out one command; what cannot be read is ignored, as newer clients may say more.
async fn command(guest: &GuestHandle, process: u32, text: &str, told: &watch::Sender<u64>) {
    let Ok(command) = serde_json::from_str::<StreamCommand>(text) else {
        return;
    };
    let result = match command {
        StreamCommand::Ack { up_to } => {
            told.send_if_modified(|known| {
                let is_news = up_to > *known;
                *known = up_to.max(*known);
                is_news
            });
            return;
        }
        StreamCommand::CloseStdin => guest.close_stdin(process).await,
        StreamCommand::Signal { signal } => guest.signal(process, signal, true).await,
        StreamCommand::Resize { cols, rows } => guest.resize(process, cols, rows).await,
    };
    if let Err(error) = result {
        tracing::debug!(%error, process, "a viewer's command failed");
    }
}
