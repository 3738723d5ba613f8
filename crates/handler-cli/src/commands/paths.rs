//! `handler sandbox stat`, `mkdir`, `mv`, `rm`, `chmod` and `watch`.

use super::Outcome;
use super::files::{bits, split};
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;
use handler_client::SocketMessage;
use handler_client::transport::encode;
use handler_types::api::{ChmodRequest, MkdirRequest, MoveRequest};
use handler_types::guest::WatchEvent;

/// What to do with paths. Each is SANDBOX:PATH; a relative path is below the working folder.
#[derive(Debug, Subcommand)]
pub enum PathAction {
    /// Describe a path inside
    Stat {
        /// SANDBOX:PATH
        at: String,
        /// Its SHA-256 as well
        #[arg(long)]
        sha256: bool,
    },
    /// Make a folder inside
    Mkdir {
        /// SANDBOX:PATH
        at: String,
        /// Those above it too, and no error when it exists
        #[arg(long, short)]
        parents: bool,
    },
    /// Rename a path inside
    Mv {
        /// SANDBOX:PATH
        from: String,
        /// The new path
        to: String,
        /// Replace what is there
        #[arg(long, short)]
        force: bool,
    },
    /// Remove a path inside
    Rm {
        /// SANDBOX:PATH
        at: String,
        /// A folder with all it holds
        #[arg(long, short)]
        recursive: bool,
    },
    /// Set permission bits inside
    Chmod {
        /// Octal, e.g. 755
        mode: String,
        /// SANDBOX:PATH
        at: String,
        /// All that a folder holds as well
        #[arg(long, short)]
        recursive: bool,
    },
    /// Print what changes at a path inside, until it is gone
    Watch {
        /// SANDBOX:PATH
        at: String,
        /// Folders below as well
        #[arg(long, short)]
        recursive: bool,
    },
}

fn place(at: &str) -> Result<(&str, &str), Failure> {
    split(at).ok_or_else(|| Failure::Usage("write SANDBOX:PATH, e.g. box:/tmp".into()))
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub(super) async fn run(action: PathAction, context: &Context) -> Outcome {
    let client = context.client()?;
    match action {
        PathAction::Stat { at, sha256 } => {
            let (sandbox, path) = place(&at)?;
            let entry = client.stat_path(sandbox, path).await?;
            let hash = match sha256 {
                true => Some(client.hash_path(sandbox, path).await?),
                false => None,
            };
            context.out.show(&entry, |out, entry| {
                let target = entry.target.as_ref().map(|to| format!(" -> {to}"));
                out.line(format!(
                    "{} {}:{} {} {}{}",
                    bits(entry),
                    entry.uid,
                    entry.gid,
                    entry.size,
                    crate::out::printable(&entry.path),
                    crate::out::printable(&target.unwrap_or_default()),
                ));
            });
            if let Some(hash) = hash {
                context.out.line(hash.sha256);
            }
        }
        PathAction::Mkdir { at, parents } => {
            let (sandbox, path) = place(&at)?;
            let path = path.to_owned();
            client
                .mkdir(sandbox, &MkdirRequest { path, parents })
                .await?;
        }
        PathAction::Mv { from, to, force } => {
            let (sandbox, path) = place(&from)?;
            let request = MoveRequest {
                from: path.to_owned(),
                to,
                overwrite: force,
            };
            client.move_path(sandbox, &request).await?;
        }
        PathAction::Rm { at, recursive } => {
            let (sandbox, path) = place(&at)?;
            client.remove_path(sandbox, path, recursive).await?;
        }
        PathAction::Chmod {
            mode,
            at,
            recursive,
        } => {
            let (sandbox, path) = place(&at)?;
            let request = ChmodRequest {
                path: path.to_owned(),
                mode,
                recursive,
            };
            client.chmod_path(sandbox, &request).await?;
        }
        PathAction::Watch { at, recursive } => return watch(&at, recursive, context).await,
    }
    Ok(0)
}

async fn watch(at: &str, recursive: bool, context: &Context) -> Outcome {
    let (sandbox, path) = place(at)?;
    let address = format!(
        "/v1/sandboxes/{}/files/watch?path={}&recursive={recursive}",
        encode(sandbox),
        encode(path)
    );
    let mut socket = context.client()?.socket(&address, "watch.v1").await?;
    loop {
        match socket.next().await {
            SocketMessage::Text(text) if context.out.json => context.out.line(text),
            SocketMessage::Text(text) => {
                if let Ok(event) = serde_json::from_str::<WatchEvent>(&text) {
                    let kind = format!("{:?}", event.kind).to_lowercase();
                    let to = event.to.map(|to| format!(" -> {to}")).unwrap_or_default();
                    let line = format!("{kind:8} {}{to}", event.path);
                    context.out.line(crate::out::printable(&line));
                }
            }
            SocketMessage::Binary(_) => {}
            SocketMessage::Closed { reason, .. } => {
                context.out.note(reason);
                return Ok(0);
            }
        }
    }
}
