//! `handler knowledge`: folders of notes that agents may be given to read.

use super::{Outcome, absolute};
use crate::context::Context;
use crate::out::Out;
use clap::Subcommand;
use handler_types::knowledge::{
    KnowledgeFolderRequest, KnowledgeFolderView, KnowledgeListing, KnowledgeSource,
    SetKnowledgeRootRequest,
};

/// What to do with knowledge folders. Their paths are relative to the knowledge root.
#[derive(Debug, Subcommand)]
pub enum KnowledgeAction {
    /// List the folders, three levels deep
    #[command(visible_alias = "ls")]
    List,
    /// Say where they lie, or show it; agents' folders follow
    Root {
        /// The folder
        folder: Option<String>,
        /// Make it when it is not there
        #[arg(long, requires = "folder")]
        create: bool,
        /// `~/knowledge` again
        #[arg(long, conflicts_with = "folder")]
        default: bool,
    },
    /// Make a folder
    Add {
        /// The new folder
        path: String,
    },
    /// Show what is in a folder
    Show {
        /// The folder (default: the root)
        path: Option<String>,
    },
    /// Print a note
    Read {
        /// The note
        path: String,
    },
}

/// Runs it.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(action: KnowledgeAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        KnowledgeAction::List => {
            let listing = client.knowledge().await?;
            if !listing.exists {
                out.note(format!(
                    "{} does not exist: make it, or choose another with `handler knowledge root`",
                    listing.root
                ));
            }
            out.show(&listing, |out, listing| {
                for folder in &listing.folders {
                    out.line(folder);
                }
            });
        }
        KnowledgeAction::Root {
            folder,
            create,
            default,
        } => {
            let listing = match (folder, default) {
                (None, false) => client.knowledge().await?,
                (folder, _) => {
                    let root = match folder {
                        Some(folder) if !folder.starts_with('~') => Some(absolute(&folder)?),
                        folder => folder,
                    };
                    let request = SetKnowledgeRootRequest { root, create };
                    client.set_knowledge_root(&request).await?
                }
            };
            out.show(&listing, root);
        }
        KnowledgeAction::Add { path } => {
            let request = KnowledgeFolderRequest { path };
            let made = client.make_knowledge_folder(&request).await?;
            out.show(&made, |out, made| out.line(&made.path));
        }
        KnowledgeAction::Show { path } => {
            let path = path.unwrap_or_default();
            let view = client.browse_knowledge(&path).await?;
            out.show(&view, folder);
        }
        KnowledgeAction::Read { path } => {
            let note = client.knowledge_note(&path).await?;
            out.show(&note, |out, note| {
                out.line(note.text.trim_end_matches('\n'));
            });
        }
    }
    Ok(0)
}

fn root(out: &Out, listing: &KnowledgeListing) {
    out.line(&listing.root);
    let why = match listing.source {
        KnowledgeSource::Env => "as HANDLER_KNOWLEDGE_DIR says",
        KnowledgeSource::Config => "as knowledge.toml says",
        KnowledgeSource::Default => "as usual",
    };
    let is_there = if listing.exists {
        ""
    } else {
        "; it does not exist"
    };
    out.note(format!("{why}{is_there}"));
}

fn folder(out: &Out, view: &KnowledgeFolderView) {
    for name in &view.folders {
        out.line(format!("{name}/"));
    }
    for name in &view.notes {
        out.line(name);
    }
}
