//! The folder of a session.

use crate::error::ClientError;
use crate::transport::{Client, encode};
use handler_types::session_folder::{
    RevealRequest, RevertRequest, SessionChanges, SessionDiff, SessionFile, SessionFolder,
    SessionFound, SessionMounts,
};
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn address(id: &str, what: &str, query: &[(&str, &str)]) -> String {
    let said = query.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = said
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    format!("/v1/sessions/{}/{what}?{}", encode(id), pairs.join("&"))
}

impl Client {
    async fn look<T: DeserializeOwned>(
        &self,
        id: &str,
        what: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let no_body: Option<&()> = None;
        self.call(Method::GET, &address(id, what, query), no_body)
            .await
    }

    async fn ask<B: Serialize, T: DeserializeOwned>(
        &self,
        id: &str,
        what: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let path = format!("/v1/sessions/{}/{what}", encode(id));
        self.call(Method::POST, &path, Some(body)).await
    }

    /// What changed in a session's folder since it started.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_changes(&self, id: &str) -> Result<SessionChanges, ClientError> {
        self.look(id, "changes", &[]).await
    }

    /// What a session's agent sees of the machine.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_mounts(&self, id: &str) -> Result<SessionMounts, ClientError> {
        self.look(id, "mounts", &[]).await
    }

    /// What is in a folder of a session's folder, or of a mount (its target; empty: none).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_folder(
        &self,
        id: &str,
        path: &str,
        mount: &str,
    ) -> Result<SessionFolder, ClientError> {
        self.look(id, "folder", &[("path", path), ("mount", mount)])
            .await
    }

    /// Files by a part of their path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_find(&self, id: &str, typed: &str) -> Result<SessionFound, ClientError> {
        self.look(id, "find", &[("q", typed)]).await
    }

    /// A file of a session's folder, or of a mount (its target; empty: none).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_file(
        &self,
        id: &str,
        path: &str,
        mount: &str,
    ) -> Result<SessionFile, ClientError> {
        self.look(id, "file", &[("path", path), ("mount", mount)])
            .await
    }

    /// What changed in a file.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_diff(&self, id: &str, path: &str) -> Result<SessionDiff, ClientError> {
        self.look(id, "diff", &[("path", path)]).await
    }

    /// Takes back a hunk, or all that changed in a file.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_revert(
        &self,
        id: &str,
        request: &RevertRequest,
    ) -> Result<SessionDiff, ClientError> {
        self.ask(id, "revert", request).await
    }

    /// Shows a file or folder in the desktop's file manager.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn session_reveal(
        &self,
        id: &str,
        request: &RevealRequest,
    ) -> Result<(), ClientError> {
        self.ask(id, "reveal", request).await
    }
}
