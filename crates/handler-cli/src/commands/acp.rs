//! `handler acp`: an agent for editors.

use super::Outcome;
use super::network::NetworkArgs;
use super::run::Permissions;
use crate::context::Context;
use crate::editor::{Defaults, serve};
use clap::Args;

/// `handler acp`.
#[derive(Debug, Args)]
pub struct AcpArgs {
    /// Agent program (default: the first installed one that fits)
    #[arg(long)]
    pub harness: Option<String>,
    /// Provider (default: the only one that fits)
    #[arg(long)]
    pub provider: Option<String>,
    /// Where agents run (default: native; podman and docker: in the agent's image)
    #[arg(long)]
    pub backend: Option<String>,
    /// Model (default: the provider's first)
    #[arg(long)]
    pub model: Option<String>,
    /// How free agents are (default: bypass)
    #[arg(long, value_enum)]
    pub permissions: Option<Permissions>,
    #[command(flatten)]
    pub network: NetworkArgs,
}

/// Runs it. Ends with 0 when the editor closes its end; sessions go on.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(args: AcpArgs, context: &Context) -> Outcome {
    let defaults = Defaults {
        harness: args.harness,
        provider: args.provider,
        model: args.model,
        backend: args.backend,
        permissions: args.permissions.map(Into::into),
        network: args.network.policy()?,
    };
    serve(context.client()?, defaults).await?;
    Ok(0)
}
