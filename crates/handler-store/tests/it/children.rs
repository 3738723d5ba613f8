//! Runs one test of this program in a process of its own, so that it can be limited or killed.

use std::process::{Command, Stdio};

/// Says to a child which part it plays.
pub(crate) const PART: &str = "HANDLER_STORE_TEST_PART";

/// The file or folder a child works on, when this process is the child for `part`.
pub(crate) fn part(part: &str) -> Option<std::path::PathBuf> {
    let given = std::env::var(PART).ok()?;
    let (name, path) = given.split_once('=')?;
    (name == part).then(|| path.into())
}

/// A command that runs test `name` as a child. `shell` is a shell prefix, e.g. `ulimit -f 8;`.
pub(crate) fn child(name: &str, part: &str, path: &std::path::Path, shell: &str) -> Command {
    let program = std::env::current_exe().expect("own program");
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{shell} exec \"$0\" \"$@\""))
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(PART, format!("{part}={}", path.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}
