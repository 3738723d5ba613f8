//! One viewer of a command whose output is kept: first what is on disk, then what comes.
//!
//! Output is acknowledged to the guest once it is kept; what is not (the limits) only when the socket took it, or
//! the viewer said so. A viewer that does not read stalls the command, not the daemon, and nothing is dropped.

use super::processes::AckBy;
use super::stream::{closed, take_input, text};
use crate::app::exec;
use crate::app::spool::{Spool, Turn};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::{BufMut as _, BytesMut};
use futures::SinkExt as _;
use futures::StreamExt as _;
use futures::stream::SplitSink;
use handler_engine::guest::{GuestHandle, ProcessStream, StreamItem};
use handler_types::api::StreamEvent;
use handler_types::guest::{ProcessInfo, Stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a viewer is about.
#[derive(Debug)]
pub(super) struct Viewing {
    pub(super) spool: Arc<Spool>,
    pub(super) guest: GuestHandle,
    pub(super) info: ProcessInfo,
    /// First byte wanted; none: the first there is.
    pub(super) from: Option<u64>,
    pub(super) ack: AckBy,
    pub(super) shutdown: CancellationToken,
}

/// Runs until the command's output ends, the viewer leaves, a newer one comes or the daemon stops. Afterwards the
/// output is kept without a viewer.
pub(super) async fn run(socket: WebSocket, viewing: Viewing) {
    let (mut sink, source) = socket.split();
    let start = viewing.spool.start();
    let from = viewing.from.unwrap_or(start).max(start);
    let (told, heard) = watch::channel(from);
    let (process, received) = (viewing.info.process, viewing.info.received);
    let input = take_input(source, viewing.guest.clone(), process, received, told);
    let last = tokio::select! {
        () = input => None,
        last = show(&mut sink, &viewing, from, heard) => last,
    };
    let (spool, guest) = (viewing.spool, viewing.guest);
    handler_base::tasks::spawn_named("keep output", spool.keep(guest, process));
    if let Some(last) = last {
        let say = async {
            sink.send(text(&last)).await.ok();
            let frame = CloseFrame {
                code: 1000,
                reason: "done".into(),
            };
            sink.send(Message::Close(Some(frame))).await.ok();
        };
        // One that does not read does not hold us up.
        tokio::time::timeout(FAREWELL, say).await.ok();
    }
}

/// Longest time the last words may take.
const FAREWELL: Duration = Duration::from_secs(10);

type Sink = SplitSink<WebSocket, Message>;

/// Sends one piece; none: the socket broke.
async fn send(sink: &mut Sink, stream: Stream, bytes: &[u8]) -> Option<()> {
    let mut frame = BytesMut::with_capacity(bytes.len() + 1);
    frame.put_u8(stream as u8);
    frame.extend_from_slice(bytes);
    sink.send(Message::Binary(frame.freeze())).await.ok()
}

/// Sends everything; the last event, none when the socket broke.
async fn show(
    sink: &mut Sink,
    viewing: &Viewing,
    from: u64,
    heard: watch::Receiver<u64>,
) -> Option<StreamEvent> {
    sink.send(text(&attached(viewing, from))).await.ok()?;
    let (spool, process) = (&viewing.spool, viewing.info.process);
    let turn = match spool.take_over(&viewing.guest, process).await {
        Ok(turn) => turn,
        Err(error) => return Some(closed(&error.to_string(), error.is_lost())),
    };
    let Turn {
        stream, mut claim, ..
    } = turn;
    tokio::select! {
        () = claim.lost() => Some(closed("someone else reads this process now", false)),
        () = viewing.shutdown.cancelled() => {
            Some(closed("the daemon is stopping; attach again", true))
        }
        last = pass(sink, viewing, stream, from, heard) => last,
    }
}

fn attached(viewing: &Viewing, offset: u64) -> StreamEvent {
    StreamEvent::Attached {
        process: exec::view(&viewing.info),
        offset,
    }
}

/// Sends what is kept; the offset behind it, or the last event.
async fn send_kept(
    sink: &mut Sink,
    viewing: &Viewing,
    mut at: u64,
) -> Result<u64, Option<StreamEvent>> {
    while at < viewing.spool.end() {
        match viewing.spool.read(at) {
            Ok(Some((stream, bytes))) => {
                send(sink, stream, &bytes).await.ok_or(None)?;
                at += bytes.len() as u64;
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "kept output cannot be read");
                return Err(Some(closed("the kept output cannot be read", false)));
            }
        }
    }
    Ok(at)
}

/// Sends what is kept, then what comes.
async fn pass(
    sink: &mut Sink,
    viewing: &Viewing,
    mut output: ProcessStream,
    from: u64,
    mut heard: watch::Receiver<u64>,
) -> Option<StreamEvent> {
    let mut at = match send_kept(sink, viewing, from).await {
        Ok(at) => at,
        Err(last) => return last,
    };
    let mut exit = viewing.info.exit.or(output.info().exit);
    loop {
        let item = tokio::select! {
            Ok(()) = heard.changed(), if viewing.ack == AckBy::Client => {
                // What was not sent cannot have been seen, whatever the viewer says.
                let up_to = *heard.borrow_and_update();
                output.ack(up_to.min(at));
                continue;
            }
            item = output.next() => item,
        };
        match item {
            StreamItem::Chunk {
                offset,
                stream,
                bytes,
            } => {
                let behind = offset + bytes.len() as u64;
                output.ack(viewing.spool.add(offset, stream, &bytes));
                if behind <= at {
                    continue;
                }
                if offset > at {
                    // Output was lost to the limits while nobody listened: told by the new offset.
                    sink.send(text(&attached(viewing, offset))).await.ok()?;
                    at = offset;
                }
                let known = usize::try_from(at - offset).unwrap_or(bytes.len());
                send(sink, stream, &bytes[known..]).await?;
                at = behind;
                if viewing.ack == AckBy::Daemon {
                    output.ack(at);
                }
            }
            StreamItem::Exited(how) => exit = Some(how),
            StreamItem::End { .. } => {
                return Some(match exit {
                    Some(exit) => StreamEvent::Exited { exit },
                    None => closed("the process's output ended", false),
                });
            }
            StreamItem::Lost(reason) => return Some(closed(&reason, false)),
        }
    }
}
