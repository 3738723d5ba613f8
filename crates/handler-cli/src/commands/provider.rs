//! `handler provider`.

use super::Outcome;
use super::secret::read_secret;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use handler_types::api::ProviderRequest;
use handler_types::provider::{Protocol, ProviderModel};
use std::path::PathBuf;

/// What to do with providers.
#[derive(Debug, Subcommand)]
pub enum ProviderAction {
    /// List providers
    List,
    /// List templates to start from
    Templates,
    /// Add a provider from a template, its key read from a prompt or file
    Add(AddArgs),
    /// Remove a provider and its key
    Rm {
        /// Its name
        name: String,
    },
}

/// `handler provider add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// A name of your choice
    pub name: String,
    /// Template (`handler provider templates`); default: the one with the provider's name
    #[arg(long)]
    pub from: Option<String>,
    /// Endpoint, e.g. `openai-chat=http://127.0.0.1:3000/v1` (repeatable)
    #[arg(long, value_name = "PROTOCOL=URL")]
    pub endpoint: Vec<String>,
    /// Model id (repeatable; the first is the default)
    #[arg(long)]
    pub model: Vec<String>,
    /// Tokens of conversation the models hold
    #[arg(long)]
    pub context_window: Option<u64>,
    /// Read the key from a file (`-`: standard input) instead of asking
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Add it without a key
    #[arg(long, conflicts_with = "key_file")]
    pub no_key: bool,
    /// For people
    #[arg(long)]
    pub description: Option<String>,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: ProviderAction, context: &Context) -> Outcome {
    let client = context.client()?;
    match action {
        ProviderAction::List => {
            let providers = client.providers().await?;
            context.out.show(&providers, |out, providers| {
                let rows: Vec<Vec<String>> = providers
                    .iter()
                    .map(|p| {
                        let models: Vec<&str> = p.models.iter().map(|m| m.id.as_str()).collect();
                        let state = if p.problems.is_empty() {
                            p.status.clone()
                        } else {
                            format!("{}: {}", p.status, p.problems.join("; "))
                        };
                        vec![
                            p.name.clone(),
                            p.key.clone().unwrap_or_else(|| "none".into()),
                            models.join(" "),
                            p.harnesses.join(" "),
                            state,
                        ]
                    })
                    .collect();
                out.table(&["NAME", "KEY", "MODELS", "HARNESSES", "STATUS"], &rows);
            });
        }
        ProviderAction::Templates => {
            let templates = client.provider_templates().await?;
            context.out.show(&templates, |out, templates| {
                let rows: Vec<Vec<String>> = templates
                    .iter()
                    .map(|t| {
                        vec![
                            t.name.clone(),
                            if t.needs_key { "yes" } else { "no" }.into(),
                            t.description.clone(),
                        ]
                    })
                    .collect();
                out.table(&["NAME", "KEY", "WHAT"], &rows);
            });
        }
        ProviderAction::Add(args) => return add(args, context).await,
        ProviderAction::Rm { name } => {
            client.delete_provider(&name).await?;
            context.out.note(format!("removed {name}"));
        }
    }
    Ok(0)
}

async fn add(args: AddArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let templates = client.provider_templates().await?;
    let template = args.from.clone().or_else(|| {
        templates
            .iter()
            .any(|t| t.name == args.name)
            .then(|| args.name.clone())
    });
    let needs_key = template
        .as_ref()
        .and_then(|name| templates.iter().find(|t| t.name == *name))
        .is_some_and(|t| t.needs_key);
    let key = match (&args.key_file, args.no_key) {
        (Some(file), _) => Some(read_secret(Some(file), "key")?),
        (None, false) if needs_key => Some(read_secret(None, "API key")?),
        _ => None,
    };
    let request = ProviderRequest {
        name: args.name.clone(),
        template,
        description: args.description.clone(),
        endpoints: args
            .endpoint
            .iter()
            .map(|e| endpoint(e))
            .collect::<Result<_, _>>()?,
        models: args
            .model
            .iter()
            .map(|id| ProviderModel {
                id: id.clone(),
                context_window: args.context_window,
                ..Default::default()
            })
            .collect(),
        key,
    };
    let view = client.add_provider(&request).await?;
    context.out.show(&view, |out, view| {
        out.line(format!("added {} ({})", view.name, view.status));
        for problem in &view.problems {
            out.line(format!("  {problem}"));
        }
    });
    Ok(0)
}

fn endpoint(text: &str) -> Result<(Protocol, String), Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "--endpoint {text}: write PROTOCOL=URL with anthropic, openai-chat, responses or gemini"
        ))
    };
    let (protocol, url) = text.split_once('=').ok_or_else(wrong)?;
    let protocol = serde_json::from_value(serde_json::Value::String(protocol.to_owned()))
        .map_err(|_| wrong())?;
    Ok((protocol, url.to_owned()))
}
