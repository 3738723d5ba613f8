//! Server-sent events: frames, and the body that sends them one after the other.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde_json::Value;

/// One event of a streamed answer.
#[derive(Debug)]
pub(crate) struct Frame {
    event: Option<&'static str>,
    data: String,
    paced: bool,
}

impl Frame {
    /// An event without a name.
    pub(crate) fn data(data: &Value) -> Self {
        Self {
            event: None,
            data: data.to_string(),
            paced: false,
        }
    }

    /// An event whose name repeats the `type` of its data.
    pub(crate) fn named(event: &'static str, data: &Value) -> Self {
        Self {
            event: Some(event),
            data: data.to_string(),
            paced: false,
        }
    }

    /// A word of `data` that is no JSON, like the end mark of OpenAI Chat.
    pub(crate) fn literal(data: &str) -> Self {
        Self {
            event: None,
            data: data.to_owned(),
            paced: false,
        }
    }

    /// The same frame, sent after a pause when `paced`.
    pub(crate) fn paced(self, paced: bool) -> Self {
        Self { paced, ..self }
    }

    fn encode(&self) -> Bytes {
        // JSON text has no raw line breaks, so one `data:` line always suffices.
        let event = self
            .event
            .map(|name| format!("event: {name}\n"))
            .unwrap_or_default();
        format!("{event}data: {}\n\n", self.data).into()
    }
}

/// A chunked body that sends the frames in order and stops when the client goes away.
pub(crate) fn body(frames: Vec<Frame>, pause: Duration) -> Body {
    let stream = stream::unfold(frames.into_iter(), move |mut rest| async move {
        let frame = rest.next()?;
        if frame.paced {
            tokio::time::sleep(pause).await;
        }
        Some((Ok::<_, Infallible>(frame.encode()), rest))
    });
    Body::from_stream(stream)
}
