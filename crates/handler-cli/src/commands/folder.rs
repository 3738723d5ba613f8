//! `handler folder`.

use super::{Outcome, absolute};
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;

/// What to do with work folders.
#[derive(Debug, Subcommand)]
pub enum FolderAction {
    /// List the folders agents may work in
    List,
    /// Let agents work in a folder and below
    Add {
        /// The folder
        path: String,
    },
    /// Take a folder off the list
    Rm {
        /// The folder, as listed
        path: String,
    },
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: FolderAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let mut roots = client.folders().await?;
    match action {
        FolderAction::List => {}
        FolderAction::Add { path } => {
            let path = if path.starts_with('~') {
                path
            } else {
                absolute(&path)?
            };
            if !roots.contains(&path) {
                roots.push(path);
            }
            roots = client.set_folders(&roots).await?;
        }
        FolderAction::Rm { path } => {
            let count = roots.len();
            roots.retain(|root| *root != path);
            if roots.len() == count {
                return Err(Failure::Usage(format!("{path} is not on the list")));
            }
            roots = client.set_folders(&roots).await?;
        }
    }
    context.out.show(&roots, |out, roots| {
        for root in roots {
            out.line(root);
        }
    });
    Ok(0)
}
