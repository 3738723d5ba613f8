//! Byte streams of the API: TCP to a port inside, SSH. Binary frames are bytes, a text frame ends a direction.

use crate::error::ClientError;
use crate::transport::{Client, encode};
use crate::ws::Socket;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use handler_types::port::TunnelWord;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;

/// Bytes read at once, the most of one message.
const BLOCK: usize = 64 * 1024;
/// Close code of a tunnel that ended well.
const DONE: u16 = 1000;

/// A byte stream through the daemon.
#[expect(missing_debug_implementations, reason = "the stream inside has none")]
pub struct Tunnel(Socket);

impl Client {
    /// Connects to a port inside a sandbox.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal (nothing listens, no such sandbox) comes as its problem.
    pub async fn connect_port(&self, id: &str, port: u16) -> Result<Tunnel, ClientError> {
        let path = format!("/v1/sandboxes/{}/connect/{port}", encode(id));
        Ok(Tunnel(self.socket(&path, "tcp.v1").await?))
    }

    /// Opens an SSH connection to a sandbox; the bytes are the SSH protocol's.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ssh(&self, id: &str) -> Result<Tunnel, ClientError> {
        let path = format!("/v1/sandboxes/{}/ssh", encode(id));
        Ok(Tunnel(self.socket(&path, "ssh.v1").await?))
    }
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Broken(error.into())
}

impl Tunnel {
    /// Carries `reader` and `writer` through the tunnel until both directions ended.
    ///
    /// # Errors
    /// [`ClientError::Broken`] when the tunnel, `reader` or `writer` broke.
    pub async fn carry<R, W>(self, mut reader: R, mut writer: W) -> Result<(), ClientError>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (mut sink, mut source) = self.0.into_inner().split();
        let outward = async {
            let mut block = vec![0; BLOCK];
            loop {
                let count = reader.read(&mut block).await.map_err(broken)?;
                let message = match count {
                    0 => Message::text(serde_json::to_string(&TunnelWord::Eof).map_err(broken)?),
                    _ => Message::Binary(Bytes::copy_from_slice(&block[..count])),
                };
                sink.send(message).await.map_err(broken)?;
                if count == 0 {
                    // The other direction goes on.
                    return std::future::pending().await;
                }
            }
        };
        let inward = async {
            loop {
                match source.next().await {
                    Some(Ok(Message::Binary(bytes))) => {
                        writer.write_all(&bytes).await.map_err(broken)?;
                        writer.flush().await.map_err(broken)?;
                    }
                    Some(Ok(Message::Text(_))) => writer.shutdown().await.map_err(broken)?,
                    Some(Ok(Message::Close(frame))) => {
                        return match frame {
                            Some(frame) if u16::from(frame.code) != DONE => {
                                Err(broken(io::Error::other(frame.reason.to_string())))
                            }
                            _ => Ok(()),
                        };
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(broken(error)),
                    None => return Err(broken(io::Error::from(io::ErrorKind::UnexpectedEof))),
                }
            }
        };
        tokio::select! {
            done = inward => done,
            failed = outward => failed,
        }
    }
}
