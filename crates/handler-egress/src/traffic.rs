//! What goes through the filter for a sandbox, counted where its connections come in: heads, bodies and tunnels alike.

use handler_types::observe::EgressTraffic;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The counters of one sandbox, from its first settings on.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    out: AtomicU64,
    back: AtomicU64,
    connections: AtomicU64,
}

impl Traffic {
    /// A connection was accepted.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes came from the sandbox.
    pub(crate) fn sent(&self, bytes: usize) {
        self.out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes went to the sandbox.
    pub(crate) fn received(&self, bytes: usize) {
        self.back.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The figures now.
    pub(crate) fn read(&self) -> EgressTraffic {
        EgressTraffic {
            out_bytes: self.out.load(Ordering::Relaxed),
            in_bytes: self.back.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

/// A client's connection that counts.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: S,
    traffic: Arc<Traffic>,
    also: Option<Arc<Traffic>>,
}

impl<S> Counted<S> {
    /// Counts what goes over `stream`.
    pub(crate) fn new(stream: S, traffic: Arc<Traffic>) -> Self {
        Self {
            stream,
            traffic,
            also: None,
        }
    }

    /// Counts what comes from now on there too.
    pub(crate) fn also(mut self, traffic: Arc<Traffic>) -> Self {
        self.also = Some(traffic);
        self
    }

    fn sent(&self, bytes: usize) {
        self.traffic.sent(bytes);
        if let Some(also) = &self.also {
            also.sent(bytes);
        }
    }

    fn received(&self, bytes: usize) {
        self.traffic.received(bytes);
        if let Some(also) = &self.also {
            also.received(bytes);
        }
    }

    /// The connection itself; nobody counts then.
    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.sent(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.received(written);
        Poll::Ready(Ok(written))
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
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.received(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn both_directions_are_counted_apart() {
        let traffic = Arc::new(Traffic::default());
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Counted::new(near, traffic.clone());
        traffic.connected();
        far.write_all(b"from inside").await.expect("write");
        near.read_exact(&mut [0; 11]).await.expect("read");
        near.write_all(b"back").await.expect("write");
        let seen = traffic.read();
        assert_eq!(
            (seen.out_bytes, seen.in_bytes, seen.connections),
            (11, 4, 1)
        );
    }
}
