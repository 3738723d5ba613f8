//! `handler fork`: the same project several times, each with its own branch and sandbox.

use super::network::NetworkArgs;
use super::{Outcome, absolute, current_folder};
use crate::context::Context;
use clap::{Args, Subcommand};
use handler_types::git::{CreateFork, ForkView, MergeRequest, MergeStrategy};
use handler_types::sandbox::CreateSandbox;

/// What to do with forks. A fork is named by its sandbox.
#[derive(Debug, Subcommand)]
pub enum ForkAction {
    /// Make a fork of a project and a sandbox that works on it
    New(NewArgs),
    /// List forks and how they stand
    #[command(visible_alias = "ls")]
    List,
    /// Show one
    Show {
        /// The fork's sandbox
        fork: String,
    },
    /// Take its work back into the project; exits with 6 when there are conflicts, which change nothing
    Merge {
        /// The fork's sandbox
        fork: String,
        /// Put its commits on top of what the project has, instead of a merge commit
        #[arg(long)]
        rebase: bool,
        /// Message of the merge commit
        #[arg(long, short)]
        message: Option<String>,
    },
    /// Remove it; work that was not taken back is kept in the project under a hidden reference
    Rm {
        /// The forks' sandboxes
        #[arg(required = true)]
        forks: Vec<String>,
        /// Also when its work cannot be kept
        #[arg(long)]
        force: bool,
    },
}

/// `handler fork new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The new branch
    pub branch: String,
    /// Fork the project of this sandbox (default: the current folder)
    #[arg(long, value_name = "SANDBOX", conflicts_with = "folder")]
    pub from: Option<String>,
    /// Fork the project in this folder
    #[arg(long)]
    pub folder: Option<String>,
    /// Begin at this branch, tag or commit (default: what is checked out)
    #[arg(long)]
    pub base: Option<String>,
    /// Name of the new sandbox
    #[arg(long)]
    pub name: Option<String>,
    /// Backend of the new sandbox
    #[arg(long)]
    pub backend: Option<String>,
    /// Image of the new sandbox
    #[arg(long)]
    pub image: Option<String>,
    #[command(flatten)]
    pub network: NetworkArgs,
}

/// Exit code of a merge with conflicts.
const CONFLICTS: u8 = 6;

/// Runs it.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(action: ForkAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        ForkAction::New(args) => {
            let view = client.create_fork(&request(args)?).await?;
            out.show(&view, |out, view| {
                out.note(format!("a fork in {}", view.workdir));
                out.line(&view.name);
            });
        }
        ForkAction::List => {
            let page = client.forks().await?;
            out.show(&page.items, |out, forks| {
                let rows: Vec<Vec<String>> = forks.iter().map(row).collect();
                out.table(
                    &[
                        "FORK",
                        "BRANCH",
                        "AHEAD",
                        "BEHIND",
                        "UNCOMMITTED",
                        "PROJECT",
                    ],
                    &rows,
                );
            });
        }
        ForkAction::Show { fork } => out.document(&client.fork(&fork).await?),
        ForkAction::Merge {
            fork,
            rebase,
            message,
        } => {
            let strategy = if rebase {
                MergeStrategy::Rebase
            } else {
                MergeStrategy::Merge
            };
            let result = client
                .merge_fork(&fork, &MergeRequest { strategy, message })
                .await?;
            out.show(&result, |out, result| {
                if result.merged {
                    out.line(format!("merged: the project is at {}", result.head));
                } else {
                    out.note("conflicts; nothing was changed:");
                }
                for path in &result.conflicts {
                    out.line(crate::out::printable(path));
                }
            });
            return Ok(if result.merged { 0 } else { CONFLICTS });
        }
        ForkAction::Rm { forks, force } => {
            for fork in forks {
                let kept = client.delete_fork(&fork, force).await?;
                match (&kept.reference, &kept.commit) {
                    (Some(reference), Some(commit)) => out.note(format!(
                        "removed {fork}; its work is kept in the project: git log {reference} ({})",
                        &commit[..commit.len().min(12)]
                    )),
                    _ => out.note(format!("removed {fork}; all its work is in the project")),
                }
            }
        }
    }
    Ok(0)
}

fn request(args: NewArgs) -> Result<CreateFork, crate::exit::Failure> {
    let folder = match (&args.from, &args.folder) {
        (Some(_), _) => None,
        (None, Some(folder)) => Some(absolute(folder)?),
        (None, None) => Some(current_folder()?),
    };
    Ok(CreateFork {
        sandbox: args.from,
        folder,
        branch: args.branch,
        base: args.base,
        spec: Some(CreateSandbox {
            name: args.name,
            backend: args.backend,
            image: args.image,
            network: args.network.policy()?,
            ..CreateSandbox::default()
        }),
    })
}

fn row(fork: &ForkView) -> Vec<String> {
    vec![
        fork.name.clone(),
        fork.fork.branch.clone(),
        fork.ahead.to_string(),
        fork.behind.to_string(),
        fork.uncommitted.to_string(),
        fork.fork.folder.clone(),
    ]
}
