//! A body that is swapped while it streams. Frames keep their order, the length stays true, nothing
//! waits but the end that could begin a needle.

use crate::report::RequestReport;
use crate::scan::{Leak, Scanner};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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
    /// The peer broke off.
    #[error("the peer broke off")]
    Broken(#[from] hyper::Error),
}

/// A body and what is swapped in it.
#[derive(Debug)]
pub(crate) struct Rewritten<B> {
    inner: B,
    scanner: Scanner,
    report: Option<Arc<RequestReport>>,
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl<B> Rewritten<B> {
    /// Swaps in `inner`; what is found is told to `report`.
    pub(crate) fn new(inner: B, scanner: Scanner, report: Option<Arc<RequestReport>>) -> Self {
        Self {
            inner,
            scanner,
            report,
            trailers: None,
            ended: false,
        }
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
                self.ended = true;
                if let Some(report) = &self.report {
                    report.leaked(secret, "body");
                }
                Err(BodyError::Leak)
            }
        }
    }

    fn push(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        if let Some(report) = &self.report {
            report.sent(data.len());
        }
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

    fn trailers(&mut self, mut trailers: HeaderMap) -> Result<HeaderMap, BodyError> {
        let mut found = Vec::new();
        let swapped = crate::headers::rewrite(&mut trailers, self.scanner.needles(), &mut found);
        self.settle(&found, swapped.map(|()| Bytes::new()))?;
        Ok(trailers)
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
            if let Some(trailers) = this.trailers.take() {
                let trailers = this.trailers(trailers);
                return Poll::Ready(Some(trailers.map(Frame::trailers)));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            let out = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Err(error)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.push(data),
                    Err(frame) => {
                        this.trailers = frame.into_trailers().ok();
                        this.finish()
                    }
                },
                None => this.finish(),
            };
            match out {
                Ok(bytes) if bytes.is_empty() => {}
                out => return Poll::Ready(Some(out.map(Frame::data))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none()
            && (self.ended || (self.scanner.held() == 0 && self.inner.is_end_stream()))
    }

    fn size_hint(&self) -> SizeHint {
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
