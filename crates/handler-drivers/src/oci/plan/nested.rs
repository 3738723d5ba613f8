//! What running Podman inside needs to be told: whose ids it may use, and what works in a container.

use super::{Facts, GeneratedFile};
use crate::native::plan::USER;
use handler_types::sandbox::Confinement;

/// First id that inner containers use when the engine runs as root and no user namespace separates them from the host:
/// far above everything that users have.
const ROOTFUL_FIRST: u32 = 1_879_048_192;
/// How many they get then.
const ROOTFUL_COUNT: u32 = 65_536;
/// Ids of a user namespace that keeps the user's: those of its subordinate range and the user's.
const ROOTLESS_IDS: u32 = 65_536;

const STORAGE: &str = "[storage]\ndriver = \"overlay\"\n[storage.options.overlay]\n\
    mount_program = \"/usr/bin/fuse-overlayfs\"\n";

/// No systemd, no cgroups of its own, no kernel settings, the outer host name: what a container may not change.
const CONTAINERS: &str = "[containers]\ncgroups = \"disabled\"\ndefault_sysctls = []\nutsns = \"host\"\n\
    log_driver = \"k8s-file\"\nvolumes = [\"/proc:/proc\"]\nnetns = \"host\"\n[engine]\ncgroup_manager = \"cgroupfs\"\n\
    events_logger = \"file\"\nstatic_dir = \"/tmp/podman\"\nvolume_path = \"/tmp/podman/volumes\"\n";

/// The files, for the levels that allow containers inside.
pub(super) fn files(confinement: Confinement, facts: &Facts) -> Vec<GeneratedFile> {
    if confinement == Confinement::Strict {
        return Vec::new();
    }
    let ids = subordinate(facts.identity.uid, facts.keep_id);
    let group_ids = subordinate(facts.identity.gid, facts.keep_id);
    [
        ("/etc/subuid", ids),
        ("/etc/subgid", group_ids),
        ("/etc/containers/storage.conf", STORAGE.to_owned()),
        ("/etc/containers/containers.conf", CONTAINERS.to_owned()),
    ]
    .map(|(target, content)| GeneratedFile {
        target: target.to_owned(),
        content,
        mode: 0o644,
        writable: false,
    })
    .into()
}

/// Rootless: every id of the sandbox's user namespace but root's and the user's own. Rootful: a high range.
fn subordinate(id: u32, keep_id: bool) -> String {
    if !keep_id {
        return format!("{USER}:{ROOTFUL_FIRST}:{ROOTFUL_COUNT}\n");
    }
    let last = ROOTLESS_IDS.max(id.saturating_add(1));
    format!(
        "{USER}:1:{}\n{USER}:{}:{}\n",
        id.saturating_sub(1),
        id.saturating_add(1),
        last - id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_ids_are_all_but_the_users_own_or_a_high_range() {
        assert_eq!(subordinate(1000, true), "agent:1:999\nagent:1001:64536\n");
        assert_eq!(subordinate(1000, false), "agent:1879048192:65536\n");
    }
}
