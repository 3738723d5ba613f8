//! `handler session`.

use super::Outcome;
use super::network::{NetworkArgs, describe};
use super::session_folder::{self, FolderLook};
use super::session_texts::{self, ExportArgs, SearchArgs, UsageArgs};
use crate::context::Context;
use clap::Subcommand;
use handler_types::session::{SessionState, SessionView};
use handler_types::session_text::ChangeSession;

/// What to do with sessions. A session is named by its id or the beginning of it.
#[derive(Debug, Subcommand)]
pub enum SessionAction {
    /// List sessions of the current folder, or of the project it is in
    #[command(visible_alias = "ls")]
    List {
        /// Of every folder
        #[arg(long, short)]
        all: bool,
        /// Archived ones too
        #[arg(long)]
        archived: bool,
    },
    /// Find what was said, by words
    Search(SearchArgs),
    /// Sum up tokens and cost, as agents told them
    Usage(UsageArgs),
    /// Write a session as one document
    Export(ExportArgs),
    /// Give it a title of your own
    Rename {
        /// The session
        session: String,
        /// The title; empty: the agent's again
        title: String,
    },
    /// Put it away: stopped, out of lists, its history kept
    Archive {
        /// The session
        session: String,
        /// Take it back
        #[arg(long)]
        undo: bool,
    },
    #[command(flatten)]
    Folder(FolderLook),
    /// Show one
    Show {
        /// The session
        session: String,
    },
    /// Stop it: its sandbox goes, its history stays
    Stop {
        /// The session
        session: String,
    },
    /// Cancel the turn under way
    Cancel {
        /// The session
        session: String,
    },
    /// Change what its agent may reach besides its model, live
    Network {
        /// The session
        session: String,
        #[command(flatten)]
        network: NetworkArgs,
    },
    /// Remove it with its history
    Rm {
        /// The sessions
        #[arg(required = true)]
        sessions: Vec<String>,
    },
}

/// Runs it.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(action: SessionAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        SessionAction::List { all, archived } => {
            let scope = if all {
                String::new()
            } else {
                super::project::around(&client, &super::current_folder()?).await?
            };
            let mut items = Vec::new();
            let mut cursor = String::new();
            loop {
                let query = [
                    ("scope", scope.as_str()),
                    ("cursor", &cursor),
                    ("limit", "500"),
                    ("archived", if archived { "true" } else { "" }),
                ];
                let page = client.find_sessions(&query).await?;
                items.extend(page.items);
                let Some(next) = page.next_cursor else { break };
                cursor = next;
            }
            out.show(&items, |out, items| {
                let rows: Vec<Vec<String>> = items.iter().map(row).collect();
                out.table(
                    &["ID", "STATE", "HARNESS", "MODEL", "LAST ACTIVE", "TITLE"],
                    &rows,
                );
                if items.is_empty() && !all {
                    out.note("no sessions in this folder; --all lists every folder's");
                }
            });
        }
        SessionAction::Search(args) => return session_texts::search(args, context).await,
        SessionAction::Usage(args) => return session_texts::usage(args, context).await,
        SessionAction::Export(args) => return session_texts::export(args, context).await,
        SessionAction::Rename { session, title } => {
            let change = ChangeSession {
                title: Some(title),
                ..ChangeSession::default()
            };
            return session_texts::change(&session, change, context).await;
        }
        SessionAction::Archive { session, undo } => {
            let change = ChangeSession {
                archived: Some(!undo),
                ..ChangeSession::default()
            };
            return session_texts::change(&session, change, context).await;
        }
        SessionAction::Folder(action) => return session_folder::run(action, context).await,
        SessionAction::Show { session } => out.document(&client.session(&session).await?),
        SessionAction::Stop { session } => {
            let view = client.stop_session(&session).await?;
            out.show(&view, |out, view| out.line(view.id.as_str()));
        }
        SessionAction::Cancel { session } => {
            let view = client.cancel_session(&session).await?;
            out.show(&view, |out, view| out.line(view.id.as_str()));
        }
        SessionAction::Network { session, network } => {
            let view = match network.policy()? {
                Some(policy) => client.set_session_network(&session, &policy).await?,
                None => client.session(&session).await?,
            };
            out.show(&view.network, |out, network| out.line(describe(network)));
        }
        SessionAction::Rm { sessions } => {
            for session in sessions {
                client.delete_session(&session).await?;
                out.note(format!("removed {session}"));
            }
        }
    }
    Ok(0)
}

/// The state in a word: what a person must know first.
pub(crate) fn state(view: &SessionView) -> String {
    match view.state {
        SessionState::Running if view.pending_permissions > 0 => "needs input".into(),
        SessionState::Running if view.busy => "working".into(),
        SessionState::Running => "idle".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn row(view: &SessionView) -> Vec<String> {
    let title: String = view
        .title
        .clone()
        .unwrap_or_default()
        .chars()
        .take(60)
        .collect();
    vec![
        view.id.to_string(),
        state(view),
        view.harness.clone(),
        view.model.clone(),
        view.last_activity_at.clone(),
        title.replace('\n', " "),
    ]
}
