//! `handler acp`: an agent for editors.

use super::launch::{self, LaunchArgs, Who};
use super::{Outcome, current_folder};
use crate::context::Context;
use crate::editor::{Defaults, serve};
use clap::Args;

/// `handler acp`.
#[derive(Debug, Args)]
pub struct AcpArgs {
    /// The agent, or an account or a provider for the project's agent (default: that of the project the editor's folder is in)
    #[arg(value_name = "AGENT|ACCOUNT|PROVIDER")]
    pub who: Option<String>,
    /// Work without the project's agent
    #[arg(long, conflicts_with_all = ["who", "save"])]
    pub no_agent: bool,
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// Runs it. Ends with 0 when the editor closes its end; sessions go on.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(args: AcpArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let mut defaults = Defaults {
        launch: args.launch,
        agent: None,
        no_agent: args.no_agent,
        context: context.clone(),
    };
    match &args.who {
        None => {}
        Some(word) => match launch::who(&client, word, &current_folder()?).await? {
            Who::Agent(agent) => {
                defaults.agent = Some(agent.id.to_string());
                // Said at once rather than for each conversation.
                let fits = defaults.launch.fitting(&client, *agent, None, context);
                fits.await?;
            }
            named => defaults.launch.name(&named)?,
        },
    }
    serve(client, defaults).await?;
    Ok(0)
}
