//! `handler folder`.

use super::{Outcome, absolute};
use crate::context::Context;
use clap::Subcommand;
use handler_types::api::FolderRequest;

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
/// [`crate::Failure`].
pub async fn run(action: FolderAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let roots = match action {
        FolderAction::List => client.folders().await?,
        FolderAction::Add { path } => {
            let path = if path.starts_with('~') {
                path
            } else {
                absolute(&path)?
            };
            client.add_folder(&FolderRequest { path }).await?
        }
        FolderAction::Rm { path } => client.remove_folder(&path).await?,
    };
    if roots.folders.is_empty() {
        context
            .out
            .note("an empty list: agents may work nowhere; add a folder with `handler folder add`");
    }
    context.out.show(&roots, |out, roots| {
        for root in &roots.folders {
            let names: Vec<&str> = root.projects.iter().map(|p| p.name.as_str()).collect();
            let missing = if root.exists { "" } else { " (missing)" };
            let projects = match names.is_empty() {
                true => String::new(),
                false => format!("  {}", names.join(", ")),
            };
            out.line(format!("{}{missing}{projects}", root.root));
        }
    });
    Ok(0)
}
