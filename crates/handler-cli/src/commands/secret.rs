//! `handler secret`: values come from a prompt without echo, a file or standard input, never from argv.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;
use handler_types::api::SecretRequest;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Longest value, bytes.
const MAX_VALUE: u64 = 64 * 1024;

/// What to do with secrets.
#[derive(Debug, Subcommand)]
pub enum SecretAction {
    /// List secrets; values are never shown
    List,
    /// Store a secret, asked for without echo
    Set {
        /// Its path, e.g. `tokens/registry`
        path: String,
        /// Read it from a file (`-`: standard input)
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// For people
        #[arg(long)]
        description: Option<String>,
    },
    /// Remove a secret
    Rm {
        /// Its path
        path: String,
    },
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: SecretAction, context: &Context) -> Outcome {
    let client = context.client()?;
    match action {
        SecretAction::List => {
            let secrets = client.secrets().await?;
            context.out.show(&secrets, |out, secrets| {
                let rows: Vec<Vec<String>> = secrets
                    .iter()
                    .map(|s| {
                        vec![
                            s.path.clone(),
                            s.updated_at.clone(),
                            s.description.clone().unwrap_or_default(),
                        ]
                    })
                    .collect();
                out.table(&["PATH", "UPDATED", "DESCRIPTION"], &rows);
            });
        }
        SecretAction::Set {
            path,
            file,
            description,
        } => {
            let value = read_secret(file.as_deref(), &path)?;
            let view = client
                .set_secret(&path, &SecretRequest { value, description })
                .await?;
            context
                .out
                .show(&view, |out, view| out.line(format!("stored {}", view.path)));
        }
        SecretAction::Rm { path } => {
            client.delete_secret(&path).await?;
            context.out.note(format!("removed {path}"));
        }
    }
    Ok(0)
}

/// Reads a value: from a file, from standard input when it is no terminal, else asked for without echo.
/// One trailing line end is taken off.
///
/// # Errors
/// An unreadable file, an empty or too long value.
pub fn read_secret(file: Option<&Path>, what: &str) -> Result<String, Failure> {
    let text = match file {
        Some(path) if path != Path::new("-") => {
            let file = std::fs::File::open(path)
                .map_err(|e| Failure::local(format!("cannot read {}", path.display()), e))?;
            read_bounded(file)?
        }
        None if std::io::stdin().is_terminal() => ask(what)?,
        _ => read_bounded(std::io::stdin())?,
    };
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() {
        return Err(Failure::Usage(format!("{what}: the value is empty")));
    }
    Ok(value.to_owned())
}

fn read_bounded(from: impl std::io::Read) -> Result<String, Failure> {
    let mut text = String::new();
    from.take(MAX_VALUE + 2)
        .read_to_string(&mut text)
        .map_err(|e| Failure::local("cannot read the value", e))?;
    if text.len() as u64 > MAX_VALUE {
        return Err(Failure::Usage("the value is longer than 64 KiB".into()));
    }
    Ok(text)
}

fn ask(what: &str) -> Result<String, Failure> {
    let stdin = std::io::stdin();
    let wrap = |e: rustix::io::Errno| Failure::local("cannot use the terminal", e.into());
    let before = tcgetattr(&stdin).map_err(wrap)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(wrap)?;
    write!(std::io::stderr(), "{what}: ").ok();
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &before).ok();
    writeln!(std::io::stderr()).ok();
    read.map_err(|e| Failure::local("cannot read the value", e))?;
    Ok(line)
}
