//! Files made for a container: who one is, what the machine is called, and what was asked for.

use super::Facts;
use crate::native::files as etc;
use crate::native::plan::USER;
use crate::oci::transparent;
use handler_engine::driver::InstancePlan;
use handler_types::launch::TRANSPARENT_RESOLV;
use handler_types::network::NetworkPolicy;

/// A file to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::oci) struct GeneratedFile {
    /// Absolute path inside.
    pub(in crate::oci) target: String,
    pub(in crate::oci) content: String,
    pub(in crate::oci) mode: u32,
    /// May be changed inside.
    pub(in crate::oci) writable: bool,
}

/// What of an image's `/etc` counts: its users and groups are kept beside ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::oci) struct Etc {
    pub(in crate::oci) passwd: String,
    pub(in crate::oci) group: String,
}

/// Of the files a native sandbox has, those that make sense in any image; names are the engine's with an open network.
const ALWAYS: &[&str] = &["/etc/passwd", "/etc/group", "/etc/machine-id"];
const WITHOUT_ROUTE: &[&str] = &["/etc/hosts", RESOLV];
const RESOLV: &str = "/etc/resolv.conf";

/// All of them.
pub(super) fn files(plan: &InstancePlan, facts: &Facts) -> Vec<GeneratedFile> {
    let identity = facts.identity;
    let hostname = plan.id.as_str();
    let own = etc::etc(&etc::Identity {
        id: plan.id.as_str(),
        hostname,
        user: USER,
        uid: identity.uid,
        gid: identity.gid,
        home: &plan.spec.home,
        shell: "/bin/sh",
        passwd: &facts.etc.passwd,
        group: &facts.etc.group,
    });
    let has_route = matches!(plan.spec.network, NetworkPolicy::Open);
    let wanted =
        |target: &str| ALWAYS.contains(&target) || (!has_route && WITHOUT_ROUTE.contains(&target));
    let own = own
        .into_iter()
        .filter(|file| wanted(&file.target))
        .map(|file| GeneratedFile {
            content: match file.target.as_str() {
                RESOLV if transparent::is_wanted(&plan.spec) => TRANSPARENT_RESOLV.to_owned(),
                _ => file.content,
            },
            target: file.target,
            mode: file.mode,
            writable: false,
        });
    let asked = plan.spec.files.iter().map(|file| GeneratedFile {
        target: file.target.clone(),
        content: file.content.clone(),
        mode: file.mode & 0o777,
        writable: file.writable,
    });
    own.chain(asked).collect()
}
