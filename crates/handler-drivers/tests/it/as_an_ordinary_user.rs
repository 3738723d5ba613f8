//! All of it once more without root's rights, when root runs the tests.

use crate::world::{guest_program, skip};
use std::process::Command;

/// An ordinary user that need not be in any list.
const USER: &str = "61234";
const MARK: &str = "HANDLER_TEST_ORDINARY_USER";

#[test]
fn everything_holds_for_an_ordinary_user_too() {
    let name = "everything_holds_for_an_ordinary_user_too";
    if !rustix::process::geteuid().is_root() {
        return;
    }
    assert!(
        std::env::var_os(MARK).is_none(),
        "the ordinary user is root"
    );
    let folder = tempfile::tempdir().expect("temp folder");
    std::os::unix::fs::chown(folder.path(), USER.parse().ok(), USER.parse().ok()).expect("chown");
    let tests = std::env::current_exe().expect("own path");
    let as_user = || {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid",
                USER,
                "--regid",
                USER,
                "--clear-groups",
                "--inh-caps=-all",
            ])
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .env("HANDLER_GUEST", guest_program())
            .env(MARK, "1");
        command
    };
    let can = as_user().arg("test").args(["-x"]).arg(&tests).status();
    let can_guest = as_user()
        .arg("test")
        .args(["-x"])
        .arg(guest_program())
        .status();
    if !can.is_ok_and(|status| status.success()) || !can_guest.is_ok_and(|status| status.success())
    {
        skip(
            name,
            "no setpriv, or the test programs lie where an ordinary user may not go",
        );
        return;
    }
    let output = as_user()
        .arg(&tests)
        // Builds of rootless Podman need subordinate ids, which this user has not.
        .args(["--skip", name, "--skip", "oci::", "--skip", "oci_images::"])
        .args(["--test-threads", "2", "--nocapture"])
        .output()
        .expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    for line in err.lines().filter(|line| line.starts_with("SKIP")) {
        eprintln!("{line} (as an ordinary user)");
    }
    assert!(output.status.success(), "{out}\n{err}");
}
