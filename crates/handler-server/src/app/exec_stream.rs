//! A command's output as lines of JSON while it runs: `POST …/exec?stream=true`.
//!
//! Output is acknowledged to the guest only when it is [`LAG`] bytes old, so that a client whose connection broke,
//! even with the daemon, attaches to the process from the last offset it saw and loses nothing. What a client that
//! left early did not hear is kept as that of any process.

use crate::app::sandboxes::guest_error;
use crate::app::spool::Spools;
use crate::http::problem::ApiResult;
use base64::Engine as _;
use bytes::Bytes;
use handler_engine::UseGuard;
use handler_engine::guest::{GuestHandle, ProcessStream, StreamItem};
use handler_types::SandboxId;
use handler_types::api::{ExecEvent, ExecRequest};
use handler_types::guest::{Exit, Stream};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of output kept in the guest behind what was sent; well below its window.
const LAG: u64 = 256 * 1024;

/// Text cut at the borders of pieces, by stream.
#[derive(Default)]
struct Cut {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Cut {
    /// The event for a piece; an unfinished character waits for the rest.
    fn event(&mut self, stream: Stream, offset: u64, bytes: &[u8]) -> Option<ExecEvent> {
        let carry = match stream {
            Stream::Stderr => &mut self.stderr,
            Stream::Stdout | Stream::Pty => &mut self.stdout,
        };
        let mut all = std::mem::take(carry);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            Ok(_) => all.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Some(output(stream, offset, &all)),
        };
        *carry = all.split_off(whole);
        (!all.is_empty()).then(|| output(stream, offset, &all))
    }

    /// What never became a whole character.
    fn rest(&mut self, end: u64) -> Option<ExecEvent> {
        for (stream, carry) in [
            (Stream::Stdout, &mut self.stdout),
            (Stream::Stderr, &mut self.stderr),
        ] {
            if !carry.is_empty() {
                return Some(output(stream, end, &std::mem::take(carry)));
            }
        }
        None
    }
}

fn output(stream: Stream, end: u64, bytes: &[u8]) -> ExecEvent {
    let (text, base64) = match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => {
            let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
            (None, Some(base64))
        }
    };
    match stream {
        Stream::Stderr => ExecEvent::Stderr { text, base64, end },
        Stream::Stdout | Stream::Pty => ExecEvent::Stdout { text, base64, end },
    }
}

/// What has been said of a running command.
struct Running {
    guest: GuestHandle,
    stream: ProcessStream,
    process: u32,
    cut: Cut,
    end: u64,
    exit: Option<Exit>,
    began: Instant,
    /// The output ended; the exit is next.
    is_over: bool,
    /// The client was sent everything.
    is_told: bool,
    home: (SandboxId, Arc<Spools>),
    _in_use: UseGuard,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_told {
            let (guest, process) = (self.guest.clone(), self.process);
            handler_base::tasks::spawn_named("forget", async move {
                guest.forget(process).await.ok();
            });
        } else {
            let (id, spools) = &self.home;
            spools.begin(id, &self.guest, self.process);
        }
    }
}

/// Starts a command; its events as lines.
///
/// # Errors
/// As a buffered exec.
pub async fn stream(
    guest: GuestHandle,
    request: ExecRequest,
    in_use: UseGuard,
    home: (SandboxId, Arc<Spools>),
) -> ApiResult<impl futures::Stream<Item = Result<Bytes, std::convert::Infallible>> + Send> {
    let began = Instant::now();
    let view = super::exec::start_fed(&guest, request).await?;
    let stream = guest.attach(view.process, 0).await.map_err(guest_error)?;
    let first = line(&ExecEvent::Started {
        process: view.process,
        pid: view.pid,
    });
    let running = Running {
        exit: stream.info().exit,
        process: view.process,
        guest,
        stream,
        cut: Cut::default(),
        end: 0,
        began,
        is_over: false,
        is_told: false,
        home,
        _in_use: in_use,
    };
    let events = futures::stream::unfold((running, false), |(mut running, was_last)| async move {
        if was_last {
            // Asked for more: the last line was taken.
            running.told();
            return None;
        }
        let (event, is_last) = running.next().await;
        Some((Ok(line(&event)), (running, is_last)))
    });
    Ok(futures::StreamExt::chain(
        futures::stream::iter([Ok(first)]),
        events,
    ))
}

fn line(event: &ExecEvent) -> Bytes {
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

impl Running {
    /// The client has everything: nothing need be kept.
    fn told(&mut self) {
        self.is_told = true;
    }

    /// The next event, and whether it is the last.
    async fn next(&mut self) -> (ExecEvent, bool) {
        loop {
            if self.is_over {
                if let Some(rest) = self.cut.rest(self.end) {
                    return (rest, false);
                }
                return self.last().await;
            }
            match self.stream.next().await {
                StreamItem::Chunk {
                    offset,
                    stream,
                    bytes,
                } => {
                    self.end = offset + bytes.len() as u64;
                    self.stream.ack(self.end.saturating_sub(LAG));
                    if let Some(event) = self.cut.event(stream, self.end, &bytes) {
                        return (event, false);
                    }
                }
                StreamItem::Exited(exit) => self.exit = Some(exit),
                StreamItem::End { .. } => self.is_over = true,
                StreamItem::Lost(reason) => return (ExecEvent::Lost { reason }, true),
            }
        }
    }

    async fn last(&mut self) -> (ExecEvent, bool) {
        if self.exit.is_none() {
            let known = self.guest.process(self.process).await;
            self.exit = known.ok().and_then(|info| info.exit);
        }
        let Some(exit) = self.exit else {
            let reason = "the command's end is unknown".to_owned();
            return (ExecEvent::Lost { reason }, true);
        };
        let event = ExecEvent::Exit {
            exit,
            output_bytes: self.end,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        (event, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_cut_at_any_place_arrive_whole_and_other_bytes_as_base64() {
        let text = "aäb€c😀d";
        for at in 0..text.len() {
            let mut cut = Cut::default();
            let mut got = String::new();
            let (one, other) = text.as_bytes().split_at(at);
            for piece in [one, other] {
                if let Some(ExecEvent::Stdout {
                    text: Some(text), ..
                }) = cut.event(Stream::Stdout, 0, piece)
                {
                    got.push_str(&text);
                }
            }
            assert_eq!(got, text);
            assert!(cut.rest(0).is_none());
        }
        let mut cut = Cut::default();
        let Some(ExecEvent::Stderr {
            base64: Some(base64),
            ..
        }) = cut.event(Stream::Stderr, 3, b"a\xff\n")
        else {
            panic!("bytes");
        };
        assert_eq!(base64, "Yf8K");
        assert!(cut.event(Stream::Stdout, 1, b"\xe2\x82").is_none());
        assert!(cut.rest(3).is_some());
    }
}
