//! `handler login`: credential files of agent programs, read from a file or standard input, never from argv.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;
use handler_types::api::LoginRequest;
use handler_types::network::AllowEntry;
use handler_types::sandbox::LoginGrant;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Longest file, bytes.
const MAX_FILE: u64 = 64 * 1024;

/// What to do with logins.
#[derive(Debug, Subcommand)]
pub enum LoginAction {
    /// List logins; their files are never shown
    List,
    /// Keep the credential file of an agent program, or replace it
    Add {
        /// Its name, e.g. `codex`
        name: String,
        /// The file, e.g. `~/.codex/auth.json` (`-`: standard input)
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// A destination its tokens are given to (repeatable)
        #[arg(long, value_name = "HOST:PORT")]
        host: Vec<AllowEntry>,
    },
    /// Remove a login that no sandbox has
    Rm {
        /// Its name
        name: String,
    },
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: LoginAction, context: &Context) -> Outcome {
    let client = context.client()?;
    match action {
        LoginAction::List => {
            let logins = client.logins().await?;
            context.out.show(&logins, |out, logins| {
                let rows: Vec<Vec<String>> = logins
                    .iter()
                    .map(|login| {
                        let hosts: Vec<String> =
                            login.hosts.iter().map(ToString::to_string).collect();
                        vec![
                            login.name.clone(),
                            login.tokens.len().to_string(),
                            hosts.join(","),
                            login.renewed_at.clone().unwrap_or_default(),
                        ]
                    })
                    .collect();
                out.table(&["NAME", "TOKENS", "HOSTS", "RENEWED"], &rows);
            });
        }
        LoginAction::Add { name, file, host } => {
            let request = LoginRequest {
                file: read(&file)?,
                hosts: host,
            };
            let view = client.put_login(&name, &request).await?;
            context.out.show(&view, |out, view| {
                out.line(format!(
                    "kept {} with the tokens {}",
                    view.name,
                    view.tokens.join(", ")
                ));
            });
        }
        LoginAction::Rm { name } => {
            client.delete_login(&name).await?;
            context.out.note(format!("removed {name}"));
        }
    }
    Ok(0)
}

pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let wrong = |error| Failure::local(format!("cannot read {}", path.display()), error);
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin()
            .take(MAX_FILE + 1)
            .read_to_string(&mut text),
        false => std::fs::File::open(path)
            .map_err(wrong)?
            .take(MAX_FILE + 1)
            .read_to_string(&mut text),
    };
    read.map_err(wrong)?;
    if text.len() as u64 > MAX_FILE {
        return Err(Failure::Usage("a login's file has at most 64 KiB".into()));
    }
    Ok(text)
}

/// `NAME=PATH`, as flags of commands that make sandboxes.
pub(super) fn grants(given: &[String]) -> Result<BTreeMap<String, LoginGrant>, Failure> {
    let each = given.iter().map(|text| {
        let (login, path) = text.split_once('=').ok_or_else(|| {
            Failure::Usage(format!(
                "--login {text}: write NAME=PATH, e.g. codex=~/.codex/auth.json"
            ))
        })?;
        let grant = LoginGrant {
            login: login.to_owned(),
            hosts: Vec::new(),
        };
        Ok((inside(path, std::env::var("HOME").ok().as_deref()), grant))
    });
    each.collect()
}

/// A path that the shell has made one below this person's home (`NAME=~/…` is expanded by some) is meant below that of
/// the sandbox.
fn inside(path: &str, home: Option<&str>) -> String {
    let below = home
        .filter(|home| home.len() > 1)
        .and_then(|home| path.strip_prefix(home)?.strip_prefix('/'));
    below.map_or_else(|| path.to_owned(), |rest| format!("~/{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_own_home_is_meant_below_that_of_the_sandbox() {
        for (path, home, wanted) in [
            ("~/.codex/auth.json", Some("/root"), "~/.codex/auth.json"),
            (
                "/root/.codex/auth.json",
                Some("/root"),
                "~/.codex/auth.json",
            ),
            ("/rooted/auth.json", Some("/root"), "/rooted/auth.json"),
            ("/etc/auth.json", Some("/"), "/etc/auth.json"),
            ("/root/auth.json", None, "/root/auth.json"),
        ] {
            assert_eq!(inside(path, home), wanted);
        }
    }
}
