//! An open connection as a byte stream: the program's end is the kernel's, this one is copied to the filter.

use crate::driver::Shared;
use crate::flow::FlowId;
use smoltcp::socket::tcp::{RecvError, State};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module. Dropping it before both directions ended cuts the connection.
#[derive(Debug)]
pub(crate) struct Stream {
    shared: Rc<Shared>,
    id: FlowId,
}

impl Stream {
    pub(crate) fn new(shared: Rc<Shared>, id: FlowId) -> Self {
        Self { shared, id }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stack = self.shared.stack.borrow_mut();
        let Some(socket) = stack.socket(self.id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        if matches!(socket.state(), State::Listen | State::SynReceived) {
            socket.register_recv_waker(context.waker());
            return Poll::Pending;
        }
        match socket.recv_slice(into.initialize_unfilled()) {
            Ok(0) if into.remaining() > 0 => {
                socket.register_recv_waker(context.waker());
                Poll::Pending
            }
            Ok(count) => {
                into.advance(count);
                // The program may be waiting for room.
                self.shared.wake.notify_one();
                Poll::Ready(Ok(()))
            }
            Err(RecvError::Finished) => Poll::Ready(Ok(())),
            Err(RecvError::InvalidState) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut stack = self.shared.stack.borrow_mut();
        let Some(socket) = stack.socket(self.id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        let is_opening = matches!(socket.state(), State::Listen | State::SynReceived);
        if !is_opening && !socket.may_send() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match socket.send_slice(bytes) {
            Ok(count) if count > 0 || bytes.is_empty() => {
                self.shared.wake.notify_one();
                Poll::Ready(Ok(count))
            }
            _ => {
                socket.register_send_waker(context.waker());
                Poll::Pending
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends this direction once everything written is out; the other one goes on.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(socket) = self.shared.stack.borrow_mut().socket(self.id) {
            socket.close();
        }
        self.shared.wake.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.stack.borrow_mut().let_go(self.id);
        self.shared.wake.notify_one();
    }
}
