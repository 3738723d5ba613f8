//! The MCP server that an image's check gives its agent, to see that it is started, and with what.

use crate::app::agent::give;
use handler_engine::driver::FolderOwner;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the server may take to be started after the session is open.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// Set in the sandbox; the server must see it.
pub(super) const MARK: &str = "HANDLER_IMAGE_CHECK";

/// The server: writes down its environment, then answers the little a client asks at the start.
const PROBE: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
env > environment.new && mv environment.new environment
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id" *: *\([0-9][0-9]*\).*/\1/p')
    [ -n "$id" ] || continue
    case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"probe","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[]}' ;;
    *) result='{}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// Where it is in the project.
pub(super) fn path(project: &Path) -> PathBuf {
    project.join(".check/server")
}

/// Puts it there, for the user that the agent runs as.
pub(super) fn put(project: &Path, owner: Option<FolderOwner>) -> std::io::Result<()> {
    let (folder, server) = (project.join(".check"), path(project));
    std::fs::create_dir(&folder)?;
    std::fs::write(&server, PROBE)?;
    std::fs::set_permissions(&server, std::fs::Permissions::from_mode(0o700))?;
    give(&server, owner)?;
    give(&folder, owner)
}

/// Waits for its environment and looks at it.
pub(super) async fn started(project: &Path, mark: &str, keys: &[String]) -> Result<(), String> {
    let path = project.join(".check/environment");
    let deadline = tokio::time::Instant::now() + STARTED_WITHIN;
    // Written inside by a program that is not trusted: a plain file of sane size, or nothing.
    let environment = loop {
        match std::fs::symlink_metadata(&path) {
            Ok(data) if data.is_file() && data.len() < 1024 * 1024 => {
                break std::fs::read(&path).map_err(|error| error.to_string())?;
            }
            _ if tokio::time::Instant::now() > deadline => {
                return Err("it does not start the MCP server it is given".to_owned());
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    let environment = String::from_utf8_lossy(&environment);
    if !environment
        .lines()
        .any(|line| line == format!("{MARK}={mark}"))
    {
        return Err("its MCP server does not see the sandbox's environment".to_owned());
    }
    match environment
        .lines()
        .find(|line| keys.iter().any(|key| line.contains(key.as_str())))
    {
        Some(line) => {
            let name = line.split('=').next().unwrap_or_default();
            Err(format!("its MCP server sees the key, in {name}"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_servers_environment_is_looked_at_for_mark_and_key() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join(".check")).expect("a folder");
        let see = async |text: &str| {
            std::fs::write(dir.path().join(".check/environment"), text).expect("written");
            started(dir.path(), "b_1", &["sk-x".to_owned()]).await
        };
        assert_eq!(see("A=1\nHANDLER_IMAGE_CHECK=b_1\n").await, Ok(()));
        assert!(
            see("A=1\n")
                .await
                .expect_err("no mark")
                .contains("environment")
        );
        let seen = see("HANDLER_IMAGE_CHECK=b_1\nKEY=sk-x\n")
            .await
            .expect_err("the key");
        assert!(seen.ends_with("KEY") && !seen.contains("sk-x"), "{seen}");
    }
}
