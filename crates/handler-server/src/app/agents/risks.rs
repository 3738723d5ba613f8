//! What a save gives an agent that it did not have (contract D.8). Pure.
//!
//! | setting | from less to more |
//! |---|---|
//! | network | `none`, `filtered`, `filtered` in log only (everything passes), `open` |
//! | confinement | `strict`, `nested`, `privileged` |
//! | permissions | `ask`, `accept-edits`, `bypass` |

use handler_types::agent::AgentSettings;
use handler_types::harness::PermissionMode;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::sandbox::Confinement;

/// What a new agent is compared with: the preset Guarded, which is also what is left out of a request.
pub(super) fn guarded() -> AgentSettings {
    AgentSettings::default()
}

/// What is wider afterwards, in words; empty: nothing.
pub(super) fn widened(before: &AgentSettings, after: &AgentSettings) -> Vec<String> {
    let mut risks = Vec::new();
    if network_rank(&after.network) > network_rank(&before.network) {
        risks.push(network_risk(&after.network).to_owned());
    }
    if after.confinement > before.confinement {
        risks.push(confinement_risk(after.confinement).to_owned());
    }
    if after.permissions > before.permissions {
        risks.push(permission_risk(after.permissions).to_owned());
    }
    risks
}

fn network_rank(policy: &NetworkPolicy) -> u8 {
    match policy {
        NetworkPolicy::None => 0,
        NetworkPolicy::Filtered {
            enforcement: Enforcement::Enforce,
            ..
        } => 1,
        NetworkPolicy::Filtered {
            enforcement: Enforcement::LogOnly,
            ..
        } => 2,
        NetworkPolicy::Open => 3,
    }
}

fn network_risk(policy: &NetworkPolicy) -> &'static str {
    match policy {
        NetworkPolicy::None => "network none: it reaches nothing",
        NetworkPolicy::Filtered {
            enforcement: Enforcement::Enforce,
            ..
        } => "network filtered: it reaches its model's host and what is listed",
        NetworkPolicy::Filtered {
            enforcement: Enforcement::LogOnly,
            ..
        } => "network in log only: it reaches every public host; what is not listed is only told",
        NetworkPolicy::Open => "network open: it reaches every public host",
    }
}

fn confinement_risk(confinement: Confinement) -> &'static str {
    match confinement {
        Confinement::Strict => "confinement strict",
        Confinement::Nested => {
            "confinement nested: it may run containers inside, with the capabilities that takes"
        }
        Confinement::Privileged => {
            "confinement privileged: only namespaces keep it from this machine"
        }
    }
}

fn permission_risk(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Ask => "permissions ask",
        PermissionMode::AcceptEdits => "permissions accept-edits: it changes files without asking",
        PermissionMode::Bypass => "permissions bypass: it never asks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(
        network: NetworkPolicy,
        confinement: Confinement,
        permissions: PermissionMode,
    ) -> AgentSettings {
        AgentSettings {
            network,
            confinement,
            permissions,
            ..AgentSettings::default()
        }
    }

    #[test]
    fn only_what_is_wider_is_a_risk() {
        let filtered = |enforcement| NetworkPolicy::Filtered {
            allow: vec!["a.example:443".parse().expect("entry")],
            enforcement,
        };
        let networks = [
            NetworkPolicy::None,
            filtered(Enforcement::Enforce),
            filtered(Enforcement::LogOnly),
            NetworkPolicy::Open,
        ];
        let confinements = [
            Confinement::Strict,
            Confinement::Nested,
            Confinement::Privileged,
        ];
        let modes = [
            PermissionMode::Ask,
            PermissionMode::AcceptEdits,
            PermissionMode::Bypass,
        ];
        let all: Vec<(usize, usize, usize)> = (0..4)
            .flat_map(|n| (0..3).flat_map(move |c| (0..3).map(move |m| (n, c, m))))
            .collect();
        let settings =
            |(n, c, m): (usize, usize, usize)| with(networks[n].clone(), confinements[c], modes[m]);
        for before in &all {
            for after in &all {
                let risks = widened(&settings(*before), &settings(*after));
                let wider = usize::from(after.0 > before.0)
                    + usize::from(after.1 > before.1)
                    + usize::from(after.2 > before.2);
                assert_eq!(risks.len(), wider, "{before:?} {after:?}: {risks:?}");
            }
        }
    }

    #[test]
    fn a_new_agent_may_have_what_is_left_out_and_less() {
        let less = with(
            NetworkPolicy::None,
            Confinement::Strict,
            PermissionMode::Ask,
        );
        assert_eq!(widened(&guarded(), &less), Vec::<String>::new());
        assert_eq!(widened(&guarded(), &guarded()), Vec::<String>::new());
        let open = with(
            NetworkPolicy::Open,
            Confinement::Privileged,
            PermissionMode::Bypass,
        );
        let risks = widened(&guarded(), &open);
        assert!(risks[0].contains("every public host"), "{risks:?}");
        assert!(risks[1].contains("privileged"), "{risks:?}");
    }
}
