//! A stream with bytes put back in front of it.

use bytes::{Buf as _, Bytes, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// First the bytes in front, then the stream.
#[derive(Debug)]
pub(crate) struct Rewind<S> {
    front: Bytes,
    stream: S,
}

impl<S: AsyncRead + Unpin> Rewind<S> {
    /// Puts bytes in front.
    pub(crate) fn new(front: Bytes, stream: S) -> Self {
        Self { front, stream }
    }

    /// The next byte, which stays to be read; `None` at the end.
    pub(crate) async fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.front.is_empty() {
            let mut read = BytesMut::with_capacity(1024);
            self.stream.read_buf(&mut read).await?;
            self.front = read.freeze();
        }
        Ok(self.front.first().copied())
    }

    /// Whether the next bytes are all of `wanted`; they stay to be read.
    pub(crate) async fn begins_with(&mut self, wanted: &[u8]) -> io::Result<bool> {
        loop {
            let length = self.front.len().min(wanted.len());
            if self.front[..length] != wanted[..length] {
                return Ok(false);
            }
            if length == wanted.len() {
                return Ok(true);
            }
            let mut read = BytesMut::from(&self.front[..]);
            if self.stream.read_buf(&mut read).await? == 0 {
                return Ok(false);
            }
            self.front = read.freeze();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewind<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.front.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.front.len().min(buf.remaining());
        buf.put_slice(&self.front[..count]);
        self.front.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewind<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
