//! The control protocol of `handler egress` and the events it reports.
//!
//! The daemon speaks to the filter over a Unix socket, one JSON document a line each way, in order:
//! each [`EgressRequest`] gets one [`EgressAnswer`]. After [`EgressRequest::Subscribe`] the
//! connection carries [`EgressEvent`] lines only. Values of secrets travel here and nowhere else.

use crate::id::SessionId;
use crate::network::{AllowEntry, NetworkPolicy};
use crate::observe::EgressTraffic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Version of this protocol.
///
/// 2: a filter that does not keep the renewals of logins from sandboxes must not be given any.
pub const EGRESS_PROTOCOL: u32 = 2;

/// What the daemon asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EgressRequest {
    /// First.
    Hello {
        /// [`EGRESS_PROTOCOL`].
        protocol: u32,
    },
    /// Makes or replaces a sandbox's settings, whole. Its listener is made at the first call; its CA stays.
    Put {
        /// Sandbox id.
        sandbox: String,
        /// The settings.
        settings: EgressSettings,
    },
    /// Closes the sandbox's listener and its connections and forgets its secrets.
    Remove {
        /// Sandbox id.
        sandbox: String,
    },
    /// Sandboxes known.
    List,
    /// What went through for each sandbox known.
    Traffic,
    /// Events after `after` (0: all kept), then live ones.
    Subscribe {
        /// Sequence number of the last event already had.
        after: u64,
    },
    /// From now on this connection carries [`LoginRenewal`] lines, each answered by a [`LoginKept`] line. The
    /// last connection to ask so is the one that gets them.
    Logins,
    /// Ends the filter.
    Shutdown,
}

/// Settings of one sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressSettings {
    /// Where to listen (a Unix socket path, made by the filter, its folder exists).
    pub listen: String,
    /// What is allowed; `None` makes the filter refuse everything.
    pub policy: NetworkPolicy,
    /// Secrets given to requests.
    #[serde(default)]
    pub injections: Vec<Injection>,
    /// Free text shown in events (session id).
    #[serde(default)]
    pub label: String,
}

/// A secret the sandbox does not hold: it holds the phantom.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Injection {
    /// What events call it: the secret's path.
    pub name: String,
    /// The stand-in: printable ASCII without space, at least 8.
    pub phantom: String,
    /// The value: printable ASCII, exactly as long.
    pub value: String,
    /// Destinations it is given to.
    pub hosts: Vec<AllowEntry>,
    /// Of a login's refresh token: what it renews. Answers to requests that it was given to are kept from the
    /// sandbox until the daemon has the tokens in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<Renews>,
}

/// Which login a refresh token renews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Renews {
    /// The login's name.
    pub login: String,
    /// The token's field in the login's file, a JSON pointer.
    pub field: String,
}

/// A login's host gave new tokens. The sandbox has not got the answer yet.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginRenewal {
    /// Counts up for the life of the filter; the answer names it.
    pub seq: u64,
    /// Sandbox whose request it was.
    pub sandbox: String,
    /// What the request renewed.
    pub renews: Renews,
    /// The new tokens.
    pub tokens: Vec<RenewedToken>,
    /// Seconds the access token is good for, if the answer says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
}

/// A token of an answer.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewedToken {
    /// Where it is in the answer, a JSON pointer.
    pub name: String,
    /// The token.
    pub value: String,
}

/// What became of a [`LoginRenewal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginKept {
    /// Which one.
    pub seq: u64,
    /// Whether the tokens are kept and have stand-ins in the sandbox's settings. If not, it is told again later.
    pub kept: bool,
}

/// Answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum EgressAnswer {
    /// To `hello`.
    Hello {
        /// [`EGRESS_PROTOCOL`].
        protocol: u32,
        /// Process id of the filter.
        pid: u32,
        /// Version of the program.
        version: String,
    },
    /// To `put`.
    Put {
        /// Certificate of the sandbox's own authority, PEM; its key never leaves the filter.
        ca_pem: String,
    },
    /// To `list`.
    List {
        /// Sandbox ids.
        sandboxes: Vec<String>,
    },
    /// To `traffic`.
    Traffic {
        /// By sandbox id.
        sandboxes: BTreeMap<String, EgressTraffic>,
    },
    /// Done.
    Done,
    /// Not done.
    Failed {
        /// Why.
        message: String,
    },
}

/// What the filter decided about one request or tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum EgressDecision {
    /// Refused: not listed, or an address that is never reachable.
    Denied,
    /// Listed.
    Allowed,
    /// Let through although not listed (log-only).
    Unlisted,
    /// A secret's value was given.
    Injected,
    /// A phantom was going to a host it is not for; refused.
    Leak,
    /// Inside a tunnel another host was named than the tunnel's; refused.
    Mismatch,
    /// No decision: a tunnel or request that was let through has ended.
    Ended,
}

impl EgressDecision {
    /// As written in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Allowed => "allowed",
            Self::Unlisted => "unlisted",
            Self::Injected => "injected",
            Self::Leak => "leak",
            Self::Mismatch => "mismatch",
            Self::Ended => "ended",
        }
    }

    /// Whether something was refused.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Denied | Self::Leak | Self::Mismatch)
    }
}

/// How a tunnel or request that was let through went; in its `ended` event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EgressEnd {
    /// Number of the event that let it through.
    pub opened: u64,
    /// Bytes from the sandbox: all of a tunnel, the body of a request.
    pub out_bytes: u64,
    /// Bytes to the sandbox: all of a tunnel, the body of a response.
    pub in_bytes: u64,
    /// From the decision to the end, milliseconds.
    pub duration_ms: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EgressEvent {
    /// Counts up from 1 for the life of the filter.
    pub seq: u64,
    /// Milliseconds since the epoch.
    pub t: i64,
    /// Sandbox id.
    pub sandbox: String,
    /// The label of its settings.
    #[serde(default)]
    pub label: String,
    /// The session whose sandbox it is, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// What was decided.
    pub decision: EgressDecision,
    /// The destination as the entry that would allow it, `HOST:PORT`; `HOST` alone where a name was looked up only.
    pub host: String,
    /// The secret's name, for `injected` and `leak`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Why. Refusals have the reason of their `403`: for `denied` `unlisted`, `address`, `resolve`, `policy none`,
    /// `reserved`, `name`, `target` or `malformed`; for `mismatch` `host` or `sni` (`unlisted` too, where it is only told); for `leak` the part of the request. Of an
    /// end: `policy` when new rules closed it, `unreachable` when the destination could not be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The entry that decided: of the allow-list for `allowed`, of the secret's hosts for `injected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// For `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EgressEnd>,
}

/// One event of an agent's sandboxes (contract D.1): what was let through, refused, given and kept back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentEgressEvent {
    /// Milliseconds since the epoch.
    pub t: i64,
    /// The session whose sandbox it was, else the sandbox.
    pub connection: String,
    /// `allowed`, `denied`, `unlisted`, `injected` or `leak`.
    pub decision: EgressDecision,
    /// The destination as the entry that would allow it, `HOST:PORT`.
    pub host: String,
    /// The secret's name, for `injected` and `leak`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl AgentEgressEvent {
    /// The event as it is told of an agent; none of an end, which decides nothing.
    #[must_use]
    pub fn of(event: &EgressEvent) -> Option<Self> {
        let decision = match event.decision {
            EgressDecision::Ended => return None,
            EgressDecision::Mismatch => EgressDecision::Denied,
            decision => decision,
        };
        let session = event.session.as_ref().map(ToString::to_string);
        Some(Self {
            t: event.t,
            connection: session.unwrap_or_else(|| event.sandbox.clone()),
            decision,
            host: event.host.clone(),
            secret: event.secret.clone(),
        })
    }
}

/// Body of every refusal (`403`, of a name that was looked up `404`, and `502` and `503` below; `application/json`): one
/// machine-readable shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressRefusal {
    /// `handler_egress_denied`, `handler_egress_mismatch`, `handler_egress_leak`, (`502`)
    /// `handler_egress_unreachable`, `handler_egress_login` (`502`: an answer to a refresh of a login is not
    /// understood; `503`: its new tokens wait for the daemon), or (`503`) `handler_egress_busy`: the sandbox has too
    /// much under way itself.
    pub error: String,
    /// As in the event that goes with it; absent when the destination was allowed and could not be reached, and when
    /// the sandbox has too much under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<EgressDecision>,
    /// The destination, `HOST:PORT`, as in the event.
    pub host: String,
    /// As in the event; of a leak `leak`, whose event says in which part of the request it was.
    pub reason: String,
    /// One sentence for people, saying what to do.
    pub message: String,
}

impl fmt::Debug for LoginRenewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginRenewal")
            .field("seq", &self.seq)
            .field("sandbox", &self.sandbox)
            .field("renews", &self.renews)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RenewedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedToken")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injection")
            .field("name", &self.name)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
