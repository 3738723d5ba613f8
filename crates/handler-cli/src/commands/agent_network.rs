//! `handler agent network`: what an agent's sandboxes asked for lately, and whether its list is enforced.

use super::agent::find;
use super::network::describe;
use crate::exit::Failure;
use crate::out::{Out, printable};
use clap::{Args, ValueEnum};
use handler_client::Client;
use handler_types::agent::AgentPatch;
use handler_types::network::Enforcement;

/// What becomes of what is not on the list.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Switch {
    /// It is let through and told
    LogOnly,
    /// It is refused
    Enforce,
}

/// `handler agent network`.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// The agent
    pub agent: String,
    /// What becomes of what is not on its list, in its running sessions at once (default: show the last decisions)
    #[arg(value_enum)]
    pub switch: Option<Switch>,
}

/// Runs it.
pub(super) async fn run(args: NetworkArgs, client: &Client, out: &Out) -> Result<(), Failure> {
    let agent = find(client, &args.agent).await?;
    let Some(switch) = args.switch else {
        let events = client.agent_egress(agent.id.as_str()).await?;
        if events.is_empty() {
            out.note("its sandboxes asked for nothing since the daemon started");
        }
        out.show(&events, |out, events| {
            let rows: Vec<Vec<String>> = events
                .iter()
                .map(|event| {
                    vec![
                        event.decision.as_str().to_owned(),
                        printable(&event.host),
                        event.connection.clone(),
                        event.secret.clone().unwrap_or_default(),
                    ]
                })
                .collect();
            out.table(&["DECISION", "HOST", "SESSION", "SECRET"], &rows);
        });
        return Ok(());
    };
    let egress = match switch {
        Switch::LogOnly => Enforcement::LogOnly,
        Switch::Enforce => Enforcement::Enforce,
    };
    let saved = client
        .patch_agent(agent.id.as_str(), &AgentPatch { egress })
        .await?;
    out.show(&saved, |out, saved| out.line(describe(&saved.network)));
    Ok(())
}
