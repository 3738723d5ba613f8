//! All of it once more with rootless Podman, when root runs the tests: as a user who has subordinate ids.

use crate::world::{guest_program, skip};
use std::process::Command;

const MARK: &str = "HANDLER_TEST_ROOTLESS_PODMAN";

/// A user with subordinate ids: name, uid, gid, home.
fn user() -> Option<(String, String, String, String)> {
    let listed = std::fs::read_to_string("/etc/subuid").ok()?;
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let wanted = std::env::var("HANDLER_TEST_ROOTLESS_USER").ok();
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let &[name, _, uid, gid, _, home, _] = fields.as_slice() else {
            return None;
        };
        let storage = std::path::Path::new(home).join(".config/containers/storage.conf");
        let fits = listed
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")))
            && uid.parse::<u32>().is_ok_and(|uid| uid >= 1000)
            && wanted
                .as_ref()
                .map_or(storage.exists(), |wanted| wanted == name);
        fits.then(|| [name, uid, gid, home].map(str::to_owned).into())
    })
}

#[test]
fn everything_holds_with_rootless_podman_too() {
    let name = "everything_holds_with_rootless_podman_too";
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some((user, uid, gid, home)) = user() else {
        skip(
            name,
            "no user has lines in /etc/subuid and ~/.config/containers/storage.conf (or HANDLER_TEST_ROOTLESS_USER)",
        );
        return;
    };
    let folder = tempfile::Builder::new()
        .prefix("hr")
        .tempdir()
        .expect("temp folder");
    let owner = (uid.parse().ok(), gid.parse().ok());
    std::os::unix::fs::chown(folder.path(), owner.0, owner.1).expect("chown");
    let tests = std::env::current_exe().expect("own path");
    let as_user = || {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid",
                &uid,
                "--regid",
                &gid,
                "--init-groups",
                "--inh-caps=-all",
            ])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", &home)
            .env("USER", &user)
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("TMPDIR", folder.path())
            .env("HANDLER_GUEST", guest_program())
            .env(MARK, "1")
            .current_dir(folder.path());
        command
    };
    let can = as_user().arg("test").arg("-x").arg(&tests).status();
    if !can.is_ok_and(|status| status.success()) {
        skip(
            name,
            "no setpriv, or the test programs lie where an ordinary user may not go",
        );
        return;
    }
    let output = as_user()
        .arg(&tests)
        .args([
            "oci::",
            "--skip",
            name,
            "--test-threads",
            "2",
            "--nocapture",
        ])
        .output()
        .expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    for line in err.lines().filter(|line| line.starts_with("SKIP")) {
        eprintln!("{line} (rootless)");
    }
    // The pause process of the user's Podman holds the folder's sockets.
    let _ = as_user().args(["podman", "system", "migrate"]).output();
    assert!(output.status.success(), "{out}\n{err}");
}
