//! Which shell takes a command line.

use super::prepare::find_program;
use super::user::{self, Account};
use crate::fail;
use handler_types::guest::{GuestError, GuestErrorCode};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// Shells that take `-lc`; an account may name other programs, such as one that refuses to log in.
const KNOWN: [&[u8]; 8] = [
    b"bash", b"zsh", b"sh", b"dash", b"ash", b"ksh", b"mksh", b"fish",
];

/// The arguments that run `line`: by the user's own shell, else bash, sh, or that of busybox.
pub(super) fn command_line(
    line: String,
    account: Option<&Account>,
    path: Option<&OsString>,
) -> Result<Vec<String>, GuestError> {
    let own = match account {
        Some(account) => account.shell.clone(),
        None => user::own().and_then(|account| account.shell),
    };
    let own = own
        .filter(|shell| is_usable(shell))
        .map(|shell| as_argument(&shell));
    let found = own.flatten().or_else(|| {
        ["bash", "sh"].into_iter().find_map(|name| {
            find_program(name, path, b"/")
                .ok()
                .and_then(|shell| as_argument(&shell))
        })
    });
    if let Some(shell) = found {
        return Ok(vec![shell, "-lc".to_owned(), line]);
    }
    let busybox = find_program("busybox", path, b"/")
        .ok()
        .and_then(|found| as_argument(&found));
    if let Some(busybox) = busybox {
        return Ok(vec![busybox, "sh".to_owned(), "-lc".to_owned(), line]);
    }
    let message = "no shell in this sandbox (bash, sh and busybox were looked for); give the program and its \
                   arguments instead of a command line";
    Err(fail(GuestErrorCode::NotFound, message))
}

/// Whether it is a shell we know how to ask, and there.
fn is_usable(shell: &[u8]) -> bool {
    let name = shell.rsplit(|byte| *byte == b'/').next().unwrap_or(shell);
    shell.first() == Some(&b'/')
        && KNOWN.contains(&name)
        && std::path::Path::new(OsStr::from_bytes(shell)).is_file()
}

/// A path as an argument; none for one that is not UTF-8.
fn as_argument(path: &[u8]) -> Option<String> {
    std::str::from_utf8(path).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_and_a_program_that_is_none_is_not_taken() {
        let argv = command_line("echo hi".to_owned(), None, None).expect("a shell is here");
        assert_eq!(argv[1..], ["-lc", "echo hi"]);
        assert!(is_usable(b"/bin/sh"));
        for other in [
            &b"/bin/false"[..],
            b"sh",
            b"/nowhere/bash",
            b"/usr/sbin/nologin",
        ] {
            assert!(!is_usable(other));
        }
    }
}
