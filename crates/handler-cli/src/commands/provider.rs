//! `handler provider`.

use super::Outcome;
use super::secret::read_secret;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use handler_types::api::{ProviderRequest, ProviderView};
use handler_types::provider::{FileSource, Protocol, ProviderFilesOf, ProviderModel};
use std::collections::BTreeMap;
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
    /// Change a provider; its key stays unless a flag says so
    #[command(visible_alias = "edit")]
    Set(SetArgs),
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
    /// A context it may be used in, or `any` (repeatable)
    #[arg(long)]
    pub context: Vec<String>,
    /// Content of a config file for a harness: HARNESS/SLOT=PATH of a file of this machine (repeatable)
    #[arg(long, value_name = "HARNESS/SLOT=PATH")]
    pub file: Vec<String>,
}

/// `handler provider set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The provider
    pub name: String,
    /// Another name, while no agent lists it
    #[arg(long)]
    pub rename: Option<String>,
    /// Endpoint, e.g. `openai-chat=http://127.0.0.1:3000/v1` (repeatable; replaces those it has)
    #[arg(long, value_name = "PROTOCOL=URL")]
    pub endpoint: Vec<String>,
    /// Model id (repeatable; replaces those it has; what is known of one it had stays)
    #[arg(long)]
    pub model: Vec<String>,
    /// Tokens of conversation the models hold
    #[arg(long)]
    pub context_window: Option<u64>,
    /// Ask for another key
    #[arg(long, group = "key_from")]
    pub key: bool,
    /// Read another key from a file (`-`: standard input)
    #[arg(long, value_name = "FILE", group = "key_from")]
    pub key_file: Option<PathBuf>,
    /// It needs no key any more
    #[arg(long, group = "key_from")]
    pub no_key: bool,
    /// For people; an empty text takes it away
    #[arg(long)]
    pub description: Option<String>,
    /// A context it may be used in, or `any` (repeatable; replaces those it has; an empty text: none)
    #[arg(long)]
    pub context: Vec<String>,
    /// Content of a config file for a harness: HARNESS/SLOT=PATH of a file of this machine (repeatable; replaces
    /// those it has; an empty text: none)
    #[arg(long, value_name = "HARNESS/SLOT=PATH")]
    pub file: Vec<String>,
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
        ProviderAction::Set(args) => return set(args, context).await,
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
        remove_key: args.no_key,
        files: (!args.file.is_empty())
            .then(|| files(&args.file))
            .transpose()?,
        contexts: args.context.clone(),
    };
    let view = client.add_provider(&request).await?;
    told("added", &view, context);
    Ok(0)
}

fn told(what: &str, view: &ProviderView, context: &Context) {
    context.out.show(view, |out, view| {
        out.line(format!("{what} {} ({})", view.name, view.status));
        for problem in &view.problems {
            out.line(format!("  {problem}"));
        }
    });
}

async fn set(args: SetArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let all = client.providers().await?;
    let before = all.into_iter().find(|provider| provider.name == args.name);
    let before = before.ok_or_else(|| {
        let name = &args.name;
        Failure::Usage(format!(
            "there is no provider `{name}`; `handler provider list` shows them"
        ))
    })?;
    let key = match (&args.key_file, args.key) {
        (Some(file), _) => Some(read_secret(Some(file), "key")?),
        (None, true) => Some(read_secret(None, "API key")?),
        (None, false) => None,
    };
    let request = changed(&args, before, key)?;
    told(
        "changed",
        &client.put_provider(&args.name, &request).await?,
        context,
    );
    Ok(0)
}

/// The request that makes the typed changes. Pure.
fn changed(
    args: &SetArgs,
    before: ProviderView,
    key: Option<String>,
) -> Result<ProviderRequest, Failure> {
    let typed = args.endpoint.iter().map(|text| endpoint(text));
    let typed: BTreeMap<_, _> = typed.collect::<Result<_, _>>()?;
    let known = |id: &String| before.models.iter().find(|model| model.id == *id).cloned();
    let mut models: Vec<ProviderModel> = match args.model.is_empty() {
        true => before.models.clone(),
        false => args
            .model
            .iter()
            .map(|id| {
                known(id).unwrap_or_else(|| ProviderModel {
                    id: id.clone(),
                    ..Default::default()
                })
            })
            .collect(),
    };
    for model in &mut models {
        model.context_window = args.context_window.or(model.context_window);
    }
    let filled = |texts: &[String]| -> Vec<String> {
        texts
            .iter()
            .filter(|text| !text.is_empty())
            .cloned()
            .collect()
    };
    Ok(ProviderRequest {
        name: args.rename.clone().unwrap_or(before.name),
        template: None,
        description: Some(
            args.description
                .clone()
                .or(before.description)
                .unwrap_or_default(),
        ),
        endpoints: if typed.is_empty() {
            before.endpoints
        } else {
            typed
        },
        models,
        key,
        remove_key: args.no_key,
        files: (!args.file.is_empty())
            .then(|| files(&filled(&args.file)))
            .transpose()?,
        contexts: match args.context.is_empty() {
            true => before.contexts,
            false => filled(&args.context),
        },
    })
}

/// `HARNESS/SLOT=PATH`, each.
fn files(texts: &[String]) -> Result<ProviderFilesOf, Failure> {
    let mut all = ProviderFilesOf::new();
    for text in texts {
        let wrong = || {
            Failure::Usage(format!(
                "--file {text}: write HARNESS/SLOT=PATH, e.g. codex/instructions_md=~/codex.md"
            ))
        };
        let (place, path) = text.split_once('=').ok_or_else(wrong)?;
        let (harness, slot) = place.split_once('/').ok_or_else(wrong)?;
        let path = match path.starts_with("~/") {
            true => path.to_owned(),
            false => super::absolute(path)?,
        };
        let slots = all.entry(harness.to_owned()).or_default();
        slots.insert(slot.to_owned(), FileSource::File(path));
    }
    Ok(all)
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: SetArgs,
    }

    fn after(flags: &[&str]) -> ProviderRequest {
        let before: ProviderView = serde_json::from_value(serde_json::json!({
            "name": "here", "description": "mine", "status": "ready", "harnesses": [],
            "endpoints": {"anthropic": "http://127.0.0.1:1"}, "contexts": ["Work"],
            "models": [{"id": "a", "maxOutput": 7}, {"id": "b"}],
        }))
        .expect("a provider");
        let all = ["set", "here"].iter().chain(flags);
        changed(&Typed::parse_from(all).args, before, None).expect("understood")
    }

    #[test]
    fn what_is_not_typed_stays() {
        let same = after(&[]);
        assert_eq!((same.name.as_str(), same.models.len()), ("here", 2));
        assert_eq!(same.description.as_deref(), Some("mine"));
        assert_eq!(same.contexts, ["Work"]);
        assert_eq!((same.endpoints.len(), same.files), (1, None));
    }

    #[test]
    fn what_is_typed_replaces_what_was_there() {
        let changed = after(&[
            "--rename",
            "there",
            "--model",
            "c",
            "--model",
            "a",
            "--context-window",
            "9",
            "--description",
            "",
            "--context",
            "any",
            "--no-key",
            "--file",
            "codex/instructions_md=/x/y.md",
            "--endpoint",
            "responses=http://127.0.0.1:2/v1",
        ]);
        assert_eq!(changed.name, "there");
        let models: Vec<_> = changed
            .models
            .iter()
            .map(|m| (m.id.as_str(), m.max_output))
            .collect();
        assert_eq!(models, [("c", None), ("a", Some(7))]);
        assert!(changed.models.iter().all(|m| m.context_window == Some(9)));
        assert_eq!(
            (changed.description.as_deref(), changed.remove_key),
            (Some(""), true)
        );
        assert_eq!(changed.contexts, ["any"]);
        assert!(
            changed.endpoints.contains_key(&Protocol::Responses) && changed.endpoints.len() == 1
        );
        let files = changed.files.expect("files");
        assert_eq!(
            files["codex"]["instructions_md"],
            FileSource::File("/x/y.md".into())
        );
        assert_eq!(after(&["--context", ""]).contexts, Vec::<String>::new());
    }
}
