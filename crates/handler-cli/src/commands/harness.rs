//! `handler harness`.

use super::Outcome;
use crate::context::Context;
use clap::Subcommand;

/// What to do with harnesses.
#[derive(Debug, Subcommand)]
pub enum HarnessAction {
    /// List the agent programs Handler knows
    List,
    /// Install one (pinned versions, inside a sandbox) and check that it answers
    Install {
        /// Its name
        name: String,
    },
}

/// Runs it.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(action: HarnessAction, context: &Context) -> Outcome {
    let client = context.client()?;
    match action {
        HarnessAction::List => {
            let harnesses = client.harnesses().await?;
            context.out.show(&harnesses, |out, harnesses| {
                let rows: Vec<Vec<String>> = harnesses
                    .iter()
                    .map(|h| {
                        let version = h.version.clone().or_else(|| h.error.clone());
                        vec![
                            h.name.clone(),
                            h.product.clone(),
                            h.status.clone(),
                            version.unwrap_or_default(),
                        ]
                    })
                    .collect();
                out.table(&["NAME", "PRODUCT", "STATUS", "VERSION"], &rows);
            });
        }
        HarnessAction::Install { name } => {
            context.out.note(format!(
                "installing {name} (downloads its packages; about a minute)…"
            ));
            let view = client.install_harness(&name).await?;
            context.out.show(&view, |out, view| {
                out.line(format!(
                    "{} {}",
                    view.status,
                    view.version.clone().unwrap_or_default()
                ));
            });
        }
    }
    Ok(0)
}
