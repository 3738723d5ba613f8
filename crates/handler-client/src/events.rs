//! Server-sent events of the daemon: what changed, a log's lines, a build's frames. One reader for all of them.

use crate::error::ClientError;
use crate::transport::Client;
use handler_types::event::ServerEvent;
use http::Method;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// Longest event of the daemon's own stream, bytes.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// Documents that come one after the other, each in an event of its own.
#[derive(Debug)]
pub struct EventStream<T> {
    body: Incoming,
    buffer: Vec<u8>,
    /// Bytes of the buffer in which no event ends.
    looked: usize,
    most: usize,
    kind: PhantomData<fn() -> T>,
}

/// Live events.
pub type Events = EventStream<ServerEvent>;

impl Client {
    /// Follows what changes from now on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self) -> Result<Events, ClientError> {
        self.follow("/v1/events", MAX_EVENT).await
    }

    /// Opens a stream whose events are at most `most` bytes long.
    pub(crate) async fn follow<T>(
        &self,
        path: &str,
        most: usize,
    ) -> Result<EventStream<T>, ClientError> {
        let nothing = Empty::<bytes::Bytes>::new();
        let response = self.stream(Method::GET, path, nothing).await?;
        Ok(EventStream {
            body: response.into_body(),
            buffer: Vec::new(),
            looked: 0,
            most,
            kind: PhantomData,
        })
    }
}

impl<T: DeserializeOwned> EventStream<T> {
    /// The next document; none when the stream ended.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            while let Some(block) = cut(&mut self.buffer, &mut self.looked) {
                if let Some(document) = parse(&block) {
                    return Ok(Some(document));
                }
            }
            if self.buffer.len() > self.most {
                return Err(ClientError::Unexpected(format!(
                    "an event of more than {} bytes",
                    self.most
                )));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::Broken(Box::new(error))),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

/// Takes the first whole event off the buffer. What was looked through is not looked through again.
fn cut(buffer: &mut Vec<u8>, looked: &mut usize) -> Option<Vec<u8>> {
    let from = looked.saturating_sub(1);
    let found = buffer[from..].windows(2).position(|pair| pair == b"\n\n");
    *looked = if found.is_some() { 0 } else { buffer.len() };
    found.map(|end| buffer.drain(..from + end + 2).collect())
}

/// Reads one event; comments, and what this version does not know, are none.
fn parse<T: DeserializeOwned>(block: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(block).ok()?;
    let data: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .collect();
    serde_json::from_str(data.trim_start()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let bytes = b": hello\n\ndata: 1\n\nevent: x\nid: 7\ndata: 2\n\ndata: no number\n\ndata: 3\n\ndata: 4";
        for size in 1..bytes.len() {
            let (mut buffer, mut looked, mut seen) = (Vec::new(), 0, Vec::new());
            for piece in bytes.chunks(size) {
                buffer.extend_from_slice(piece);
                while let Some(block) = cut(&mut buffer, &mut looked) {
                    seen.extend(parse::<u32>(&block));
                }
            }
            assert_eq!(seen, [1, 2, 3], "in pieces of {size}");
            assert_eq!(buffer, b"data: 4");
        }
    }
}
