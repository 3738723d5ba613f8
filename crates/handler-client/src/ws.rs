//! WebSockets of the API: sessions' ACP, process and terminal streams.

use crate::error::ClientError;
use crate::transport::Client;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use handler_base::http::Io;
use handler_types::{Problem, ProblemCode};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// Largest message either way, bytes (contract C.1: 16 MiB, plus the frame's own).
const MAX_MESSAGE: usize = 17 * 1024 * 1024;

/// What came over the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketMessage {
    /// A text frame.
    Text(String),
    /// A binary frame.
    Binary(Bytes),
    /// The other side closed, with a code and a reason.
    Closed {
        /// Close code (1006: the connection broke).
        code: u16,
        /// Why.
        reason: String,
    },
}

/// An open WebSocket.
#[expect(missing_debug_implementations, reason = "the stream inside has none")]
pub struct Socket {
    inner: WebSocketStream<Box<dyn Io>>,
}

impl Client {
    /// Opens a WebSocket at `path`, offering `protocol` besides the token.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal before the upgrade comes as a problem.
    pub async fn socket(&self, path: &str, protocol: &str) -> Result<Socket, ClientError> {
        let io = self.endpoint().connect().await?;
        let mut request = format!("ws://{}{path}", self.endpoint().host())
            .into_client_request()
            .map_err(|e| ClientError::Broken(Box::new(e)))?;
        let offered = format!("{protocol}, bearer.{}", self.token());
        let value = offered
            .parse()
            .map_err(|e| ClientError::Broken(Box::new(e)))?;
        request
            .headers_mut()
            .insert(http::header::SEC_WEBSOCKET_PROTOCOL, value);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        match tokio_tungstenite::client_async_with_config(request, io, Some(config)).await {
            Ok((inner, _)) => Ok(Socket { inner }),
            Err(WsError::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let problem = serde_json::from_slice(&body).unwrap_or_else(|_| {
                    Problem::new(
                        ProblemCode::Internal,
                        format!("status {}", response.status()),
                    )
                });
                Err(ClientError::Refused(problem))
            }
            Err(error) => Err(ClientError::Broken(Box::new(error))),
        }
    }
}

impl Socket {
    /// Sends a text frame.
    ///
    /// # Errors
    /// [`ClientError::Broken`].
    pub async fn send_text(&mut self, text: String) -> Result<(), ClientError> {
        self.inner
            .send(Message::text(text))
            .await
            .map_err(|e| ClientError::Broken(Box::new(e)))
    }

    /// Sends a binary frame.
    ///
    /// # Errors
    /// [`ClientError::Broken`].
    pub async fn send_binary(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.inner
            .send(Message::Binary(bytes))
            .await
            .map_err(|e| ClientError::Broken(Box::new(e)))
    }

    /// Next message; after `Closed` nothing follows. Cancel safe.
    pub async fn next(&mut self) -> SocketMessage {
        loop {
            match self.inner.next().await {
                Some(Ok(Message::Text(text))) => return SocketMessage::Text(text.to_string()),
                Some(Ok(Message::Binary(bytes))) => return SocketMessage::Binary(bytes),
                Some(Ok(Message::Close(frame))) => {
                    let (code, reason) = frame.map_or((1005, String::new()), |f| {
                        (f.code.into(), f.reason.to_string())
                    });
                    return SocketMessage::Closed { code, reason };
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    return SocketMessage::Closed {
                        code: 1006,
                        reason: error.to_string(),
                    };
                }
                None => {
                    return SocketMessage::Closed {
                        code: 1006,
                        reason: "connection lost".into(),
                    };
                }
            }
        }
    }

    pub(crate) fn into_inner(self) -> WebSocketStream<Box<dyn Io>> {
        self.inner
    }

    /// Says good-bye.
    pub async fn close(mut self) {
        self.inner.close(None).await.ok();
    }
}
