//! A byte stream over a WebSocket: binary frames are bytes, a text frame says that a direction ended.
//!
//! Neither side is read faster than the other takes it. A side that breaks (not: ends) breaks the other.

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use handler_types::port::TunnelWord;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Longest message taken, bytes.
const LONGEST: usize = 1024 * 1024;
/// Bytes read at once, the most of one message sent.
const BLOCK: usize = 64 * 1024;

/// Close code: all was said.
const DONE: u16 = 1000;
/// Close code: the daemon is ending.
const GOING_AWAY: u16 = 1001;
/// Close code: what the tunnel leads to broke.
const BROKEN: u16 = 1011;

/// Takes the protocol and bounds the messages.
pub(super) fn accept(upgrade: WebSocketUpgrade, protocol: &'static str) -> WebSocketUpgrade {
    upgrade.protocols([protocol]).max_message_size(LONGEST)
}

/// Carries bytes until both directions ended, one broke, the client left or the daemon stops.
pub(super) async fn carry<S>(socket: WebSocket, stream: S, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite,
{
    let (mut sink, source) = socket.split();
    let (reader, writer) = tokio::io::split(stream);
    let (ended, has_ended) = oneshot::channel();
    let inward = take(source, writer, ended);
    let outward = async {
        give(reader, &mut sink).await?;
        // The client may have more to say.
        has_ended.await.ok();
        Ok::<_, io::Error>(())
    };
    let (code, reason) = tokio::select! {
        () = shutdown.cancelled() => (GOING_AWAY, "the daemon is stopping".to_owned()),
        taken = inward => match taken {
            Ok(()) => return,
            Err(error) => (BROKEN, error.to_string()),
        },
        given = outward => match given {
            Ok(()) => (DONE, "done".to_owned()),
            Err(error) => (BROKEN, error.to_string()),
        },
    };
    let reason: String = reason.chars().take(30).collect();
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    sink.send(Message::Close(Some(frame))).await.ok();
}

/// Takes what the client sends until it leaves.
async fn take<W: AsyncWrite + Unpin>(
    mut source: SplitStream<WebSocket>,
    mut writer: W,
    ended: oneshot::Sender<()>,
) -> io::Result<()> {
    let mut ended = Some(ended);
    while let Some(Ok(message)) = source.next().await {
        match message {
            Message::Binary(bytes) if ended.is_some() => {
                writer.write_all(&bytes).await?;
                writer.flush().await?;
            }
            Message::Text(text) => {
                let word = serde_json::from_str(&text);
                if let (Ok(TunnelWord::Eof), Some(ended)) = (word, ended.take()) {
                    writer.shutdown().await?;
                    ended.send(()).ok();
                }
            }
            Message::Close(_) => return Ok(()),
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
    }
    Ok(())
}

/// Gives the client what comes, and says when that ended.
async fn give<R: AsyncRead + Unpin>(
    mut reader: R,
    sink: &mut SplitSink<WebSocket, Message>,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        let count = reader.read(&mut block).await?;
        let message = match count {
            0 => Message::text(serde_json::to_string(&TunnelWord::Eof).unwrap_or_default()),
            _ => Message::Binary(Bytes::copy_from_slice(&block[..count])),
        };
        sink.send(message).await.map_err(io::Error::other)?;
        if count == 0 {
            return Ok(());
        }
    }
}
