//! What an agent may reach, taken over by its sessions: running ones at once, others for their next start.

use crate::app::launches;
use crate::app::network::{Edit, edit_session};
use crate::app::sessions::store_error;
use crate::http::problem::ApiResult;
use crate::state::App;
use handler_store::rows::{PageRequest, SessionFilter, SessionRow};
use handler_types::AgentId;
use handler_types::network::NetworkPolicy;
use std::sync::Arc;

/// Every session of an agent.
pub(super) async fn of_agent(app: &App, id: &AgentId) -> ApiResult<Vec<SessionRow>> {
    let filter = SessionFilter {
        agent: Some(id.clone()),
        ..SessionFilter::default()
    };
    let (mut rows, mut page) = (Vec::new(), PageRequest::default());
    page.limit = Some(500);
    loop {
        let found = app
            .store
            .sessions()
            .list(filter.clone(), page.clone())
            .await;
        let found = found.map_err(store_error)?;
        rows.extend(found.items);
        page.cursor = found.next_cursor;
        if page.cursor.is_none() {
            return Ok(rows);
        }
    }
}

/// Puts a change of an agent's policy into its sessions; says which could not take it over, and why.
pub(super) async fn sessions(
    app: &Arc<App>,
    id: &AgentId,
    before: &NetworkPolicy,
    after: &NetworkPolicy,
) -> ApiResult<Vec<String>> {
    let mut left = Vec::new();
    for session in of_agent(app, id).await? {
        let own = crate::app::sessions::network_of_row(&session)?;
        let wanted = merged(before, after, &own);
        if wanted == own {
            continue;
        }
        if let Err(error) = edit_session(app, session.id.as_str(), Edit::Replace(wanted)).await {
            left.push(format!("session {}: {}", session.id, error.0.detail));
        }
    }
    left.extend(launches::follow(app, id, before, after).await);
    Ok(left)
}

/// A session's or another launch's policy after its agent's has changed. Entries that were put on the session's own list stay; ones
/// that the agent lost go.
pub(crate) fn merged(
    before: &NetworkPolicy,
    after: &NetworkPolicy,
    own: &NetworkPolicy,
) -> NetworkPolicy {
    let NetworkPolicy::Filtered {
        allow: new,
        enforcement: wanted,
    } = after
    else {
        return after.clone();
    };
    let NetworkPolicy::Filtered { allow, enforcement } = own else {
        return after.clone();
    };
    let (old, was) = match before {
        NetworkPolicy::Filtered { allow, enforcement } => (allow.as_slice(), Some(enforcement)),
        NetworkPolicy::None | NetworkPolicy::Open => (&[][..], None),
    };
    let mut allow: Vec<_> = allow
        .iter()
        .filter(|entry| new.contains(entry) || !old.contains(entry))
        .cloned()
        .collect();
    for entry in new {
        if !allow.contains(entry) {
            allow.push(entry.clone());
        }
    }
    let enforcement = if was == Some(wanted) {
        *enforcement
    } else {
        *wanted
    };
    NetworkPolicy::Filtered { allow, enforcement }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::network::Enforcement::{self, Enforce, LogOnly};

    fn list(entries: &[&str], enforcement: Enforcement) -> NetworkPolicy {
        NetworkPolicy::Filtered {
            allow: entries
                .iter()
                .map(|entry| format!("{entry}.example:443").parse().expect("entry"))
                .collect(),
            enforcement,
        }
    }

    #[test]
    fn a_session_takes_over_what_changed_and_keeps_what_is_its_own() {
        use NetworkPolicy::{None, Open};
        for (before, after, own, gives) in [
            (
                list(&["a"], Enforce),
                list(&["a", "b"], Enforce),
                list(&["a", "x"], Enforce),
                list(&["a", "x", "b"], Enforce),
            ),
            (
                list(&["a", "b"], Enforce),
                list(&["a"], Enforce),
                list(&["a", "b", "x"], Enforce),
                list(&["a", "x"], Enforce),
            ),
            // The session lost it before: it gets back only what is new.
            (
                list(&["a"], Enforce),
                list(&["b"], Enforce),
                list(&[], Enforce),
                list(&["b"], Enforce),
            ),
            (
                list(&[], Enforce),
                list(&[], LogOnly),
                list(&["x"], Enforce),
                list(&["x"], LogOnly),
            ),
            // Its own enforcement stays while the agent's does.
            (
                list(&[], Enforce),
                list(&["a"], Enforce),
                list(&[], LogOnly),
                list(&["a"], LogOnly),
            ),
            (list(&["a"], Enforce), Open, list(&["x"], Enforce), Open),
            (Open, list(&["a"], Enforce), Open, list(&["a"], Enforce)),
            (
                Open,
                list(&["a"], Enforce),
                list(&["x"], LogOnly),
                list(&["x", "a"], Enforce),
            ),
            (list(&["a"], Enforce), None, list(&["a"], Enforce), None),
        ] {
            assert_eq!(
                merged(&before, &after, &own),
                gives,
                "{before:?} {after:?} {own:?}"
            );
        }
    }
}
