//! Users of the image: who a command is to run as.
//!
//! Read from `/etc/passwd` and `/etc/group` of the sandbox's own file system, which anyone inside may have
//! changed: nothing here decides about rights, the kernel does when the user is changed.

use crate::fail;
use handler_types::guest::{GuestError, GuestErrorCode};
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;

/// Most bytes read of each file.
const MOST_BYTES: u64 = 1024 * 1024;
/// Most groups of a user.
const MOST_GROUPS: usize = 1024;
/// Bits of the capabilities to set group and user ids, in that order side by side.
const SET_IDS: u64 = 0b11 << 6;

/// Ids a command is to run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// All groups, the main one included.
    pub(super) groups: Vec<u32>,
}

impl Credentials {
    /// Whether the guest itself runs with them already.
    pub(super) fn are_ours(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
            && self.gid == rustix::process::getegid().as_raw()
    }
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) credentials: Credentials,
    name: Option<Vec<u8>>,
    home: Vec<u8>,
    pub(super) shell: Option<Vec<u8>>,
}

impl Account {
    /// What its commands find in their environment.
    pub(super) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let mut all = vec![("HOME", text(&self.home))];
        if let Some(name) = &self.name {
            all.push(("USER", text(name)));
            all.push(("LOGNAME", text(name)));
        }
        if let Some(shell) = &self.shell {
            all.push(("SHELL", text(shell)));
        }
        all
    }
}

/// A line of `/etc/passwd`.
struct Line<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
    home: &'a [u8],
    shell: &'a [u8],
}

/// Finds a user by name, or by `uid[:gid]`, and checks that the guest can become it.
pub(super) fn find(text: &str) -> Result<Account, GuestError> {
    let account = look_up(text, &read("/etc/passwd"), &read("/etc/group"))?;
    if account.credentials.are_ours() || may_set_ids() {
        return Ok(account);
    }
    let own = rustix::process::geteuid().as_raw();
    let message = format!(
        "user `{text}`: this sandbox has a single user (id {own}); leave the user out, or make the sandbox \
         from an image whose user you want"
    );
    Err(fail(GuestErrorCode::Denied, message))
}

/// The account of the guest's own user, when the image knows it.
pub(super) fn own() -> Option<Account> {
    let uid = rustix::process::geteuid().as_raw();
    look_up(&uid.to_string(), &read("/etc/passwd"), b"").ok()
}

fn look_up(text: &str, passwd: &[u8], group: &[u8]) -> Result<Account, GuestError> {
    let invalid = || {
        let message = format!("user `{text}`: a name, or uid[:gid]");
        fail(GuestErrorCode::Invalid, message)
    };
    let (who, wanted_group) = match text.split_once(':') {
        Some((who, group)) => (who, Some(group.parse::<u32>().map_err(|_| invalid())?)),
        None => (text, None),
    };
    let number = who.parse::<u32>().ok();
    // The highest number means "unchanged" to the kernel.
    if who.is_empty() || number == Some(u32::MAX) || wanted_group == Some(u32::MAX) {
        return Err(invalid());
    }
    let line = lines(passwd).filter_map(parse).find(|line| match number {
        Some(uid) => line.uid == uid,
        None => line.name == who.as_bytes(),
    });
    let Some(line) = line else {
        let uid = number.ok_or_else(|| {
            let message = format!("user `{text}`: not in the sandbox's /etc/passwd");
            fail(GuestErrorCode::NotFound, message)
        })?;
        let gid = wanted_group.unwrap_or(uid);
        let credentials = Credentials {
            uid,
            gid,
            groups: vec![gid],
        };
        return Ok(Account {
            credentials,
            name: None,
            home: b"/".to_vec(),
            shell: None,
        });
    };
    let gid = wanted_group.unwrap_or(line.gid);
    let mut groups = vec![gid];
    groups.extend(
        groups_of(line.name, group)
            .filter(|other| *other != gid)
            .take(MOST_GROUPS),
    );
    Ok(Account {
        credentials: Credentials {
            uid: line.uid,
            gid,
            groups,
        },
        name: Some(line.name.to_vec()),
        home: if line.home.is_empty() {
            b"/".to_vec()
        } else {
            line.home.to_vec()
        },
        shell: (!line.shell.is_empty()).then(|| line.shell.to_vec()),
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
    let number = |at: usize| std::str::from_utf8(fields.get(at)?).ok()?.parse().ok();
    Some(Line {
        name: fields.first()?,
        uid: number(2)?,
        gid: number(3)?,
        home: fields.get(5)?,
        shell: fields.get(6)?,
    })
}

/// The groups that name a user as a member.
fn groups_of<'a>(name: &'a [u8], group: &'a [u8]) -> impl Iterator<Item = u32> + 'a {
    lines(group).filter_map(move |line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let is_member = fields
            .get(3)?
            .split(|byte| *byte == b',')
            .any(|member| member == name);
        let gid = std::str::from_utf8(fields.get(2)?).ok()?.parse().ok()?;
        is_member.then_some(gid)
    })
}

/// The file's content, cut; nothing when it cannot be read. Never waits: it must be a regular file.
fn read(path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    if std::fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && let Ok(file) = std::fs::File::open(path)
    {
        let _ = file.take(MOST_BYTES).read_to_end(&mut content);
    }
    content
}

/// Whether the guest may change user and group.
fn may_set_ids() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.is_some_and(|bits| bits & SET_IDS == SET_IDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\nbad line\nann:x:1000:1001:Ann,,,:/home/ann:/bin/zsh\nnone:x:7:7:::\n";
    const GROUP: &[u8] = b"root:x:0:\nadm:x:4:ann,bob\ndev:x:50:bob,ann\nann:x:1001:ann\n";

    #[test]
    fn users_are_found_by_name_and_number_with_their_groups() {
        let ann = look_up("ann", PASSWD, GROUP).expect("there");
        assert_eq!(
            ann.credentials,
            Credentials {
                uid: 1000,
                gid: 1001,
                groups: vec![1001, 4, 50]
            }
        );
        let text = |name: &str| {
            let all = ann.variables();
            all.into_iter()
                .find(|(key, _)| *key == name)
                .expect("set")
                .1
        };
        assert_eq!(text("HOME"), "/home/ann");
        assert_eq!(text("LOGNAME"), "ann");
        assert_eq!(text("SHELL"), "/bin/zsh");
        assert_eq!(look_up("1000", PASSWD, GROUP).expect("by number"), ann);
        let other = look_up("1000:4", PASSWD, GROUP).expect("with a group");
        assert_eq!((other.credentials.uid, other.credentials.gid), (1000, 4));
        let unknown = look_up("4242", PASSWD, GROUP).expect("any number is a user");
        assert_eq!(unknown.credentials.gid, 4242);
        assert_eq!(unknown.variables(), [("HOME", OsString::from("/"))]);
        assert_eq!(look_up("none", PASSWD, GROUP).expect("there").home, b"/");
    }

    #[test]
    fn what_names_no_user_is_refused() {
        for (text, code) in [
            ("nobody-here", GuestErrorCode::NotFound),
            ("", GuestErrorCode::Invalid),
            (":5", GuestErrorCode::Invalid),
            ("ann:dev", GuestErrorCode::Invalid),
            ("4294967295", GuestErrorCode::Invalid),
            ("0:4294967295", GuestErrorCode::Invalid),
        ] {
            assert_eq!(look_up(text, PASSWD, GROUP).expect_err(text).code, code);
        }
    }
}
