//! Files made for a container: who one is, what the machine is called, and what was asked for.

use crate::native::files as etc;
use crate::native::plan::USER;
use crate::oci::identity::Identity;
use handler_engine::driver::InstancePlan;
use handler_types::network::NetworkPolicy;
use std::fmt::Write as _;

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
const WITHOUT_ROUTE: &[&str] = &["/etc/hosts", "/etc/resolv.conf"];

/// All of them. `/etc/passwd` and `/etc/group` are filled in when the image's are known.
pub(super) fn files(plan: &InstancePlan, identity: Identity) -> Vec<GeneratedFile> {
    let hostname = plan.id.as_str();
    let own = etc::etc(&etc::Identity {
        id: plan.id.as_str(),
        hostname,
        user: USER,
        uid: identity.uid,
        gid: identity.gid,
        home: &plan.spec.home,
        shell: "/bin/sh",
    });
    let has_route = matches!(plan.spec.network, NetworkPolicy::Open);
    let wanted =
        |target: &str| ALWAYS.contains(&target) || (!has_route && WITHOUT_ROUTE.contains(&target));
    let own = own
        .into_iter()
        .filter(|file| wanted(&file.target))
        .map(|file| GeneratedFile {
            target: file.target,
            content: file.content,
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

/// `/etc/passwd`: ours first, then the image's other users; programs that ask for `root` find it.
pub(in crate::oci) fn passwd_file(image: &str, identity: Identity, home: &str) -> String {
    let Identity { uid, gid } = identity;
    let shell = "/bin/sh";
    let mut text = format!("{USER}:x:{uid}:{gid}:{USER}:{home}:{shell}\n");
    let others = entries(image, 7);
    if !others.iter().any(|line| line.starts_with("root:")) {
        let _ = writeln!(text, "root:x:0:0:root:/root:/bin/sh");
    }
    add(&mut text, &others);
    text
}

/// `/etc/group`, likewise.
pub(in crate::oci) fn group_file(image: &str, identity: Identity) -> String {
    let mut text = format!("{USER}:x:{}:\n", identity.gid);
    let others = entries(image, 4);
    if !others.iter().any(|line| line.starts_with("root:")) {
        text.push_str("root:x:0:\n");
    }
    add(&mut text, &others);
    text
}

/// Well-formed lines that do not name our user.
fn entries(text: &str, fields: usize) -> Vec<&str> {
    text.lines()
        .filter(|line| line.split(':').count() == fields && !line.contains('\0'))
        .filter(|line| line.split(':').next() != Some(USER))
        .take(10_000)
        .collect()
}

fn add(text: &mut String, lines: &[&str]) {
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
}
