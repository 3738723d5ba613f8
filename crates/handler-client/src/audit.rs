//! The audit log: pages, lines as they come, the whole of it.

use crate::error::ClientError;
use crate::events::EventStream;
use crate::transport::{Client, encode};
use handler_types::audit::{AuditPage, AuditRecord};
use handler_types::egress::EgressDecision;
use http::Method;
use http_body_util::Empty;
use hyper::body::Incoming;
use std::fmt::Write as _;

/// Longest line in a stream, bytes.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// Which lines.
#[derive(Debug, Clone, Default)]
pub struct AuditWish {
    /// Only behind this number; without it, the last ones.
    pub after: Option<u64>,
    /// At most so many (1–1000).
    pub limit: Option<u32>,
    /// Not before: RFC 3339, or milliseconds since the epoch.
    pub since: Option<String>,
    /// Only about this sandbox.
    pub sandbox: Option<String>,
    /// Only about this session.
    pub session: Option<String>,
    /// Only events with this decision.
    pub decision: Option<EgressDecision>,
    /// Only about hosts with this text in them.
    pub host: Option<String>,
}

impl AuditWish {
    fn path(&self, follow: bool) -> String {
        let fields = [
            ("after", self.after.map(|after| after.to_string())),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("since", self.since.clone()),
            ("sandbox", self.sandbox.clone()),
            ("session", self.session.clone()),
            ("decision", self.decision.map(|d| d.as_str().to_owned())),
            ("host", self.host.clone()),
        ];
        let mut path = format!("/v1/audit?follow={follow}");
        for (name, value) in fields {
            if let Some(value) = value {
                write!(path, "&{name}={}", encode(&value)).ok();
            }
        }
        path
    }
}

impl Client {
    /// Lines of the audit log.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn audit(&self, wish: &AuditWish) -> Result<AuditPage, ClientError> {
        self.call(Method::GET, &wish.path(false), None::<&()>).await
    }

    /// Lines of the audit log, then those that are written from now on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn follow_audit(
        &self,
        wish: &AuditWish,
    ) -> Result<EventStream<AuditRecord>, ClientError> {
        self.follow(&wish.path(true), MAX_EVENT).await
    }

    /// The audit log byte for byte.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn export_audit(&self) -> Result<Incoming, ClientError> {
        let nothing = Empty::<bytes::Bytes>::new();
        let response = self
            .stream(Method::GET, "/v1/audit/export", nothing)
            .await?;
        Ok(response.into_body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_written_into_the_address() {
        let wish = AuditWish {
            limit: Some(5),
            decision: Some(EgressDecision::Denied),
            host: Some("a b".into()),
            ..AuditWish::default()
        };
        assert_eq!(
            wish.path(true),
            "/v1/audit?follow=true&limit=5&decision=denied&host=a%20b"
        );
    }
}
