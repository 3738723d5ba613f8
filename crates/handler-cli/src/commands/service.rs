//! The daemon as a service of the person's own systemd: the unit, and what is asked of `systemctl --user`.
//!
//! The unit's text follows systemd.service(5) and systemd.syntax(7): a word is put in double quotes with `\`
//! and `"` escaped, `%` is doubled, and `$` is doubled where a command line expands variables.

use crate::context::Context;
use crate::exit::Failure;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Name of the unit.
pub(super) const UNIT: &str = "handler.service";

/// Variables that decide where the daemon's files are and what its children find: the service gets them as they
/// are when it is installed, since systemd starts it with few.
const KEPT: [&str; 8] = [
    "PATH",
    "HANDLER_CONFIG_DIR",
    "HANDLER_STATE_DIR",
    "HANDLER_DATA_DIR",
    "HANDLER_CACHE_DIR",
    "HANDLER_RUNTIME_DIR",
    "HANDLER_PORT",
    "HANDLER_KNOWLEDGE_DIR",
];

/// The unit, for these variables.
///
/// # Errors
/// When a path cannot be written in a unit.
pub(super) fn unit(
    context: &Context,
    get: impl Fn(&str) -> Option<String>,
) -> Result<String, Failure> {
    let program = path_word(&context.program)?.replace('$', "$$");
    let log = path_text(&context.daemon_log)?;
    let kept = KEPT.iter().filter_map(|name| {
        let value = get(name).filter(|value| !value.is_empty())?;
        Some(word(&format!("{name}={value}")).map(|word| format!("Environment={word}\n")))
    });
    let environment = kept.collect::<Result<String, Failure>>()?;
    Ok(format!(
        "# Written by `handler daemon install`; `handler daemon uninstall` removes it.\n\
        [Unit]\n\
        Description=Handler: every AI agent gets its own computer\n\
        \n\
        [Service]\n\
        Type=exec\n\
        {environment}\
        ExecStart={program} serve\n\
        StandardOutput=append:{log}\n\
        StandardError=append:{log}\n\
        Restart=on-failure\n\
        RestartSec=1\n\
        # Sandboxes and sessions go on while the daemon is away.\n\
        KillMode=process\n\
        Delegate=yes\n\
        \n\
        [Install]\n\
        WantedBy=default.target\n"
    ))
}

/// One word of a unit.
fn word(text: &str) -> Result<String, Failure> {
    if text.chars().any(char::is_control) {
        return Err(Failure::Usage(format!(
            "{text:?} has a control character, which a service cannot be given"
        )));
    }
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{}\"", text.replace('%', "%%")))
}

fn utf8(path: &std::path::Path) -> Result<&str, Failure> {
    let wrong = || Failure::Usage(format!("{} is not UTF-8", path.display()));
    path.to_str().ok_or_else(wrong)
}

fn path_word(path: &std::path::Path) -> Result<String, Failure> {
    word(utf8(path)?)
}

/// A path where a unit takes the rest of the line as it is.
fn path_text(path: &std::path::Path) -> Result<String, Failure> {
    let text = utf8(path)?;
    word(text)?;
    Ok(text.replace('%', "%%"))
}

/// Where the unit is.
///
/// # Errors
/// When there is no home.
pub(super) fn file() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))
        .ok_or_else(|| Failure::Usage("HOME is not set".into()))?;
    Ok(config.join("systemd/user").join(UNIT))
}

/// Whether the person's systemd answers.
pub(super) fn has_manager() -> bool {
    // "running", "degraded", "starting"…: whatever it is, but not "offline".
    systemctl(&["is-system-running"])
        .output()
        .is_ok_and(|output| {
            let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            !state.is_empty() && state != "offline" && state != "unknown"
        })
}

/// Whether the daemon is a service here that can be asked to start.
pub(super) fn is_installed() -> bool {
    file().is_ok_and(|file| file.exists()) && has_manager()
}

/// Asks systemd for something.
///
/// # Errors
/// What it said when it refused.
pub(super) fn ask(words: &[&str]) -> Result<(), Failure> {
    let output = systemctl(words)
        .output()
        .map_err(|error| Failure::local("cannot run systemctl", error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::Failed(format!(
        "systemctl --user {}: {said}",
        words.join(" ")
    )))
}

fn systemctl(words: &[&str]) -> Command {
    let mut command = Command::new("systemctl");
    command
        .arg("--user")
        .args(words)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        assert_eq!(word("A=b c").expect("word"), "\"A=b c\"");
        assert_eq!(word(r#"a"\%n"#).expect("word"), r#""a\"\\%%n""#);
        assert!(word("a\nExecStart=/bin/evil").is_err());
    }
}
