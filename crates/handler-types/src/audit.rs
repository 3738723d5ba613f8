//! The audit log: what the filter decided and who changed what a sandbox may reach.
//!
//! One JSON object a line; each holds the SHA-256 of the line before it, over files. Values of secrets are never in it.

use crate::egress::EgressEvent;
use crate::id::{AgentId, SandboxId, SessionId};
use crate::network::{AllowEntry, Enforcement, NetworkPolicy};
use serde::{Deserialize, Serialize};

/// Most entries that one change lists of those added, and of those removed.
pub const MOST_CHANGED: usize = 1000;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// Counts up from 1 for the life of the log.
    pub seq: u64,
    /// When it was written, milliseconds since the epoch.
    pub t: i64,
    /// SHA-256 of the line before, hex, without its line end; of the first line of all: zeros.
    pub prev: String,
    /// What it tells.
    pub what: AuditWhat,
}

/// What a line tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum AuditWhat {
    /// The filter decided, or something it let through ended.
    Egress {
        /// Its event.
        event: EgressEvent,
    },
    /// What a sandbox or a session may reach was set.
    Policy {
        /// By whom, and what.
        change: Box<PolicyChange>,
    },
    /// Events of the filter are missing here.
    Gap {
        /// How many.
        missed: u64,
        /// Where they were lost.
        place: GapPlace,
    },
    /// The line before was cut off (the daemon was killed, or the machine): it was put aside.
    Torn {
        /// Its bytes.
        bytes: u64,
        /// Their SHA-256, hex.
        sha256: String,
    },
    /// The oldest lines were removed because the log has become too large.
    Retired {
        /// The number of the last of them.
        through: u64,
        /// Its SHA-256, hex: what the oldest line kept refers to.
        hash: String,
    },
    /// A daemon has taken up the log.
    Started {
        /// Its version.
        version: String,
    },
}

/// Where events were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum GapPlace {
    /// The filter no longer kept them.
    Filter,
    /// They could not be written.
    Disk,
}

/// Who changed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Actor {
    /// A client of the API that holds the token.
    Client {
        /// What it calls itself (`User-Agent`); not checked.
        name: String,
    },
    /// The daemon on its own: a session's start, an installation.
    Daemon,
}

/// A policy in a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicySummary {
    /// Its mode.
    pub mode: NetworkMode,
    /// For `filtered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
    /// Entries of its list.
    pub entries: u64,
}

/// The mode of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum NetworkMode {
    /// Nothing.
    None,
    /// What is listed.
    Filtered,
    /// Everything public.
    Open,
}

/// A change of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyChange {
    /// The sandbox; none: a session's, for its later starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// The session, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The agent, when its own list was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Who.
    pub actor: Actor,
    /// Before; none: it was made with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PolicySummary>,
    /// After.
    pub after: PolicySummary,
    /// Entries that are new, at most [`MOST_CHANGED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub added: Vec<AllowEntry>,
    /// Entries that are gone, at most [`MOST_CHANGED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub removed: Vec<AllowEntry>,
    /// Entries that changed and are not listed here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl PolicySummary {
    /// Of a policy.
    #[must_use]
    pub fn of(policy: &NetworkPolicy) -> Self {
        let (mode, enforcement, entries) = match policy {
            NetworkPolicy::None => (NetworkMode::None, None, 0),
            NetworkPolicy::Open => (NetworkMode::Open, None, 0),
            NetworkPolicy::Filtered { allow, enforcement } => {
                (NetworkMode::Filtered, Some(*enforcement), allow.len())
            }
        };
        Self {
            mode,
            enforcement,
            entries: entries as u64,
        }
    }
}

impl PolicyChange {
    /// What `actor` changed.
    #[must_use]
    pub fn between(actor: Actor, before: Option<&NetworkPolicy>, after: &NetworkPolicy) -> Self {
        let (old, new) = (before.map_or(&[][..], entries), entries(after));
        let (added, more_added) = without(new, old);
        let (removed, more_removed) = without(old, new);
        Self {
            sandbox: None,
            session: None,
            agent: None,
            actor,
            before: before.map(PolicySummary::of),
            after: PolicySummary::of(after),
            added,
            removed,
            left_out: more_added + more_removed,
        }
    }
}

fn entries(policy: &NetworkPolicy) -> &[AllowEntry] {
    match policy {
        NetworkPolicy::Filtered { allow, .. } => allow,
        NetworkPolicy::None | NetworkPolicy::Open => &[],
    }
}

/// Entries of `these` that are not in `others`, bounded; and how many more there are.
fn without(these: &[AllowEntry], others: &[AllowEntry]) -> (Vec<AllowEntry>, u64) {
    let others: std::collections::HashSet<&AllowEntry> = others.iter().collect();
    let mut found: Vec<AllowEntry> = Vec::new();
    let mut more = 0;
    for entry in these.iter().filter(|entry| !others.contains(entry)) {
        if found.len() < MOST_CHANGED {
            found.push(entry.clone());
        } else {
            more += 1;
        }
    }
    (found, more)
}

/// `GET /v1/audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditPage {
    /// Lines that fit, oldest first.
    pub records: Vec<AuditRecord>,
    /// There may be more: ask again with this `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `GET /v1/audit/verify`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditVerdict {
    /// Every line refers to the one before it, and the last is the one the daemon wrote last.
    pub ok: bool,
    /// Files looked at.
    pub files: u64,
    /// Lines that hold together, from the first one on.
    pub records: u64,
    /// Number of the first line kept.
    pub first: u64,
    /// Number of the last line that holds together.
    pub last: u64,
    /// SHA-256 of that line, hex. Noted elsewhere, it proves later that nothing up to it was rewritten.
    pub head: String,
    /// Events that are known to be missing.
    pub missed: u64,
    /// The first line that does not hold together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<AuditBreak>,
}

/// A line that does not hold together with those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditBreak {
    /// Name of the file.
    pub file: String,
    /// Its line there, from 1.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(entries: &[String]) -> NetworkPolicy {
        NetworkPolicy::Filtered {
            allow: entries.iter().map(|e| e.parse().expect(e)).collect(),
            enforcement: Enforcement::Enforce,
        }
    }

    #[test]
    fn a_change_lists_what_came_and_went_and_is_bounded() {
        let before = filtered(&["a.example:1".into(), "b.example:1".into()]);
        let after = filtered(&["b.example:1".into(), "c.example:1".into()]);
        let change = PolicyChange::between(Actor::Daemon, Some(&before), &after);
        let text = |entries: &[AllowEntry]| entries[0].to_string();
        assert_eq!(text(&change.added), "c.example:1");
        assert_eq!(text(&change.removed), "a.example:1");
        assert_eq!((change.added.len(), change.left_out), (1, 0));
        let many: Vec<String> = (0..MOST_CHANGED + 7)
            .map(|n| format!("h{n}.example:1"))
            .collect();
        let change =
            PolicyChange::between(Actor::Daemon, Some(&NetworkPolicy::Open), &filtered(&many));
        assert_eq!((change.added.len(), change.left_out), (MOST_CHANGED, 7));
        assert_eq!(change.after.entries, MOST_CHANGED as u64 + 7);
    }
}
