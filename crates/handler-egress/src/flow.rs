//! What was let through, until it ends: counted, and reported once when the last holder lets go of it.
//!
//! Invariant: whatever ends it (an end of either side, new rules, the sandbox going away, a task given up), one
//! `ended` event follows each `allowed` or `unlisted` one (a name that is only tolerated inside a tunnel is told as
//! `unlisted` too; its end is the tunnel's).

use crate::events::Happening;
use crate::sandbox::Sandbox;
use crate::share::Part;
use crate::traffic::Traffic;
use bytes::Bytes;
use handler_types::egress::{EgressDecision, EgressEnd};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// It was closed because new rules do not allow it any more.
pub(crate) const BY_POLICY: &str = "policy";

/// A tunnel or request under way.
#[derive(Debug)]
pub(crate) struct Flow {
    sandbox: Arc<Sandbox>,
    label: String,
    host: String,
    opened: u64,
    began: Instant,
    traffic: Arc<Traffic>,
    reason: OnceLock<String>,
}

impl Flow {
    /// Begins with the event number `opened`; `traffic` counts it.
    pub(crate) fn new(
        sandbox: Arc<Sandbox>,
        label: String,
        host: String,
        opened: u64,
        traffic: Arc<Traffic>,
    ) -> Arc<Self> {
        Arc::new(Self {
            sandbox,
            label,
            host,
            opened,
            began: Instant::now(),
            traffic,
            reason: OnceLock::new(),
        })
    }

    /// Its counters.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Says why it ends; the first word counts.
    pub(crate) fn closed(&self, reason: &str) {
        self.reason.get_or_init(|| reason.to_owned());
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let moved = self.traffic.read();
        let end = EgressEnd {
            opened: self.opened,
            out_bytes: moved.out_bytes,
            in_bytes: moved.in_bytes,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.sandbox.shared.events.report(Happening {
            reason: self.reason.get().map(String::as_str),
            end: Some(end),
            ..Happening::new(
                &self.sandbox.id,
                &self.label,
                EgressDecision::Ended,
                self.host.clone(),
            )
        });
    }
}

/// A response's body that holds its flow until it has been given whole or is given up.
#[derive(Debug)]
pub(crate) struct Tracked<B> {
    body: B,
    flow: Option<Arc<Flow>>,
    /// The request's part of what the sandbox may have under way.
    part: Option<Part>,
}

impl<B> Tracked<B> {
    /// Counts what `body` gives.
    pub(crate) fn new(body: B, flow: Option<Arc<Flow>>, part: Option<Part>) -> Self {
        Self { body, flow, part }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Tracked<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let data = frame
            .as_ref()
            .and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(data), Some(flow)) = (data, &self.flow) {
            flow.traffic.received(data.len());
        }
        if frame.is_none() {
            self.flow = None;
            self.part = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
