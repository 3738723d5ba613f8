//! One connection to a port inside.

use super::limits::{MOST, PER_SECOND, Refused};
use crate::app::sandboxes::{engine_error, guest_error};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::UseGuard;
use handler_engine::guest::{GuestCallError, PortStream};
use handler_types::guest::GuestErrorCode;
use handler_types::{ProblemCode, SandboxId};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

/// A connection to a port inside. While it lives the sandbox is in use.
#[derive(Debug)]
pub struct Dialled {
    stream: PortStream,
    _slot: OwnedSemaphorePermit,
    _use: UseGuard,
}

/// Connects to a port of a sandbox, waking it first when its idle policy put it to rest.
///
/// # Errors
/// 404 no such sandbox, 409 it rests for another reason, 429 too many or too fast, 502 nothing listens on the port.
pub async fn dial(app: &App, id: &SandboxId, port: u16) -> ApiResult<Dialled> {
    let slot = app.ports.gates.enter(id, Instant::now());
    let slot = slot.map_err(refused)?;
    let in_use = app.engine.hold(id).map_err(engine_error)?;
    let guest = app.engine.awake_guest(id).await.map_err(engine_error)?;
    let stream = guest.connect_port(port).await.map_err(|e| match e {
        GuestCallError::Refused(e) if e.code == GuestErrorCode::NotFound => not_open(port),
        other => guest_error(other),
    })?;
    Ok(Dialled {
        stream,
        _slot: slot,
        _use: in_use,
    })
}

fn not_open(port: u16) -> ApiError {
    ApiError::new(
        ProblemCode::BackendFailed,
        format!(
            "port {port} is not open in the sandbox: nothing listens on it at 127.0.0.1 or ::1; start the program \
             that is to answer"
        ),
    )
}

fn refused(why: Refused) -> ApiError {
    let text = match why {
        Refused::TooMany => format!("the sandbox has {MOST} connections to its ports; close some"),
        Refused::TooFast => format!("more than {PER_SECOND} new connections a second; slow down"),
    };
    let mut error = ApiError::new(ProblemCode::TooMany, text);
    error.0.retry_after_seconds = Some(1);
    error
}

impl AsyncRead for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialled {
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
}
