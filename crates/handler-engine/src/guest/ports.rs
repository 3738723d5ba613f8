//! TCP connections to ports inside, as ordinary byte streams.
//!
//! A connection is numbered like a process: it survives a broken link to the guest, and a reader that does not
//! take stalls its own connection only. Invariant: dropping the stream ends the connection.

use super::error::GuestCallError;
use super::handle::GuestHandle;
use super::output::{ProcessStream, StreamItem};
use bytes::{Buf as _, Bytes};
use futures::future::BoxFuture;
use handler_types::guest::{MAX_CHUNK, Op, ProcessNumber, Reply};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// What the reading side does.
enum Reading {
    /// Nobody waits.
    Idle(ProcessStream),
    /// For the next item.
    Waiting(BoxFuture<'static, (ProcessStream, StreamItem)>),
    /// Nothing more comes.
    Over,
}

/// What the writing side does.
enum Writing {
    Idle,
    /// Bytes taken that the guest has no room for yet. A task of its own, so that they go on their way even
    /// when the caller only reads from here on.
    Busy(oneshot::Receiver<Result<(), GuestCallError>>),
}

/// A TCP connection to a port inside. Shutting it down closes the direction to the server.
pub struct PortStream {
    handle: GuestHandle,
    process: ProcessNumber,
    reading: Reading,
    /// Taken from the link and not read yet.
    piece: Bytes,
    was_reset: bool,
    writing: Writing,
    /// Offset of the next byte to write.
    written: u64,
    is_shut: bool,
}

impl std::fmt::Debug for PortStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortStream")
            .field("process", &self.process)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl GuestHandle {
    /// Connects to a TCP port inside, at 127.0.0.1 or `::1`.
    ///
    /// # Errors
    /// [`GuestCallError`]; `Refused` with `NotFound` when nothing listens there.
    pub async fn connect_port(&self, port: u16) -> Result<PortStream, GuestCallError> {
        let key = format!("port-{}", handler_base::random::hex(8));
        let op = Op::Connect { port, key };
        let process = match self.call(op, self.timing().call).await? {
            Reply::Started { process } => process,
            _ => return Err(self.unexpected()),
        };
        // Made first, so that giving up from here on ends the connection.
        self.slots().input_or_new(process.process, process.received);
        let mut stream = PortStream {
            handle: self.clone(),
            process: process.process,
            reading: Reading::Over,
            piece: Bytes::new(),
            was_reset: false,
            writing: Writing::Idle,
            written: process.received,
            is_shut: false,
        };
        stream.reading = Reading::Idle(self.attach(process.process, 0).await?);
        Ok(stream)
    }
}

impl PortStream {
    /// Waits for the next piece; leaves it in `piece`. An empty one is the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut waiting = match std::mem::replace(&mut self.reading, Reading::Over) {
                Reading::Over => return Poll::Ready(Ok(())),
                Reading::Waiting(waiting) => waiting,
                Reading::Idle(mut stream) => Box::pin(async move {
                    let item = stream.next().await;
                    (stream, item)
                }),
            };
            let Poll::Ready((mut stream, item)) = waiting.as_mut().poll(cx) else {
                self.reading = Reading::Waiting(waiting);
                return Poll::Pending;
            };
            match item {
                StreamItem::Chunk { offset, bytes, .. } => {
                    stream.ack(offset + bytes.len() as u64);
                    self.reading = Reading::Idle(stream);
                    self.piece = bytes;
                    return Poll::Ready(Ok(()));
                }
                StreamItem::Exited(exit) => {
                    self.was_reset |= exit.code != 0;
                    self.reading = Reading::Idle(stream);
                }
                StreamItem::End { .. } if self.was_reset => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                StreamItem::End { .. } => return Poll::Ready(Ok(())),
                StreamItem::Lost(reason) => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        reason,
                    )));
                }
            }
        }
    }

    /// Waits until what was taken before is on its way.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Writing::Busy(busy) = &mut self.writing {
            let result = ready!(Pin::new(busy).poll(cx));
            self.writing = Writing::Idle;
            result
                .map_err(io::Error::other)?
                .map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sets work of the writing side going; most is done at once.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        mut work: BoxFuture<'static, Result<(), GuestCallError>>,
    ) -> io::Result<()> {
        match work.as_mut().poll(cx) {
            Poll::Ready(result) => {
                result.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error))
            }
            Poll::Pending => {
                let (mut told, result) = oneshot::channel();
                handler_base::tasks::spawn_named("write to a port", async move {
                    tokio::select! {
                        result = work => { told.send(result).ok(); }
                        // The stream was dropped.
                        () = told.closed() => {}
                    }
                });
                self.writing = Writing::Busy(result);
                Ok(())
            }
        }
    }
}

impl AsyncRead for PortStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.piece.is_empty() {
            ready!(self.poll_piece(cx))?;
        }
        let count = self.piece.len().min(buf.remaining());
        buf.put_slice(&self.piece[..count]);
        self.piece.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(cx))?;
        if self.is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let bytes = Bytes::copy_from_slice(&buf[..buf.len().min(MAX_CHUNK)]);
        let (count, offset) = (bytes.len(), self.written);
        self.written += count as u64;
        let (handle, process) = (self.handle.clone(), self.process);
        let work = async move { handle.write_stdin(process, offset, bytes).await };
        self.begin(cx, Box::pin(work))?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(cx))?;
        if !self.is_shut {
            self.is_shut = true;
            let (handle, process) = (self.handle.clone(), self.process);
            let work = async move {
                match handle.close_stdin(process).await {
                    // Over already.
                    Err(GuestCallError::Refused(_)) => Ok(()),
                    result => result,
                }
            };
            self.begin(cx, Box::pin(work))?;
        }
        self.poll_written(cx)
    }
}

impl Drop for PortStream {
    fn drop(&mut self) {
        self.writing = Writing::Idle;
        self.reading = Reading::Over;
        self.handle.hang_up(self.process);
    }
}
