//! `handler uninstall`: takes away what runs, the service, and on request what Handler keeps.

use super::{Outcome, daemon, setup};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// `handler uninstall`.
#[derive(Debug, Clone, Default, Args)]
pub struct UninstallArgs {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Remove settings, secrets, sessions and everything else Handler keeps, too; project folders stay
    #[arg(long)]
    pub purge: bool,
}

/// Runs it.
///
/// # Errors
/// [`Failure`]; what was removed before stays removed, and it can be run again.
pub async fn run(args: UninstallArgs, context: &Context) -> Outcome {
    for folder in &context.own_folders {
        is_removable(folder)?;
    }
    confirm(&args, context)?;
    // Only a daemon knows what there is to remove.
    daemon::start(context).await?;
    remove_work(args.purge, context).await?;
    daemon::uninstall(context).await?;
    if context.client()?.health().await.is_ok() {
        daemon::stop(context).await?;
    }
    end_filter(&context.filter_socket).await?;
    if args.purge {
        purge(context)?;
    } else {
        context.out.note("kept (`--purge` removes it):");
        for folder in context.own_folders.iter().filter(|folder| folder.exists()) {
            context.out.note(format!("  {}", folder.display()));
        }
    }
    context.out.note(format!(
        "the last step is yours: rm {}",
        context.program.display()
    ));
    Ok(0)
}

fn confirm(args: &UninstallArgs, context: &Context) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("nobody is there to ask: add --yes".into()));
    }
    context.out.note(if args.purge {
        "This ends and removes all sandboxes and sessions, and removes settings, secrets and history."
    } else {
        "This ends all sessions and removes all sandboxes. Settings, secrets and history are kept."
    });
    match setup::answer("Type yes to go on")? {
        Some(said) if said == "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was done".into())),
    }
}

/// Sessions, sandboxes and, when all is to go, images.
async fn remove_work(is_purge: bool, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let mut cursor = String::new();
    loop {
        let page = client.sessions("", &cursor, 100).await?;
        for session in &page.items {
            context.out.progress(&format!("session {}", session.id));
            if is_purge {
                client.delete_session(session.id.as_str()).await?;
            } else {
                client.stop_session(session.id.as_str()).await?;
            }
        }
        // What was removed moves the pages: begin anew until there is nothing.
        match page.next_cursor {
            Some(next) if !is_purge => cursor = next,
            Some(_) => cursor.clear(),
            None => break,
        }
    }
    loop {
        let page = client.sandboxes("", 100).await?;
        if page.items.is_empty() {
            break;
        }
        for sandbox in &page.items {
            context.out.progress(&format!("sandbox {}", sandbox.id));
            client.delete_sandbox(sandbox.id.as_str()).await?;
        }
    }
    context.out.progress("");
    Ok(())
}

/// Asks the filter to end; it outlives the daemon otherwise.
async fn end_filter(socket: &Path) -> Result<(), Failure> {
    let wrap = |error| Failure::local("cannot end the egress filter", error);
    let Ok(mut stream) = std::os::unix::net::UnixStream::connect(socket) else {
        return Ok(());
    };
    stream.write_all(b"{\"op\":\"shutdown\"}\n").map_err(wrap)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::os::unix::net::UnixStream::connect(socket).is_ok() {
        if Instant::now() > deadline {
            return Err(Failure::Failed("the egress filter does not end".into()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Removes the folders; all are tried, and what stays is named.
fn purge(context: &Context) -> Result<(), Failure> {
    let mut stays = Vec::new();
    for folder in context.own_folders.iter().filter(|folder| folder.exists()) {
        match std::fs::remove_dir_all(folder) {
            Ok(()) => context.out.note(format!("removed {}", folder.display())),
            Err(error) => stays.push(format!("{} ({error})", folder.display())),
        }
    }
    if stays.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "cannot remove {}",
        stays.join(", ")
    )))
}

/// Refuses folders that somebody named which hold more than Handler's own.
fn is_removable(folder: &Path) -> Result<(), Failure> {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let holds_home = home.is_some_and(|home| home.starts_with(folder));
    if holds_home || folder.components().count() < 3 {
        return Err(Failure::Usage(format!(
            "{} holds more than Handler: remove what is Handler's there yourself",
            folder.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_hold_more_are_not_removed() {
        assert!(is_removable(Path::new("/")).is_err());
        assert!(is_removable(Path::new("/srv")).is_err());
        assert!(is_removable(Path::new("/srv/x/handler")).is_ok());
        if let Some(home) = std::env::var_os("HOME") {
            assert!(is_removable(Path::new(&home)).is_err());
        }
    }
}
