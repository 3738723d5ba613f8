//! The generated files of `/etc`: who one is, what the machine is called, and that names are not looked up.

use handler_types::launch::LaunchFile;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Who a sandbox is.
#[derive(Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) id: &'a str,
    pub(crate) hostname: &'a str,
    pub(crate) user: &'a str,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: &'a str,
    pub(crate) shell: &'a str,
    /// `/etc/passwd` of the image, for the names in it; empty: the host's folders are the root.
    pub(crate) passwd: &'a str,
    /// `/etc/group` of the image.
    pub(crate) group: &'a str,
}

/// All of them, read-only.
pub(crate) fn etc(who: &Identity<'_>) -> Vec<LaunchFile> {
    let host = who.hostname;
    [
        ("passwd", passwd(who)),
        ("group", group(who)),
        ("hostname", format!("{host}\n")),
        (
            "hosts",
            format!("127.0.0.1 localhost {host}\n::1 localhost ip6-localhost {host}\n"),
        ),
        ("machine-id", format!("{}\n", machine_id(who.id))),
        // Names are the egress filter's work; whoever asks anyway is refused at once, not after a timeout.
        ("nsswitch.conf", NSSWITCH.to_owned()),
        (
            "resolv.conf",
            "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n".to_owned(),
        ),
    ]
    .map(|(name, content)| LaunchFile {
        target: format!("/etc/{name}"),
        content,
        mode: 0o644,
        writable: false,
    })
    .into()
}

const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n\
    networks: files\nprotocols: files\nservices: files\nrpc: files\n";

/// The first entry of a uid is its name; programs that ask for `root` find it as well.
fn passwd(who: &Identity<'_>) -> String {
    let Identity {
        user,
        uid,
        gid,
        home,
        shell,
        ..
    } = who;
    let own = format!("{user}:x:{uid}:{gid}:{user}:{home}:{shell}\n");
    with_names(own, user, who.passwd, 7, PASSWD)
}

const PASSWD: &str = "root:x:0:0:root:/root:/usr/sbin/nologin\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n";

/// The own line, then the image's (those that are whole and of another name), else the usual ones.
fn with_names(mut text: String, own: &str, image: &str, fields: usize, usual: &str) -> String {
    let is_other = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        line.split(':').count() == fields && !name.is_empty() && name != own
    };
    let source = if image.is_empty() { usual } else { image };
    for line in source.lines().filter(is_other) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn group(who: &Identity<'_>) -> String {
    let own = format!("{}:x:{}:\n", who.user, who.gid);
    with_names(own, who.user, who.group, 4, GROUP)
}

/// Another one per sandbox, the same one at each start; tells nothing about the host.
fn machine_id(id: &str) -> String {
    let digest = Sha256::digest(format!("handler machine id {id}"));
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_ids_differ_between_sandboxes_and_stay_over_starts() {
        assert_eq!(machine_id("sb1").len(), 32);
        assert_eq!(machine_id("sb1"), machine_id("sb1"));
        assert_ne!(machine_id("sb1"), machine_id("sb2"));
    }

    #[test]
    fn the_user_is_named_even_with_uid_0() {
        let who = Identity {
            id: "sb",
            hostname: "sb",
            user: "agent",
            uid: 0,
            gid: 0,
            home: "/home/agent",
            shell: "/bin/sh",
            passwd: "",
            group: "",
        };
        assert!(passwd(&who).starts_with("agent:x:0:0:agent:/home/agent:/bin/sh\nroot:x:0:"));
        assert!(group(&who).starts_with("agent:x:0:\n"));
        let of_image = Identity {
            passwd: "node:x:1000:1000::/home/node:/bin/sh\nagent:x:7:7::/:/x\nhalf:x\n",
            ..who
        };
        let text = passwd(&of_image);
        assert!(text.contains("\nnode:x:1000:"));
        assert!(!text.contains("half") && !text.contains(":7:7:"), "{text}");
    }
}
