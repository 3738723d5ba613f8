//! Refusals: one machine-readable shape on every path, and the event that goes with it.

use crate::body::ResponseBody;
use crate::decide::Reason;
use crate::dial::DialError;
use crate::share::Busy;
use crate::target::{Target, TargetError, printable};
use bytes::Bytes;
use handler_types::egress::{EgressDecision, EgressRefusal};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};

/// What a refusal is called that kept a phantom in.
const LEAK: &str = "handler_egress_leak";
/// What it is called when the sandbox has too much under way.
const BUSY: &str = "handler_egress_busy";

/// Why a request gets no answer from its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) error: &'static str,
    pub(crate) host: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Whether an event with this reason belongs to it.
    pub(crate) denied: Option<Reason>,
}

impl Refusal {
    /// The policy, or a rule above it, says no.
    pub(crate) fn denied(target: &Target, reason: Reason) -> Self {
        let host = target.to_string();
        let message = match reason {
            Reason::Unlisted => {
                format!(
                    "{host} is not on this sandbox's allow-list; add the entry `{host}` to allow it"
                )
            }
            Reason::PolicyNone => "this sandbox has no network".to_owned(),
            Reason::Address => format!(
                "{host} leads to an address of this machine or its private networks; only an entry naming that very address and port can allow it"
            ),
            Reason::Never => format!(
                "{host} is a link-local, metadata or multicast address; no sandbox may reach it"
            ),
            Reason::Reserved => {
                format!("{host} is a name of the filter's own; nothing can be reached under it")
            }
            Reason::Resolve => format!("the name in {host} has no address"),
            Reason::Host => format!("`Host` must name {host}, the host of the tunnel"),
            Reason::Sni => {
                format!("the TLS server name must be that of {host}, the host of the tunnel")
            }
            Reason::Target | Reason::Name => {
                format!("the request for {host} cannot be read as one")
            }
            Reason::Malformed => "this is not HTTP".to_owned(),
            Reason::Coding => format!(
                "the body for {host} cannot be looked at in its content coding; send it plain, or once coded with gzip, deflate, br or zstd"
            ),
        };
        Self::new(host, reason, message)
    }

    /// A name may not be looked up.
    pub(crate) fn name(name: &str, reason: Reason) -> Self {
        let message = match reason {
            Reason::Unlisted => format!(
                "no entry of this sandbox's allow-list names {name}; add one with its port, such as `{name}:443`, to allow it"
            ),
            Reason::PolicyNone => "this sandbox has no network".to_owned(),
            _ => format!("nothing can be reached under the name {name}"),
        };
        Self {
            status: StatusCode::NOT_FOUND,
            ..Self::new(name.to_owned(), reason, message)
        }
    }

    /// The destination cannot be read.
    pub(crate) fn unreadable(text: &str, error: TargetError) -> Self {
        Self::new(printable(text), Reason::Name, error.to_string())
    }

    /// The request line does not fit.
    pub(crate) fn bad_target(text: &str, message: &str) -> Self {
        Self::new(printable(text), Reason::Target, message.to_owned())
    }

    fn new(host: String, reason: Reason, message: String) -> Self {
        Self {
            // A name without address is no matter of the allow-list.
            status: match reason {
                Reason::Resolve => StatusCode::BAD_GATEWAY,
                Reason::Coding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                _ => StatusCode::FORBIDDEN,
            },
            error: match reason {
                Reason::Resolve => "handler_egress_unreachable",
                Reason::Host | Reason::Sni => "handler_egress_mismatch",
                _ => "handler_egress_denied",
            },
            host,
            reason: reason.as_str().to_owned(),
            message,
            denied: Some(reason),
        }
    }

    /// A phantom was going to a host it is not for; already reported.
    pub(crate) fn leak(target: &Target, secret: &str) -> Self {
        let host = target.to_string();
        Self {
            status: StatusCode::FORBIDDEN,
            error: LEAK,
            message: format!(
                "the request held the stand-in of secret `{secret}`, which is not for {host}; it was not sent"
            ),
            host,
            reason: "leak".to_owned(),
            denied: None,
        }
    }

    /// The destination is allowed, and cannot be reached or does not answer as it should.
    pub(crate) fn unreachable(target: &Target, why: &str) -> Self {
        let host = target.to_string();
        Self {
            status: StatusCode::BAD_GATEWAY,
            error: "handler_egress_unreachable",
            message: format!("{host} cannot be reached: {why}"),
            host,
            reason: "unreachable".to_owned(),
            denied: None,
        }
    }

    /// The body does not follow its coding; already reported.
    pub(crate) fn undecodable(target: &Target) -> Self {
        Self {
            denied: None,
            ..Self::denied(target, Reason::Coding)
        }
    }

    /// The destination answers in a coding that cannot be looked through for values.
    pub(crate) fn coded_answer(target: &Target) -> Self {
        let why = "it answers in a content coding that nobody asked for and that cannot be undone";
        Self {
            reason: Reason::Coding.as_str().to_owned(),
            denied: Some(Reason::Coding),
            ..Self::unreachable(target, why)
        }
    }

    /// The sandbox has used up its share of something.
    pub(crate) fn busy(target: &Target, busy: Busy) -> Self {
        Self::busy_at(target.to_string(), busy)
    }

    /// The same before the destination has been read.
    pub(crate) fn busy_at(host: String, Busy(what): Busy) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            error: BUSY,
            message: format!(
                "this sandbox has too many {what} under way; wait for some to end, and have fewer at a time"
            ),
            host,
            reason: "busy".to_owned(),
            denied: None,
        }
    }

    /// A login was renewed, and the daemon does not keep its new tokens yet.
    pub(crate) fn login_waits(target: &Target, login: &str) -> Self {
        let host = target.to_string();
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            error: "handler_egress_login",
            message: format!(
                "login `{login}` was renewed at {host} and its new tokens wait for the daemon; see that it runs and try again: they are not lost"
            ),
            host,
            reason: "login".to_owned(),
            denied: None,
        }
    }

    /// An answer that may hold new tokens cannot be passed on.
    pub(crate) fn login_unread(target: &Target, why: &str) -> Self {
        let host = target.to_string();
        Self {
            status: StatusCode::BAD_GATEWAY,
            error: "handler_egress_login",
            message: format!(
                "the answer of {host} to a refresh of a login is kept from the sandbox: {why}"
            ),
            host,
            reason: "login".to_owned(),
            denied: None,
        }
    }

    /// No connection.
    pub(crate) fn dial(target: &Target, error: &DialError) -> Self {
        match error {
            DialError::Address => Self::denied(target, Reason::Address),
            DialError::Resolve => Self::denied(target, Reason::Resolve),
            DialError::Unreachable(why) => Self::unreachable(target, why),
            DialError::Busy(busy) => Self::busy(target, *busy),
        }
    }

    /// The body of the answer.
    fn body(self) -> Vec<u8> {
        let body = EgressRefusal {
            error: self.error.to_owned(),
            decision: self.decision(),
            host: self.host,
            reason: self.reason,
            message: self.message,
        };
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// The answer as bytes, for a connection on which nobody speaks HTTP for us.
    pub(crate) fn into_wire(self) -> Vec<u8> {
        let status = self.status;
        let body = self.body();
        let mut wire = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        )
        .into_bytes();
        wire.extend_from_slice(&body);
        wire
    }

    /// What the event says that goes with it.
    fn decision(&self) -> Option<EgressDecision> {
        match self.denied {
            Some(reason) => Some(reason.decision()),
            None => (self.error == LEAK).then_some(EgressDecision::Leak),
        }
    }

    /// The answer.
    pub(crate) fn response(self) -> Response<ResponseBody> {
        let status = self.status;
        let body = Full::new(Bytes::from(self.body()));
        let mut response = Response::new(Either::Left(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
