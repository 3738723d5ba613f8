//! The daemon's event stream.

use crate::error::ClientError;
use crate::transport::Client;
use handler_types::event::ServerEvent;
use http::Method;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;

/// Longest event, bytes.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// Live events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Client {
    /// Follows what changes from now on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self) -> Result<Events, ClientError> {
        let response = self
            .stream(Method::GET, "/v1/events", Empty::<bytes::Bytes>::new())
            .await?;
        Ok(Events {
            body: response.into_body(),
            buffer: Vec::new(),
        })
    }
}

impl Events {
    /// Next event; none when the daemon ended.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<ServerEvent>, ClientError> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|w| w == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                match parse(&block) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            if self.buffer.len() > MAX_EVENT {
                return Err(ClientError::Unexpected("an event larger than 4 MiB".into()));
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

/// Reads one block; comments and unknown events are none.
fn parse(block: &[u8]) -> Option<ServerEvent> {
    let text = std::str::from_utf8(block).ok()?;
    let data: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .collect();
    serde_json::from_str(data.trim_start()).ok()
}
