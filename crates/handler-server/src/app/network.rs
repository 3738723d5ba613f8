//! Changes of what a sandbox or a session may reach: whole, or entry by entry. Each is written into the audit log.
//!
//! Invariant: a change on the ground of what a policy is (an entry more, an entry less) is made by one at a time, so
//! that none is lost.

use super::audit;
use super::sandboxes::{engine_error, find};
use super::sessions;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::ProblemCode;
use handler_types::network::{AllowEntry, Enforcement, NetworkPolicy};
use handler_types::sandbox::SandboxView;
use handler_types::session::SessionView;
use std::sync::Arc;

/// Most entries of a list.
const MOST_ENTRIES: usize = 10_000;

/// A change.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Another policy, whole.
    Replace(NetworkPolicy),
    /// These may be reached too.
    Allow(Vec<AllowEntry>),
    /// These may not be reached any more.
    Block(Vec<AllowEntry>),
    /// What happens to the rest.
    Enforce(Enforcement),
}

impl Edit {
    /// The policy after it.
    ///
    /// # Errors
    /// A policy without a list, an entry to be blocked that is not on it, a list that becomes too long.
    pub(super) fn apply(self, before: &NetworkPolicy) -> ApiResult<NetworkPolicy> {
        if let Self::Replace(policy) = self {
            return Ok(policy);
        }
        let NetworkPolicy::Filtered { allow, enforcement } = before else {
            return Err(no_list(before));
        };
        let (mut allow, mut enforcement) = (allow.clone(), *enforcement);
        match self {
            Self::Replace(_) => {}
            Self::Enforce(other) => enforcement = other,
            Self::Allow(entries) => {
                for entry in entries {
                    if !allow.contains(&entry) {
                        allow.push(entry);
                    }
                }
            }
            Self::Block(entries) => {
                for entry in entries {
                    let found = allow.iter().position(|listed| *listed == entry);
                    allow.remove(found.ok_or_else(|| not_listed(&entry, &allow))?);
                }
            }
        }
        if allow.len() > MOST_ENTRIES {
            let detail = format!("a list has at most {MOST_ENTRIES} entries");
            return Err(ApiError::new(ProblemCode::Invalid, detail));
        }
        Ok(NetworkPolicy::Filtered { allow, enforcement })
    }
}

fn no_list(policy: &NetworkPolicy) -> ApiError {
    let detail = match policy {
        NetworkPolicy::Open => {
            "its network is `open`: everything public passes and there is no list to change; set `filtered` first"
        }
        _ => {
            "its network is `none`: nothing passes and there is no list to change; stop it and set `filtered` first"
        }
    };
    ApiError::new(ProblemCode::Conflict, detail)
}

/// Says which entry is in the way, if another one still allows it.
fn not_listed(entry: &AllowEntry, allow: &[AllowEntry]) -> ApiError {
    use handler_types::network::AllowHost;
    let wider = match &entry.host {
        AllowHost::Exact(name) => allow.iter().find(|e| e.matches(name, entry.port)),
        AllowHost::Below(_) | AllowHost::Ip(_) => None,
    };
    let detail = match wider {
        Some(wider) => format!(
            "`{entry}` is not on the list; `{wider}` is what allows it: block that, and allow what is still needed"
        ),
        None => format!("`{entry}` is not on the list"),
    };
    ApiError::new(ProblemCode::Conflict, detail)
}

/// Changes what a sandbox may reach, live, and saves it. The edit of a session's sandbox is the session's.
///
/// # Errors
/// 404; 409 for what the policy does not allow; what the engine refuses.
pub async fn edit_sandbox(app: &Arc<App>, text: &str, edit: Edit) -> ApiResult<SandboxView> {
    let view = find(app, text).await?;
    let session = sessions::session_of(&view).filter(|_| !matches!(edit, Edit::Replace(_)));
    if let Some(session) = session {
        edit_session(app, session.as_str(), edit).await?;
        return find(app, view.id.as_str()).await;
    }
    let _turn = app.network_turn.lock().await;
    let before = app.engine.get(&view.id).map_err(engine_error)?.network;
    let after = edit.apply(&before)?;
    set(app, &view, &before, after).await
}

/// Puts a policy into force and writes that down.
pub(super) async fn set(
    app: &App,
    view: &SandboxView,
    before: &NetworkPolicy,
    after: NetworkPolicy,
) -> ApiResult<SandboxView> {
    let changed = app
        .engine
        .set_network(&view.id, after)
        .await
        .map_err(engine_error)?;
    audit::changed(app, view, Some(before), &changed.network).await;
    Ok(changed)
}

/// As [`edit_sandbox`], of a session: live, and for its later starts.
///
/// # Errors
/// As [`edit_sandbox`].
pub async fn edit_session(app: &Arc<App>, text: &str, edit: Edit) -> ApiResult<SessionView> {
    sessions::edit_network(app, text, edit).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(texts: &[&str]) -> Vec<AllowEntry> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    fn filtered(texts: &[&str]) -> NetworkPolicy {
        NetworkPolicy::Filtered {
            allow: entries(texts),
            enforcement: Enforcement::Enforce,
        }
    }

    #[test]
    fn entries_are_added_once_and_taken_away() {
        let before = filtered(&["a.example:443"]);
        let both = &["a.example:443", "b.example:443"];
        let after = Edit::Allow(entries(both)).apply(&before).expect("allowed");
        assert_eq!(after, filtered(both));
        let after = Edit::Block(entries(&["a.example:443"]))
            .apply(&after)
            .expect("blocked");
        assert_eq!(after, filtered(&["b.example:443"]));
    }

    #[test]
    fn blocking_what_is_not_listed_says_what_allows_it() {
        let edit = Edit::Block(entries(&["a.wide.example:443"]));
        let error = edit
            .clone()
            .apply(&filtered(&["*.wide.example:443"]))
            .expect_err("refused");
        assert!(
            error
                .0
                .detail
                .contains("`*.wide.example:443` is what allows it")
        );
        let error = edit.apply(&filtered(&[])).expect_err("refused");
        assert!(error.0.detail.contains("not on the list"));
    }

    #[test]
    fn open_and_none_have_no_list_and_say_what_to_do() {
        for policy in [NetworkPolicy::Open, NetworkPolicy::None] {
            for edit in [
                Edit::Allow(entries(&["a.example:1"])),
                Edit::Enforce(Enforcement::LogOnly),
            ] {
                let error = edit.apply(&policy).expect_err("refused");
                assert!(error.0.detail.contains("set `filtered` first"));
            }
        }
    }

    #[test]
    fn a_list_does_not_grow_for_ever() {
        let many: Vec<AllowEntry> = (0..=MOST_ENTRIES)
            .map(|n| format!("h{n}.example:1").parse().expect("entry"))
            .collect();
        assert!(Edit::Allow(many).apply(&filtered(&[])).is_err());
    }
}
