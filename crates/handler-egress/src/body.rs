//! A body that is swapped while it streams. Frames keep their order, nothing waits but the end that could
//! begin a needle; a length that is promised stays true, and where it could not it is not promised.

use crate::coding::{Coding, Corrupt};
use crate::recode::{Recode, Step};
use crate::report::RequestReport;
use crate::scan::{Leak, Scanner};
use crate::share::Part;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Steps of undoing a coding without anything to pass on, after which others get their turn.
const STEPS: usize = 16;

/// Bodies of requests as they go out.
pub(crate) type RequestBody = Rewritten<Incoming>;
/// Bodies of responses as they go back: our own, or one that streams.
pub(crate) type ResponseBody = Either<Full<Bytes>, Rewritten<Incoming>>;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// A phantom was found where it must not be.
    #[error("the body held a stand-in that is not for this destination")]
    Leak,
    /// Its content coding cannot be undone.
    #[error(transparent)]
    Coding(#[from] Corrupt),
    /// The peer broke off.
    #[error("the peer broke off")]
    Broken(#[from] hyper::Error),
}

/// A body and what is swapped in it.
#[derive(Debug)]
pub(crate) struct Rewritten<B> {
    inner: B,
    scanner: Scanner,
    recode: Option<Recode>,
    report: Option<Arc<RequestReport>>,
    trailers: Option<HeaderMap>,
    /// Whether everything has been given but the trailers.
    ended: bool,
}

impl<B: Body> Rewritten<B> {
    /// Swaps in `inner`; what is found is told to `report`.
    pub(crate) fn new(inner: B, scanner: Scanner, report: Option<Arc<RequestReport>>) -> Self {
        Self {
            inner,
            scanner,
            recode: None,
            report,
            trailers: None,
            ended: false,
        }
    }

    /// Undoes a coding before swapping, and does it again if `again`.
    pub(crate) fn decode(&mut self, coding: Coding, again: bool, room: Part) {
        self.recode = Some(Recode::new(coding, again, room));
    }

    /// Whether the length stays what it was.
    fn keeps_length(&self) -> bool {
        self.recode.is_none() && self.scanner.needles().keeps_length()
    }

    /// Tells what was found; a leak ends the body.
    fn settle(&mut self, found: &[usize], bytes: Result<Bytes, Leak>) -> Result<Bytes, BodyError> {
        match bytes {
            Ok(bytes) => {
                if let Some(report) = &self.report {
                    report.given(found);
                }
                Ok(bytes)
            }
            Err(Leak(secret)) => {
                if let Some(report) = &self.report {
                    report.leaked(secret, "body");
                }
                Err(BodyError::Leak)
            }
        }
    }

    fn push(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        let mut found = Vec::new();
        let bytes = self.scanner.push(data, &mut found);
        self.settle(&found, bytes)
    }

    fn finish(&mut self) -> Result<Bytes, BodyError> {
        self.ended = true;
        let mut found = Vec::new();
        let bytes = self.scanner.finish(&mut found);
        self.settle(&found, bytes)
    }

    fn swap_trailers(&mut self, mut trailers: HeaderMap) -> Result<HeaderMap, BodyError> {
        let mut found = Vec::new();
        let swapped = crate::headers::rewrite(&mut trailers, self.scanner.needles(), &mut found);
        self.settle(&found, swapped.map(|()| Bytes::new()))?;
        Ok(trailers)
    }

    /// One step of undoing a coding, swapping and doing it again; `None` when bytes are needed for it.
    fn step(&mut self) -> Result<Option<Bytes>, BodyError> {
        let Some(recode) = &mut self.recode else {
            return Ok(None);
        };
        let (text, last) = match recode.step()? {
            Step::Hungry => return Ok(None),
            Step::Text(text) => (self.push(text)?, false),
            Step::End => (self.finish()?, true),
        };
        match &mut self.recode {
            Some(recode) => Ok(Some(recode.pass(text, last)?)),
            None => Ok(Some(text)),
        }
    }

    /// What can be given without more of `inner`; `None` if nothing can.
    fn ready(&mut self) -> Result<Option<Bytes>, BodyError> {
        for _ in 0..STEPS {
            match self.step()? {
                Some(bytes) if bytes.is_empty() && !self.ended => {}
                other => return Ok(other),
            }
        }
        Ok(Some(Bytes::new()))
    }

    fn take_in(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        if let Some(report) = &self.report {
            report.sent(data.len());
        }
        match &mut self.recode {
            None => self.push(data),
            Some(recode) => {
                recode.push(&data);
                Ok(Bytes::new())
            }
        }
    }

    fn close(&mut self, trailers: Option<HeaderMap>) -> Result<Bytes, BodyError> {
        self.trailers = trailers;
        match &mut self.recode {
            None => self.finish(),
            Some(recode) => {
                recode.close();
                Ok(Bytes::new())
            }
        }
    }

    /// While nothing comes, what was done so far must not wait inside the coding.
    fn flush(&mut self) -> Result<Bytes, BodyError> {
        match &mut self.recode {
            None => Ok(Bytes::new()),
            Some(recode) => Ok(recode.flush()?),
        }
    }

    /// After an error nothing more is given.
    fn fail(&mut self, error: BodyError) -> BodyError {
        self.ended = true;
        self.trailers = None;
        self.recode = None;
        if let (BodyError::Coding(_), Some(report)) = (&error, &self.report) {
            report.undecodable();
        }
        error
    }
}

impl<B> Rewritten<B>
where
    B: Body<Data = Bytes> + Unpin,
    BodyError: From<B::Error>,
{
    /// The next bytes, or none yet although something has happened, or the end.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(ready) = self.ready().transpose() {
            if matches!(&ready, Ok(bytes) if bytes.is_empty() && !self.ended) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(ready));
        }
        let bytes = match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Pending => match self.flush() {
                Ok(bytes) if bytes.is_empty() => return Poll::Pending,
                flushed => flushed,
            },
            Poll::Ready(None) => self.close(None),
            Poll::Ready(Some(Err(error))) => Err(error.into()),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => self.take_in(data),
                Err(frame) => self.close(frame.into_trailers().ok()),
            },
        };
        Poll::Ready(Some(bytes))
    }
}

impl<B> Body for Rewritten<B>
where
    B: Body<Data = Bytes> + Unpin,
    BodyError: From<B::Error>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            match std::task::ready!(this.poll_bytes(cx)) {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Err(error)) => return Poll::Ready(Some(Err(this.fail(error)))),
                None => break,
            }
        }
        let Some(trailers) = this.trailers.take() else {
            return Poll::Ready(None);
        };
        match this.swap_trailers(trailers) {
            Ok(trailers) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(this.fail(error)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let empty = self.recode.is_none() && self.scanner.held() == 0 && self.inner.is_end_stream();
        self.trailers.is_none() && (self.ended || empty)
    }

    fn size_hint(&self) -> SizeHint {
        if !self.keeps_length() && !self.is_end_stream() {
            return SizeHint::default();
        }
        let held = self.scanner.held() as u64;
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Needles;
    use crate::settings::{Rules, tests::settings};
    use crate::target::Target;
    use http_body_util::{BodyExt as _, StreamBody};
    use std::collections::VecDeque;

    fn scanner() -> Scanner {
        let secrets = [("path", "phantom-1234", "the-value-99", "a.com:443")];
        let rules = Arc::new(Rules::new(settings(&secrets), 1).expect("settings").0);
        let target = Target::parse("a.com:443", None).expect("target");
        Scanner::new(Needles::for_response(rules, &target))
    }

    fn body(
        frames: Vec<Frame<Bytes>>,
    ) -> Rewritten<impl Body<Data = Bytes, Error = hyper::Error> + Unpin> {
        let frames = frames
            .into_iter()
            .map(Ok::<_, hyper::Error>)
            .collect::<VecDeque<_>>();
        Rewritten::new(
            StreamBody::new(futures::stream::iter(frames)),
            scanner(),
            None,
        )
    }

    #[tokio::test]
    async fn what_was_held_back_comes_before_the_trailers_and_these_are_masked_too() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-key", "the-value-99".parse().expect("header"));
        let whole = body(vec![
            Frame::data(Bytes::from_static(b"a the-val")),
            Frame::trailers(trailers),
        ])
        .collect()
        .await
        .expect("body");
        let key = whole.trailers().and_then(|trailers| trailers.get("x-key"));
        assert_eq!(key.expect("trailer"), "phantom-1234");
        assert_eq!(whole.to_bytes(), "a the-val");
    }

    #[tokio::test]
    async fn the_promised_length_counts_what_is_held() {
        let inner = Full::new(Bytes::from_static(b"the-value-99"));
        struct Never(Full<Bytes>);
        impl Body for Never {
            type Data = Bytes;
            type Error = hyper::Error;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
                Pin::new(&mut self.0).poll_frame(cx).map(|frame| {
                    frame.map(|frame| Ok(frame.unwrap_or_else(|never| match never {})))
                })
            }
            fn size_hint(&self) -> SizeHint {
                self.0.size_hint()
            }
        }
        let body = Rewritten::new(Never(inner), scanner(), None);
        assert_eq!(body.size_hint().exact(), Some(12));
        assert_eq!(
            body.collect().await.expect("body").to_bytes(),
            "phantom-1234"
        );
    }
}
