//! `handler agent`: what sessions run.

use super::agent_flags::{AgentFlags, save};
use super::agent_network;
use super::network::describe;
use super::{Outcome, absolute, current_folder, project};
use crate::context::Context;
use crate::exit::Failure;
use crate::out::Out;
use clap::{Args, Subcommand};
use handler_client::Client;
use handler_types::agent::{AgentRequest, AgentView, ModelAccess};

/// What to do with agents. An agent is named by its name, PROJECT/NAME, its id or the beginning of that.
#[derive(Debug, Subcommand)]
pub enum AgentAction {
    /// List agents of the project the current folder is in
    #[command(visible_alias = "ls")]
    List {
        /// Of every project, and those outside
        #[arg(long, short)]
        all: bool,
    },
    /// Show how one is set up, which hosts its models need, and why it cannot start
    Show {
        /// The agent
        agent: String,
    },
    /// Make one in a project, or outside
    Add(AddArgs),
    /// Change how one is set up; what it may reach changes in its running sessions at once
    Set(SetArgs),
    /// Make another one like it
    Copy(CopyArgs),
    /// Show what its sandboxes asked for lately and what was decided, or switch its list on and off
    Network(agent_network::NetworkArgs),
    /// Remove one; its running sessions are stopped, their folders stay
    Rm {
        /// The agents
        #[arg(required = true)]
        agents: Vec<String>,
    },
}

/// `handler agent add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Its goal, e.g. `Review`
    pub name: String,
    /// The project (default: the one the current folder is in)
    #[arg(long)]
    pub project: Option<String>,
    /// Make it outside projects
    #[arg(long, conflicts_with = "project")]
    pub outside: bool,
    /// The folder it works in (default: each session says it)
    #[arg(long, requires = "outside")]
    pub folder: Option<String>,
    /// Use it unless another is named
    #[arg(long)]
    pub default: bool,
    #[command(flatten)]
    pub flags: AgentFlags,
}

/// `handler agent set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The agent
    pub agent: String,
    /// Another name
    #[arg(long)]
    pub name: Option<String>,
    /// Use it unless another is named
    #[arg(long)]
    pub default: bool,
    #[command(flatten)]
    pub flags: AgentFlags,
}

/// `handler agent copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The agent
    pub agent: String,
    /// The other one's name
    pub name: String,
    /// The project it goes to (default: the same)
    #[arg(long)]
    pub project: Option<String>,
    /// Copy one that may do more than a new agent usually does
    #[arg(long)]
    pub confirm_risks: bool,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: AgentAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        AgentAction::List { all } => list(all, &client, out).await?,
        AgentAction::Show { agent } => {
            let agent = find(&client, &agent).await?;
            out.show(&agent, show);
        }
        AgentAction::Add(args) => {
            let asked = asked(&args, &client).await?;
            let made = save(&client, None, asked, false, &args.flags, context).await?;
            told(&made, out);
        }
        AgentAction::Set(args) => {
            let before = find(&client, &args.agent).await?;
            let id = before.id.clone();
            let mut asked = AgentRequest::from(before);
            args.flags.apply(&mut asked)?;
            asked.name = args.name.or(asked.name);
            asked.default |= args.default;
            let saved = save(
                &client,
                Some(id.as_str()),
                asked,
                false,
                &args.flags,
                context,
            );
            told(&saved.await?, out);
        }
        AgentAction::Copy(args) => {
            let mut asked = AgentRequest::from(find(&client, &args.agent).await?);
            asked.name = Some(args.name);
            asked.default = false;
            if let Some(project) = &args.project {
                asked.project_id = Some(client.project(project).await?.id);
                asked.scope = None;
            }
            let flags = AgentFlags::default();
            let made = save(&client, None, asked, args.confirm_risks, &flags, context).await?;
            told(&made, out);
        }
        AgentAction::Network(args) => agent_network::run(args, &client, out).await?,
        AgentAction::Rm { agents } => {
            for agent in agents {
                let found = find(&client, &agent).await?;
                client.delete_agent(found.id.as_str()).await?;
                out.note(format!("removed {agent}"));
            }
        }
    }
    Ok(0)
}

/// The agent of that name in the project the current folder is in, else anywhere.
pub(super) async fn find(client: &Client, text: &str) -> Result<AgentView, Failure> {
    find_in(client, text, &current_folder()?).await
}

/// The same, seen from a folder.
pub(super) async fn find_in(
    client: &Client,
    text: &str,
    folder: &str,
) -> Result<AgentView, Failure> {
    let own = project::of_folder(client, folder).await?;
    let own = own
        .into_iter()
        .flat_map(|project| project.agents)
        .find(|agent| {
            let name = agent.name.as_deref().unwrap_or_default();
            name.to_lowercase() == text.to_lowercase()
        });
    match own {
        Some(agent) => Ok(agent),
        None => Ok(client.agent(text).await?),
    }
}

fn told(agent: &AgentView, out: &Out) {
    out.show(agent, |out, agent| {
        out.line(agent.name.as_deref().unwrap_or(agent.id.as_str()));
    });
    if let Some(problem) = &agent.problem {
        out.note(format!("it cannot start yet: {problem}"));
    }
}

async fn asked(args: &AddArgs, client: &Client) -> Result<AgentRequest, Failure> {
    let mut asked = AgentRequest {
        name: Some(args.name.clone()),
        default: args.default,
        ..AgentRequest::default()
    };
    if args.outside {
        asked.scope = args.folder.as_deref().map(absolute).transpose()?;
    } else {
        let project = project::named(client, args.project.as_deref()).await?;
        asked.project_id = Some(project.id);
    }
    if args.flags.provider.is_none() && args.flags.account.is_none() {
        asked.models.push(ModelAccess {
            provider: Some(only_provider(client).await?),
            ..ModelAccess::default()
        });
    }
    args.flags.apply(&mut asked)?;
    Ok(asked)
}

/// The provider, when there is one only.
async fn only_provider(client: &Client) -> Result<String, Failure> {
    let mut names: Vec<String> = client
        .providers()
        .await?
        .into_iter()
        .filter(|provider| provider.status != "invalid")
        .map(|provider| provider.name)
        .collect();
    match names.len() {
        1 => Ok(names.remove(0)),
        0 => Err(Failure::Usage(
            "there is no provider yet: say where models are with `handler provider add`, or name an account with --account".into(),
        )),
        _ => Err(Failure::Usage(format!(
            "choose a provider with --provider: {}",
            names.join(", ")
        ))),
    }
}

async fn list(all: bool, client: &Client, out: &Out) -> Result<(), Failure> {
    let project = match all {
        true => None,
        false => project::of_folder(client, &current_folder()?).await?,
    };
    let agents = match &project {
        Some(project) => project.agents.clone(),
        None => client.agents_of("").await?,
    };
    out.show(&agents, |out, agents| {
        let rows: Vec<Vec<String>> = agents.iter().map(row).collect();
        out.table(HEAD, &rows);
    });
    Ok(())
}

/// What [`row`] shows.
pub(super) const HEAD: &[&str] = &["AGENT", "", "MODEL", "PERMISSIONS", "NETWORK", "PROBLEM"];

/// An agent in a line.
pub(super) fn row(agent: &AgentView) -> Vec<String> {
    let model = agent.models.first();
    vec![
        agent.name.clone().unwrap_or_else(|| agent.id.to_string()),
        if agent.default { "default" } else { "" }.to_owned(),
        model.map_or_else(String::new, |m| format!("{} with {}", m.harness, m.model)),
        word(&agent.permissions),
        describe(&agent.network),
        agent.problem.clone().unwrap_or_default(),
    ]
}

/// The wire word of a setting.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn show(out: &Out, agent: &AgentView) {
    let secrets: Vec<String> = agent
        .secrets
        .iter()
        .map(|(variable, grant)| format!("{variable} ({})", grant.secret))
        .collect();
    let folders: Vec<&str> = agent.folders.iter().map(|f| f.source.as_str()).collect();
    let facts = [
        ("id", Some(agent.id.to_string())),
        ("name", agent.name.clone()),
        (
            "project",
            agent.project_id.as_ref().map(ToString::to_string),
        ),
        ("folder", agent.scope.clone()),
        ("description", agent.description.clone()),
        ("permissions", Some(word(&agent.permissions))),
        ("network", Some(describe(&agent.network))),
        ("confinement", Some(word(&agent.confinement))),
        ("backend", agent.backend.clone()),
        (
            "secrets",
            Some(secrets.join(", ")).filter(|text| !text.is_empty()),
        ),
        (
            "folders",
            Some(folders.join(", ")).filter(|text| !text.is_empty()),
        ),
        (
            "knowledge",
            Some(agent.knowledge.join(", ")).filter(|text| !text.is_empty()),
        ),
        ("instructions", agent.instructions.clone()),
        ("problem", agent.problem.clone()),
    ];
    let rows: Vec<Vec<String>> = facts
        .into_iter()
        .filter_map(|(name, value)| Some(vec![name.to_owned(), value?]))
        .collect();
    out.table(&["AGENT", ""], &rows);
    let mut rows = Vec::new();
    for model in &agent.models {
        let through = model.account.as_ref().or(model.provider.as_ref());
        let own = match model.model.as_str() {
            "" => "its own model",
            model => model,
        };
        let what = format!(
            "{} with {own} of {}",
            model.harness,
            through.map_or("nothing", String::as_str)
        );
        rows.push(vec![what, model.problem.clone().unwrap_or_default()]);
        for needed in &model.required_hosts {
            rows.push(vec![format!("  needs {}", needed.host), needed.by.clone()]);
        }
    }
    out.table(&["MODEL", ""], &rows);
}
