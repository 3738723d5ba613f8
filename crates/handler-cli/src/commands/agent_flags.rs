//! Flags that say how an agent is set up. What is typed is changed; the rest stays.

use super::containers::confinement;
use super::network::{Mode, NetworkArgs};
use super::run::Permissions;
use super::sandbox::{grant, mount};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use handler_client::{Client, ClientError};
use handler_types::ProblemCode;
use handler_types::agent::{AgentRequest, AgentView, ModelAccess};
use handler_types::sandbox::Confinement;
use std::io::Read as _;
use std::path::PathBuf;

/// The flags.
#[derive(Debug, Default, Args)]
pub struct AgentFlags {
    /// Account it runs on, instead of a provider
    #[arg(long, conflicts_with = "provider")]
    pub account: Option<String>,
    /// Provider of its model (default: the only one there is)
    #[arg(long)]
    pub provider: Option<String>,
    /// Agent program (default: the first that can use the provider)
    #[arg(long)]
    pub harness: Option<String>,
    /// Model (default: the provider's first)
    #[arg(long)]
    pub model: Option<String>,
    /// A further model a session may be started with (repeatable)
    #[arg(long, value_name = "PROVIDER[:MODEL]")]
    pub also: Vec<String>,
    /// A further account a session may be started on (repeatable)
    #[arg(long, value_name = "ACCOUNT[:MODEL]")]
    pub also_account: Vec<String>,
    /// How free it is
    #[arg(long, value_enum)]
    pub permissions: Option<Permissions>,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// How locked down it is: strict, nested (containers can run inside) or privileged
    #[arg(long, value_name = "LEVEL", value_parser = confinement)]
    pub confinement: Option<Confinement>,
    /// Where it runs: native, or podman and docker in the agent's image
    #[arg(long)]
    pub backend: Option<String>,
    /// What stands before the first prompt of each of its sessions; an empty text takes it away
    #[arg(long, value_name = "TEXT")]
    pub instructions: Option<String>,
    /// The same, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "instructions")]
    pub instructions_file: Option<PathBuf>,
    /// For people; an empty text takes it away
    #[arg(long)]
    pub description: Option<String>,
    /// A stored secret as a stand-in: NAME=SECRET@HOST:PORT[,HOST:PORT] (repeatable; replaces those it has)
    #[arg(long, value_name = "NAME=SECRET@HOST:PORT")]
    pub secret: Vec<String>,
    /// Another folder: SOURCE:TARGET, or SOURCE:TARGET:ro (repeatable; replaces those it has)
    #[arg(long, value_name = "SOURCE:TARGET[:ro]")]
    pub mount: Vec<String>,
    /// A knowledge folder it may read, relative to the knowledge root (repeatable; replaces those it has, an empty
    /// text takes them away)
    #[arg(long, value_name = "FOLDER")]
    pub knowledge: Vec<String>,
    /// Memory in MiB
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u64>,
    /// CPUs, e.g. 1.5
    #[arg(long)]
    pub cpus: Option<f64>,
    /// Most processes and threads
    #[arg(long)]
    pub pids: Option<u64>,
    /// Cancel a turn after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub turn_timeout: Option<u64>,
    /// Stop an idle session after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,
}

impl AgentFlags {
    /// Changes what was typed.
    ///
    /// # Errors
    /// Flags that cannot be understood, a file that cannot be read.
    pub(super) fn apply(&self, asked: &mut AgentRequest) -> Result<(), Failure> {
        self.models(asked)?;
        if let Some(mode) = self.permissions {
            asked.permissions = mode.into();
        }
        if let Some(policy) = self.network.policy()? {
            asked.network = policy;
        }
        if let Some(level) = self.confinement {
            asked.confinement = level;
        }
        if self.backend.is_some() {
            asked.backend.clone_from(&self.backend);
        }
        let text = match &self.instructions_file {
            Some(file) => Some(read(file)?),
            None => self.instructions.clone(),
        };
        for (typed, own) in [
            (text, &mut asked.instructions),
            (self.description.clone(), &mut asked.description),
        ] {
            if let Some(text) = typed {
                *own = Some(text).filter(|text| !text.trim().is_empty());
            }
        }
        if !self.secret.is_empty() {
            let secrets = self.secret.iter().map(|text| grant(text));
            asked.secrets = secrets.collect::<Result<_, _>>()?;
        }
        if !self.mount.is_empty() {
            let folders = self.mount.iter().map(|text| mount(text));
            asked.folders = folders.collect::<Result<_, _>>()?;
        }
        if !self.knowledge.is_empty() {
            let named = self.knowledge.iter().filter(|text| !text.is_empty());
            asked.knowledge = named.cloned().collect();
        }
        asked.limits.memory_mib = self.memory.or(asked.limits.memory_mib);
        asked.limits.cpus = self.cpus.or(asked.limits.cpus);
        asked.limits.pids = self.pids.or(asked.limits.pids);
        asked.turn_timeout_secs = self.turn_timeout.or(asked.turn_timeout_secs);
        asked.idle_timeout_secs = self.idle_timeout.or(asked.idle_timeout_secs);
        Ok(())
    }

    fn models(&self, asked: &mut AgentRequest) -> Result<(), Failure> {
        let is_named = self.account.is_some() || self.provider.is_some();
        if is_named || self.harness.is_some() || self.model.is_some() {
            let first = asked.models.first().cloned();
            let (account, provider) = match (&first, is_named) {
                (_, true) => (self.account.clone(), self.provider.clone()),
                (Some(first), false) => (first.account.clone(), first.provider.clone()),
                (None, false) => {
                    let text = "say whose model it is with --provider or --account";
                    return Err(Failure::Usage(text.into()));
                }
            };
            // Another one has other programs and models.
            let same = first.filter(|a| (&a.account, &a.provider) == (&account, &provider));
            let access = ModelAccess {
                harness: self
                    .harness
                    .clone()
                    .or(same.as_ref().and_then(|a| a.harness.clone())),
                model: self.model.clone().or(same.and_then(|a| a.model)),
                account,
                provider,
            };
            if asked.models.is_empty() {
                asked.models.push(access);
            } else {
                asked.models[0] = access;
            }
        }
        if !self.also.is_empty() || !self.also_account.is_empty() {
            asked.models.truncate(1);
        }
        for text in &self.also {
            let (provider, model) = parted(text);
            asked.models.push(ModelAccess {
                provider: Some(provider),
                model,
                ..ModelAccess::default()
            });
        }
        for text in &self.also_account {
            let (account, model) = parted(text);
            asked.models.push(ModelAccess {
                account: Some(account),
                model,
                ..ModelAccess::default()
            });
        }
        Ok(())
    }

    /// Whether a flag says that it gets more: the flag is then the confirmation.
    fn widens(&self) -> bool {
        self.network.log_only
            || self.network.network == Some(Mode::Open)
            || self.network.network == Some(Mode::Filtered)
            || !self.network.allow.is_empty()
            || self.confinement.is_some()
            || self.permissions.is_some()
    }
}

/// `NAME[:MODEL]`.
fn parted(text: &str) -> (String, Option<String>) {
    match text.split_once(':') {
        Some((name, model)) => (name.to_owned(), Some(model.to_owned())),
        None => (text.to_owned(), None),
    }
}

/// Saves an agent, made or changed. What gives it more is confirmed by the flag that says so, or by `--confirm-risks`;
/// standard error tells what it gives.
pub(super) async fn save(
    client: &Client,
    id: Option<&str>,
    mut asked: AgentRequest,
    is_confirmed: bool,
    flags: &AgentFlags,
    context: &Context,
) -> Result<AgentView, Failure> {
    let sent = send(client, id, &asked).await;
    let risks = match &sent {
        Err(ClientError::Refused(problem)) if problem.code == ProblemCode::RisksNotConfirmed => {
            problem.reasons.clone()
        }
        _ => return Ok(sent?),
    };
    if !is_confirmed && !flags.widens() {
        return Ok(sent?);
    }
    for risk in risks {
        context.out.note(format!("warning: {risk}"));
    }
    asked.confirm_risks = true;
    Ok(send(client, id, &asked).await?)
}

async fn send(
    client: &Client,
    id: Option<&str>,
    asked: &AgentRequest,
) -> Result<AgentView, ClientError> {
    match id {
        Some(id) => client.put_agent(id, asked).await,
        None => client.create_agent(asked).await,
    }
}

fn read(file: &std::path::Path) -> Result<String, Failure> {
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(1 << 20).read_to_string(&mut text))
        .map_err(|error| Failure::local(format!("cannot read {}", file.display()), error))?;
    Ok(text)
}
