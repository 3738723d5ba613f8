//! One viewer of a process: output to the socket, input and commands from it.
//!
//! Output is acknowledged to the guest only after the socket took it: a viewer that does not read
//! stalls the process, not the daemon, and nothing is dropped.

use crate::app::exec;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::{BufMut as _, BytesMut};
use futures::stream::SplitStream;
use futures::{SinkExt as _, StreamExt as _};
use handler_engine::guest::{GuestHandle, ProcessStream, StreamItem};
use handler_types::api::{StreamCommand, StreamEvent};
use handler_types::guest::ProcessInfo;
use tokio_util::sync::CancellationToken;

/// Runs until the process's output ends, the viewer leaves or the daemon stops.
pub async fn run(
    socket: WebSocket,
    guest: GuestHandle,
    info: ProcessInfo,
    mut output: ProcessStream,
    from: u64,
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
    let input = take_input(source, guest, process, info.received);
    tokio::pin!(input);
    let mut exit = info.exit;
    let last = loop {
        tokio::select! {
            () = shutdown.cancelled() => break closed("the daemon is stopping; attach again"),
            () = &mut input => return,
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
                    output.ack(end);
                }
                StreamItem::Exited(how) => exit = Some(how),
                StreamItem::End { .. } => break match exit {
                    Some(exit) => StreamEvent::Exited { exit },
                    None => closed("the process's output ended"),
                },
                StreamItem::Lost(reason) => break closed(&reason),
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

fn closed(reason: &str) -> StreamEvent {
    StreamEvent::Closed {
        reason: reason.to_owned(),
    }
}

fn text(event: &StreamEvent) -> Message {
    Message::text(serde_json::to_string(event).unwrap_or_default())
}

/// Takes the viewer's frames until it leaves.
async fn take_input(
    mut source: SplitStream<WebSocket>,
    guest: GuestHandle,
    process: u32,
    mut offset: u64,
) {
    while let Some(Ok(message)) = source.next().await {
        match message {
            Message::Binary(bytes) => {
                let length = bytes.len() as u64;
                if guest.write_stdin(process, offset, bytes).await.is_ok() {
                    offset += length;
                }
            }
            Message::Text(text) => command(&guest, process, text.as_str()).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

/// Carries out one command; what cannot be read is ignored, as newer clients may say more.
async fn command(guest: &GuestHandle, process: u32, text: &str) {
    let Ok(command) = serde_json::from_str::<StreamCommand>(text) else {
        return;
    };
    let result = match command {
        StreamCommand::CloseStdin => guest.close_stdin(process).await,
        StreamCommand::Signal { signal } => guest.signal(process, signal, true).await,
        StreamCommand::Resize { cols, rows } => guest.resize(process, cols, rows).await,
    };
    if let Err(error) = result {
        tracing::debug!(%error, process, "a viewer's command failed");
    }
}
