//! `handler session changes|diff|files|find|cat|mounts|revert|reveal`: what an agent does in its folder.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use crate::out::{Out, printable};
use clap::{Args, Subcommand};
use handler_types::session_folder::{
    EntryKind, FileChange, MountKind, RevealRequest, RevertRequest, SessionChanges, SessionDiff,
};

/// A file or folder of a session.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// The session
    pub session: String,
    /// Relative to its folder (default: the folder itself)
    #[arg(default_value = "", hide_default_value = true)]
    pub path: String,
    /// Look into this mount instead, by its target as `mounts` lists it
    #[arg(
        long,
        value_name = "TARGET",
        default_value = "",
        hide_default_value = true
    )]
    pub mount: String,
}

/// What an agent does in its folder.
#[derive(Debug, Subcommand)]
pub enum FolderLook {
    /// List the files its agent changed since it started
    Changes {
        /// The session
        session: String,
    },
    /// Show what changed in its files, with the ids of hunks for `revert`
    Diff {
        /// The session
        session: String,
        /// Files, relative to its folder (default: all that changed)
        paths: Vec<String>,
    },
    /// List what is in its folder
    Files(PlaceArgs),
    /// Find files by a part of their path; nothing: those changed last
    Find {
        /// The session
        session: String,
        /// A part of a path
        #[arg(default_value = "", hide_default_value = true)]
        text: String,
    },
    /// Print a file
    #[command(visible_alias = "show-file")]
    Cat {
        #[command(flatten)]
        place: PlaceArgs,
        /// As it was in the commit of the session's start
        #[arg(long)]
        before: bool,
    },
    /// List what its agent sees of this machine
    Mounts {
        /// The session
        session: String,
    },
    /// Take back what changed in a file: all of it, or one hunk
    Revert {
        /// The session
        session: String,
        /// The file, relative to its folder
        path: String,
        /// Only this hunk, by its id as `diff` prints it
        #[arg(long, value_name = "ID")]
        hunk: Option<String>,
        /// Only if the file still has this SHA-256 (default: as it is now)
        #[arg(long, value_name = "SHA256")]
        digest: Option<String>,
    },
    /// Show a file or folder in the desktop's file manager
    Reveal(PlaceArgs),
}

/// Runs it.
pub(super) async fn run(action: FolderLook, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        FolderLook::Changes { session } => {
            let changes = client.session_changes(&session).await?;
            out.show(&changes, show_changes);
        }
        FolderLook::Diff { session, paths } => {
            let paths = match paths.is_empty() {
                false => paths,
                true => {
                    let changed = client.session_changes(&session).await?.files;
                    changed.into_iter().map(|file| file.path).collect()
                }
            };
            let mut diffs = Vec::new();
            for path in paths {
                diffs.push(client.session_diff(&session, &path).await?);
            }
            out.show(&diffs, |out, diffs| {
                diffs.iter().for_each(|diff| show_diff(out, diff));
            });
        }
        FolderLook::Files(place) => files(place, context).await?,
        FolderLook::Find { session, text } => {
            let found = client.session_find(&session, &text).await?;
            out.show(&found, |out, found| {
                found
                    .paths
                    .iter()
                    .for_each(|path| out.line(printable(path)));
                if found.not_followed {
                    out.note("there are too many files to look at all of them");
                }
            });
        }
        FolderLook::Cat { place, before } => return cat(place, before, context).await,
        FolderLook::Mounts { session } => mounts(&session, context).await?,
        FolderLook::Revert {
            session,
            path,
            hunk,
            digest,
        } => {
            let digest = match digest {
                Some(digest) => Some(digest),
                None => client.session_diff(&session, &path).await?.digest,
            };
            let request = RevertRequest { path, hunk, digest };
            let left = client.session_revert(&session, &request).await?;
            out.show(&left, |out, left| {
                let hunks = left.hunks.len();
                out.note(format!("{}: {hunks} hunks are left", printable(&left.path)));
            });
        }
        FolderLook::Reveal(place) => {
            let request = RevealRequest {
                path: place.path,
                mount: (!place.mount.is_empty()).then_some(place.mount),
            };
            client.session_reveal(&place.session, &request).await?;
        }
    }
    Ok(0)
}

fn letter(change: Option<FileChange>) -> &'static str {
    match change {
        Some(FileChange::Added) => "A",
        Some(FileChange::Modified) => "M",
        Some(FileChange::Deleted) => "D",
        None => " ",
    }
}

fn show_changes(out: &Out, changes: &SessionChanges) {
    for file in &changes.files {
        let path = printable(&file.path).replace('\n', "\u{fffd}");
        out.line(format!("{} {path}", letter(Some(file.change))));
    }
    if changes.not_followed {
        out.note("there are too many files to follow, or the session has not started: changes are missing here");
    }
}

fn show_diff(out: &Out, diff: &SessionDiff) {
    let path = printable(&diff.path).replace('\n', "\u{fffd}");
    out.line(out.bold(&format!("{} {path}", letter(diff.change))));
    if let Some(why) = &diff.why {
        out.line(format!("  {why}"));
    }
    for hunk in &diff.hunks {
        let place = format!(
            "@@ -{},{} +{},{} @@ {}",
            hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines, hunk.id
        );
        out.line(out.paint("36", &place));
        for line in &hunk.lines {
            let text = printable(line);
            match line.as_bytes().first() {
                Some(b'-') => out.line(out.paint("31", &text)),
                Some(b'+') => out.line(out.paint("32", &text)),
                _ => out.line(text),
            }
        }
    }
}

async fn files(place: PlaceArgs, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let found = client
        .session_folder(&place.session, &place.path, &place.mount)
        .await?;
    context.out.show(&found, |out, found| {
        for entry in &found.entries {
            let name = printable(&entry.name).replace('\n', "\u{fffd}");
            let target = entry.target.as_deref().unwrap_or_default();
            match entry.kind {
                EntryKind::Folder => out.line(format!("{name}/")),
                EntryKind::Link => out.line(format!("{name} -> {}", printable(target))),
                EntryKind::File => out.line(name),
            }
        }
        if found.more {
            out.note("there is more than is shown");
        }
    });
    Ok(())
}

async fn cat(place: PlaceArgs, before: bool, context: &Context) -> Outcome {
    let client = context.client()?;
    let file = client
        .session_file(&place.session, &place.path, &place.mount)
        .await?;
    if context.out.json {
        context.out.document(&file);
        return Ok(0);
    }
    let text = if before { file.before } else { file.text };
    let Some(text) = text else {
        let why = match before {
            true => "there is no earlier version of it",
            false => "it is no text of at most 1 MiB, or is gone",
        };
        return Err(Failure::Failed(format!("{}: {why}", printable(&file.path))));
    };
    context.out.text(printable(&text));
    Ok(0)
}

async fn mounts(session: &str, context: &Context) -> Result<(), Failure> {
    let found = context.client()?.session_mounts(session).await?;
    context.out.show(&found, |out, found| {
        let rows: Vec<Vec<String>> = found
            .mounts
            .iter()
            .map(|mount| {
                vec![
                    mount.target.clone(),
                    word(mount.kind).to_owned(),
                    if mount.read_only {
                        "read-only"
                    } else {
                        "can change"
                    }
                    .to_owned(),
                    if mount.browsable { "yes" } else { "no" }.to_owned(),
                ]
            })
            .collect();
        out.table(&["TARGET", "WHAT", "AGENT", "SHOWN"], &rows);
    });
    Ok(())
}

fn word(kind: MountKind) -> &'static str {
    match kind {
        MountKind::Scope => "the session's folder",
        MountKind::Folder => "folder",
        MountKind::Knowledge => "knowledge",
        MountKind::Subject => "subject",
        MountKind::Config => "config",
        MountKind::State => "state",
        MountKind::Cache => "cache",
        MountKind::Tools => "tools",
        MountKind::Other => "other",
    }
}
