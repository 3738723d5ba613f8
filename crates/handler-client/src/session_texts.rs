//! Sessions looked back at.

use crate::error::ClientError;
use crate::transport::{Client, encode};
use handler_types::api::Page;
use handler_types::session::SessionView;
use handler_types::session_text::{ChangeSession, SessionHit, UsageSumView};
use http::Method;
use http_body_util::Empty;
use hyper::body::Incoming;

const NO_BODY: Option<&()> = None;

fn address(path: &str, query: &[(&str, &str)]) -> String {
    let said = query.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = said
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

impl Client {
    /// A page of sessions that fit a query: names and values as `GET /v1/sessions` takes them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn find_sessions(
        &self,
        query: &[(&str, &str)],
    ) -> Result<Page<SessionView>, ClientError> {
        self.call(Method::GET, &address("/v1/sessions", query), NO_BODY)
            .await
    }

    /// Renames a session or puts it away.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_session(
        &self,
        id: &str,
        change: &ChangeSession,
    ) -> Result<SessionView, ClientError> {
        let path = format!("/v1/sessions/{}", encode(id));
        self.call(Method::PATCH, &path, Some(change)).await
    }

    /// A page of messages that a search finds: names and values as `GET /v1/sessions/search` takes them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn search_sessions(
        &self,
        query: &[(&str, &str)],
    ) -> Result<Page<SessionHit>, ClientError> {
        self.call(Method::GET, &address("/v1/sessions/search", query), NO_BODY)
            .await
    }

    /// What turns used: names and values as `GET /v1/sessions/usage` takes them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_usage(
        &self,
        query: &[(&str, &str)],
    ) -> Result<Vec<UsageSumView>, ClientError> {
        self.call(Method::GET, &address("/v1/sessions/usage", query), NO_BODY)
            .await
    }

    /// A session as one document, as it comes: `markdown` or `json`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn export_session(&self, id: &str, format: &str) -> Result<Incoming, ClientError> {
        let path = format!("/v1/sessions/{}/export?format={format}", encode(id));
        let response = self
            .stream(Method::GET, &path, Empty::<bytes::Bytes>::new())
            .await?;
        Ok(response.into_body())
    }
}
