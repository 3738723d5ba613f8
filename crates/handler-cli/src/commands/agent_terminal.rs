//! `handler terminal`: an agent program's own terminal on ours, in a sandbox that goes when it closes (contract D.16).
//!
//! Not to be mixed up with terminals of sandboxes, which people make and keep: those are `handler sandbox
//! shell/attach/terminals`.

use super::agent_flags::{AgentFlags, save};
use super::detach::DetachKeys;
use super::launch::{self, LaunchArgs, Who};
use super::raw::size;
use super::watch_terminal::{How, Left, watch};
use super::{Outcome, absolute, current_folder, project};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use handler_client::Client;
use handler_types::agent::{AgentModel, AgentRequest, AgentView, ModelAccess};
use handler_types::agent_terminal::{TerminalStart, TerminalStarted};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// `handler terminal`.
#[derive(Debug, Args)]
pub struct TerminalArgs {
    /// The agent, or an account or a provider for this terminal only
    #[arg(value_name = "AGENT|ACCOUNT|PROVIDER")]
    pub who: String,
    /// The folder (default: the current one)
    pub folder: Option<String>,
    /// Outside projects: another agent of this folder than the one without a name
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Only start it and print what attaches to it; it closes when nobody is attached for a minute
    #[arg(long)]
    pub print: bool,
    /// Arguments for the program
    #[arg(last = true)]
    pub args: Vec<String>,
}

/// Runs it. Ends with the program's own code.
///
/// # Errors
/// [`Failure`].
pub async fn run(args: TerminalArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let folder = match &args.folder {
        Some(folder) => absolute(folder)?,
        None => current_folder()?,
    };
    let (agent, model) = chosen(&client, &args, &folder, context).await?;
    let is_said = args.folder.is_some() || agent.scope.is_none();
    let request = TerminalStart {
        term: variable("TERM"),
        colorterm: variable("COLORTERM"),
        args: args.args,
        model,
        folder: if is_said { folder } else { String::new() },
        size: size(),
    };
    if !args.print {
        context.out.note(said(&agent, &request));
    }
    // Before anything is made: whoever ends us closes the terminal.
    let ends = Ends::new()?;
    let started = client
        .start_agent_terminal(agent.id.as_str(), &request)
        .await?;
    if args.print {
        let show = |out: &crate::out::Out, started: &TerminalStarted| {
            out.line(started.attach.join(" "));
        };
        context.out.show(&started, show);
        return Ok(0);
    }
    follow(&client, &started, ends, context).await
}

/// What a program is told of our terminal.
fn variable(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.is_empty() && value.len() <= 64)
}

/// Who it runs as.
fn said(agent: &AgentView, request: &TerminalStart) -> String {
    let first = agent.models.first();
    let own = AgentRequest::from(agent.clone()).models.into_iter().next();
    let asked = request.model.clone().or(own).unwrap_or_default();
    let through = match asked.through() {
        Some(through) => through.to_string(),
        None => "its model".to_owned(),
    };
    let harness = asked.harness.as_ref().or(first.map(|first| &first.harness));
    let harness = harness.map_or("the agent program", String::as_str);
    match &asked.model {
        Some(model) => format!("{harness} with {model} of {through}"),
        None => format!("{harness} on {through}"),
    }
}

/// The agent, and the model when it is not the agent's first.
async fn chosen(
    client: &Client,
    args: &TerminalArgs,
    folder: &str,
    context: &Context,
) -> Result<(AgentView, Option<ModelAccess>), Failure> {
    let mut options = args.launch.clone();
    let agent = match launch::who(client, &args.who, folder).await? {
        Who::Agent(agent) if args.name.is_none() => *agent,
        Who::Agent(_) => {
            return Err(Failure::Usage(
                "--name: an agent is named already; leave --name out".into(),
            ));
        }
        named => {
            options.name(&named)?;
            let agent = of_folder(client, args, &options, folder, context).await?;
            let model = for_this_only(&agent, &mut options);
            let agent = options.fitting(client, agent, None, context).await?;
            return Ok((agent, Some(model)));
        }
    };
    let agent = options.fitting(client, agent, None, context).await?;
    let models = AgentRequest::from(agent.clone()).models;
    let is_chosen = options.harness.is_some() || options.names_one() || options.model.is_some();
    let model = models.into_iter().find(|access| options.fits(access));
    // One that it does not list is for this terminal only.
    let other = || ModelAccess {
        harness: options.harness.clone(),
        account: options.account.clone(),
        provider: options.provider.clone(),
        model: options.model.clone(),
    };
    let model = model.or_else(|| options.names_one().then(other));
    Ok((agent, model.filter(|_| is_chosen)))
}

/// The model that an account's or a provider's name means: the agent's own with it, else one that is used once. The options that
/// say it are taken out: they are no change of the agent.
fn for_this_only(agent: &AgentView, options: &mut LaunchArgs) -> ModelAccess {
    let models = AgentRequest::from(agent.clone()).models;
    let own = models.into_iter().find(|access| options.fits(access));
    let (harness, model) = (options.harness.take(), options.model.take());
    let (account, provider) = (options.account.take(), options.provider.take());
    own.unwrap_or(ModelAccess {
        harness,
        account,
        provider,
        model,
    })
}

/// The agent of a folder: its project's default one; outside projects the folder's own, made the first time.
async fn of_folder(
    client: &Client,
    args: &TerminalArgs,
    options: &LaunchArgs,
    folder: &str,
    context: &Context,
) -> Result<AgentView, Failure> {
    if let Some(project) = project::of_folder(client, folder).await? {
        if args.name.is_some() {
            return Err(Failure::Usage(
                "--name is for folders outside projects: here, name one of the project's agents"
                    .into(),
            ));
        }
        let has_it = |agent: &AgentView| {
            let of = |model: &AgentModel| {
                (&model.account, &model.provider) == (&options.account, &options.provider)
            };
            agent.models.iter().any(of)
        };
        let mut agents = project.agents;
        // The default one first, then in their order.
        agents.sort_by_key(|agent| !agent.default);
        let at = agents.iter().position(has_it).unwrap_or(0);
        let found = agents.into_iter().nth(at);
        return found.ok_or_else(|| {
            Failure::Usage(format!(
                "the project {} has no agent: make one with `handler agent add`",
                project.name
            ))
        });
    }
    let real = std::path::Path::new(folder).canonicalize();
    let folder = real.map_or(folder.to_owned(), |path| {
        path.to_string_lossy().into_owned()
    });
    let is_it = |agent: &AgentView| {
        agent.project_id.is_none()
            && agent.scope.as_ref() == Some(&folder)
            && agent.name == args.name
    };
    if let Some(agent) = client.agents_of("").await?.into_iter().find(is_it) {
        return Ok(agent);
    }
    let flags = AgentFlags {
        permissions: options.permissions,
        network: options.network.clone(),
        knowledge: options.knowledge.clone(),
        ..AgentFlags::default()
    };
    let mut asked = AgentRequest {
        name: args.name.clone(),
        scope: Some(folder.clone()),
        backend: options.backend.clone(),
        models: vec![ModelAccess {
            harness: options.harness.clone(),
            account: options.account.clone(),
            provider: options.provider.clone(),
            model: options.model.clone(),
        }],
        ..AgentRequest::default()
    };
    flags.apply(&mut asked)?;
    let made = save(client, None, asked, false, &flags, context).await?;
    context.out.note(format!(
        "made an agent for {folder}; `handler agent rm {}` removes it",
        made.id
    ));
    Ok(made)
}

/// Signals that end us.
struct Ends {
    hang_up: Signal,
    terminate: Signal,
}

impl Ends {
    fn new() -> Result<Self, Failure> {
        let of =
            |kind| signal(kind).map_err(|error| Failure::local("cannot wait for signals", error));
        Ok(Self {
            hang_up: of(SignalKind::hangup())?,
            terminate: of(SignalKind::terminate())?,
        })
    }

    /// Waits for one: the code we end with.
    async fn come(&mut self) -> u8 {
        tokio::select! {
            _ = self.hang_up.recv() => 128 + 1,
            _ = self.terminate.recv() => 128 + 15,
        }
    }
}

/// Shows it until it closes; then its sandbox goes.
async fn follow(
    client: &Client,
    started: &TerminalStarted,
    mut ends: Ends,
    context: &Context,
) -> Outcome {
    let how = How {
        sandbox: started.sandbox.to_string(),
        terminal: started.terminal,
        read_only: false,
        takes: true,
        scrollback: 0,
        detach: DetachKeys::parse("none")?,
    };
    let outcome = tokio::select! {
        left = watch(client, context, how) => left.map(|left| match left {
            Left::Ended(code) => code,
            Left::Detached => 0,
        }),
        code = ends.come() => Ok(code),
    };
    // The daemon does it too, a moment later; a daemon that is away does it when it is back.
    client.delete_sandbox(started.sandbox.as_str()).await.ok();
    outcome
}
