//! `handler sandbox git`: look at the repository in a sandbox.

use super::Outcome;
use crate::context::Context;
use clap::Subcommand;
use handler_types::git::{GitCommit, GitStatus};

/// What to look at. Git runs in the sandbox.
#[derive(Debug, Subcommand)]
pub enum GitAction {
    /// Branch and changed paths
    Status {
        /// The sandbox
        sandbox: String,
        /// Folder inside (default: the working folder)
        #[arg(long, default_value = "")]
        path: String,
    },
    /// Commits, newest first
    Log {
        /// The sandbox
        sandbox: String,
        /// Branch, tag or commit to begin at
        #[arg(default_value = "")]
        from: String,
        /// Folder inside (default: the working folder)
        #[arg(long, default_value = "")]
        path: String,
        /// How many
        #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// A commit with its message and patch
    Show {
        /// The sandbox
        sandbox: String,
        /// The commit
        #[arg(default_value = "HEAD")]
        commit: String,
        /// Folder inside (default: the working folder)
        #[arg(long, default_value = "")]
        path: String,
    },
}

/// Runs it.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(action: GitAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        GitAction::Status { sandbox, path } => {
            let status = client.git_status(&sandbox, &path).await?;
            out.show(&status, |out, status| {
                out.line(headline(status));
                for change in &status.changes {
                    let from = change.from.as_ref().map(|from| format!("{from} -> "));
                    let line = format!(
                        "{} {}{}",
                        change.state,
                        from.unwrap_or_default(),
                        change.path
                    );
                    out.line(crate::out::printable(&line));
                }
                if status.truncated {
                    out.note("there are more changes");
                }
            });
        }
        GitAction::Log {
            sandbox,
            from,
            path,
            limit,
        } => {
            let commits = client.git_log(&sandbox, &path, &from, limit).await?;
            out.show(&commits, |out, commits| {
                let rows: Vec<Vec<String>> = commits.iter().map(row).collect();
                out.table(&["COMMIT", "WHEN", "AUTHOR", "SUBJECT", "REFS"], &rows);
            });
        }
        GitAction::Show {
            sandbox,
            commit,
            path,
        } => {
            let show = client.git_show(&sandbox, &commit, &path).await?;
            out.show(&show, |out, show| {
                let commit = &show.commit;
                let head = format!(
                    "commit {}\n{} <{}>\n{}\n\n{}\n",
                    commit.id, commit.author, commit.email, commit.at, show.message
                );
                out.text(head.as_str());
                out.text(&show.patch);
                if show.truncated {
                    out.note("the patch is longer");
                }
            });
        }
    }
    Ok(0)
}

fn headline(status: &GitStatus) -> String {
    let branch = status.branch.as_deref().unwrap_or("(no branch)");
    let head = status
        .head
        .as_deref()
        .map_or("no commit yet", |id| &id[..id.len().min(12)]);
    let upstream = status.upstream.as_ref().map(|upstream| {
        format!(
            ", {} ahead and {} behind {upstream}",
            status.ahead, status.behind
        )
    });
    let changes = match status.changes.len() {
        0 => "nothing changed".to_owned(),
        1 => "1 path changed".to_owned(),
        n => format!("{n} paths changed"),
    };
    format!(
        "{branch} at {head}{}: {changes}",
        upstream.unwrap_or_default()
    )
}

fn row(commit: &GitCommit) -> Vec<String> {
    vec![
        commit.id.chars().take(12).collect(),
        commit.at.clone(),
        commit.author.clone(),
        commit.subject.clone(),
        commit.refs.join(", "),
    ]
}
