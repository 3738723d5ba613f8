//! `handler attach`: a session from where it is.

use super::{Outcome, current_folder};
use crate::chat::{Chat, Until};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;

/// `handler attach`.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The session (default: the last active one of this folder, else of all)
    pub session: Option<String>,
    /// Show only what came after this event
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    pub after: u64,
    /// Send a prompt and leave at the end of its turn
    #[arg(long, short)]
    pub prompt: Option<String>,
    /// Show what there is and leave
    #[arg(long, conflicts_with = "prompt")]
    pub no_follow: bool,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(args: AttachArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let session = match &args.session {
        Some(id) => client.session(id).await?,
        None => {
            let here = client.sessions(&current_folder()?, "", 1).await?.items;
            let found = match here.into_iter().next() {
                Some(session) => Some(session),
                None => client.sessions("", "", 1).await?.items.into_iter().next(),
            };
            found.ok_or_else(|| {
                Failure::Usage("there is no session; `handler run` makes one".into())
            })?
        }
    };
    context.out.note(format!(
        "session {} — {} in {}",
        session.id, session.harness, session.scope
    ));
    let mut chat = Chat::attach(&client, &session, args.after, context).await?;
    if args.no_follow {
        return chat.leave().await;
    }
    match args.prompt {
        Some(prompt) => {
            chat.prompt(&prompt).await?;
            chat.follow(Until::OwnTurnEnd).await
        }
        None => chat.follow(Until::Left).await,
    }
}
