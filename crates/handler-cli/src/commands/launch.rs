//! Which agent a run, an editor or a terminal uses, and options that must be its settings.
//!
//! Invariant: options that differ from the agent's settings are refused or, with `--save` or a yes, become its
//! settings; none is ignored.

use super::agent_flags::{AgentFlags, save};
use super::network::{Mode, NetworkArgs};
use super::run::Permissions;
use super::{agent, project};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use handler_client::Client;
use handler_types::agent::{AgentRequest, AgentView, ModelAccess};
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::session::CreateSession;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// Options that say how an agent runs.
#[derive(Debug, Clone, Default, Args)]
pub struct LaunchArgs {
    /// Change the agent's settings to what the other options say
    #[arg(long)]
    pub save: bool,
    /// Agent program (default: the first installed one that fits)
    #[arg(long)]
    pub harness: Option<String>,
    /// Account, instead of a provider; one that the agent does not list is used for this session only
    #[arg(long, conflicts_with = "provider")]
    pub account: Option<String>,
    /// Provider (default: the only one that fits); one that the agent does not list is used for this session only
    #[arg(long)]
    pub provider: Option<String>,
    /// Where it runs (default: native; podman and docker: in the agent's image)
    #[arg(long)]
    pub backend: Option<String>,
    /// Model (default: the provider's first)
    #[arg(long)]
    pub model: Option<String>,
    /// How free the agent is (default: bypass)
    #[arg(long, value_enum)]
    pub permissions: Option<Permissions>,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// A knowledge folder it may read, relative to the knowledge root (repeatable; added to the agent's)
    #[arg(long, value_name = "FOLDER")]
    pub knowledge: Vec<String>,
}

/// Who was named: an agent, an account, or a provider.
#[derive(Debug)]
pub(super) enum Who {
    /// An agent.
    Agent(Box<AgentView>),
    /// An account, for the folder's agent.
    Account(String),
    /// A provider, for the folder's agent.
    Provider(String),
}

/// What a word means: an agent of the folder's project, an agent elsewhere, an account, a provider.
pub(super) async fn who(client: &Client, word: &str, folder: &str) -> Result<Who, Failure> {
    let refused = match agent::find_in(client, word, folder).await {
        Ok(agent) => return Ok(Who::Agent(Box::new(agent))),
        Err(failure) if failure.code() == 4 => failure,
        Err(failure) => return Err(failure),
    };
    let accounts = client.accounts().await?;
    if accounts.iter().any(|account| account.name == word) {
        return Ok(Who::Account(word.to_owned()));
    }
    let providers = client.providers().await?;
    if providers.iter().any(|provider| provider.name == word) {
        return Ok(Who::Provider(word.to_owned()));
    }
    Err(refused)
}

/// The default agent of the project a folder is in; none: it is in no project with agents.
pub(super) async fn default_agent(
    client: &Client,
    folder: &str,
) -> Result<Option<AgentView>, Failure> {
    let project = project::of_folder(client, folder).await?;
    Ok(project.and_then(|project| project.agents.into_iter().find(|agent| agent.default)))
}

/// The named agent, else the default one of the folder's project.
pub(crate) async fn of(
    client: &Client,
    named: Option<&str>,
    folder: &str,
) -> Result<Option<AgentView>, Failure> {
    match named {
        Some(id) => Ok(Some(client.agent(id).await?)),
        None => default_agent(client, folder).await,
    }
}

impl LaunchArgs {
    /// Takes an account or a provider that was named by itself.
    ///
    /// # Errors
    /// Another one named by an option.
    pub(super) fn name(&mut self, who: &Who) -> Result<(), Failure> {
        let (account, provider) = match who {
            Who::Agent(_) => return Ok(()),
            Who::Account(name) => (Some(name.clone()), None),
            Who::Provider(name) => (None, Some(name.clone())),
        };
        let is_other =
            |typed: &Option<String>, own: &Option<String>| typed.is_some() && typed != own;
        if is_other(&self.account, &account) || is_other(&self.provider, &provider) {
            return Err(Failure::Usage(
                "two are named: by itself and with --account or --provider".into(),
            ));
        }
        (self.account, self.provider) = (account, provider);
        Ok(())
    }

    /// Whether an account or a provider is named.
    pub(super) fn names_one(&self) -> bool {
        self.account.is_some() || self.provider.is_some()
    }

    /// The request for a session in a folder: of this agent, or of none.
    ///
    /// # Errors
    /// Options that are not the agent's settings.
    pub(crate) async fn session(
        &self,
        client: &Client,
        agent: Option<AgentView>,
        folder: &str,
        turn_timeout: Option<u64>,
        context: &Context,
    ) -> Result<CreateSession, Failure> {
        let Some(agent) = agent else {
            if self.save {
                return Err(Failure::Usage(
                    "--save: the folder is in no project with an agent, and none is named".into(),
                ));
            }
            return Ok(CreateSession {
                scope: folder.to_owned(),
                harness: self.harness.clone(),
                account: self.account.clone(),
                provider: self.provider.clone(),
                backend: self.backend.clone(),
                model: self.model.clone(),
                permissions: self.permissions.map(Into::into),
                network: self.network.policy()?,
                knowledge: self.knowledge.clone(),
                turn_timeout_secs: turn_timeout,
                ..CreateSession::default()
            });
        };
        let agent = self.fitting(client, agent, turn_timeout, context).await?;
        Ok(CreateSession {
            scope: match agent.scope {
                Some(_) => String::new(),
                None => folder.to_owned(),
            },
            agent_id: Some(agent.id),
            harness: self.harness.clone(),
            account: self.account.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            turn_timeout_secs: turn_timeout,
            ..CreateSession::default()
        })
    }

    /// The agent as the options ask for it: as it is, or saved anew.
    ///
    /// # Errors
    /// Options that differ and are not to be saved.
    pub(crate) async fn fitting(
        &self,
        client: &Client,
        agent: AgentView,
        turn_timeout: Option<u64>,
        context: &Context,
    ) -> Result<AgentView, Failure> {
        let mut asked = AgentRequest::from(agent.clone());
        let differences = self.differences(turn_timeout, &mut asked)?;
        if differences.is_empty() {
            return Ok(agent);
        }
        let name = agent.name.as_deref().unwrap_or(agent.id.as_str());
        let differences = differences.join(", ");
        if !self.save
            && !agrees(
                &format!("{name} is set up otherwise: {differences}"),
                context,
            )
        {
            return Err(Failure::Usage(format!(
                "the agent {name} is set up otherwise: {differences}; change it for good with --save, or leave the \
                 options out"
            )));
        }
        let flags = AgentFlags {
            permissions: self.permissions,
            network: self.network.clone(),
            ..AgentFlags::default()
        };
        let id = agent.id.as_str();
        save(client, Some(id), asked, false, &flags, context).await
    }

    /// Whether one of the agent's models is what the options say.
    pub(super) fn fits(&self, access: &ModelAccess) -> bool {
        let is = |typed: &Option<String>, own: Option<&String>| {
            typed.as_ref().is_none_or(|typed| Some(typed) == own)
        };
        is(&self.harness, access.harness.as_ref())
            && is(&self.account, access.account.as_ref())
            && is(&self.provider, access.provider.as_ref())
            && is(&self.model, access.model.as_ref())
    }

    /// Puts the options into the settings; says which were not so before. Pure.
    fn differences(
        &self,
        turn_timeout: Option<u64>,
        asked: &mut AgentRequest,
    ) -> Result<Vec<&'static str>, Failure> {
        let mut found = Vec::new();
        // An account or a provider that it does not list is for this session only, unless it is to be saved.
        let is_named = self.names_one();
        let fits = asked.models.iter().any(|access| self.fits(access));
        if !fits && (self.save || !is_named) {
            let first = asked.models.first().filter(|_| !is_named);
            let (account, provider) = match first {
                Some(first) => (first.account.clone(), first.provider.clone()),
                None => (self.account.clone(), self.provider.clone()),
            };
            // First, so that it is what the options choose.
            asked.models.insert(
                0,
                ModelAccess {
                    harness: self.harness.clone(),
                    account,
                    provider,
                    model: self.model.clone(),
                },
            );
            found.push("its models");
        }
        if let Some(mode) = self.permissions.map(Into::into)
            && mode != asked.permissions
        {
            asked.permissions = mode;
            found.push("permissions");
        }
        if let Some(policy) = widened(&self.network, &asked.network)? {
            asked.network = policy;
            found.push("network");
        }
        let mut added = self.knowledge.clone();
        added.retain(|folder| !asked.knowledge.contains(folder));
        if !added.is_empty() {
            asked.knowledge.extend(added);
            found.push("knowledge folders");
        }
        let native = |backend: &Option<String>| backend.clone().unwrap_or_else(|| "native".into());
        if self.backend.is_some() && native(&self.backend) != native(&asked.backend) {
            asked.backend.clone_from(&self.backend);
            found.push("backend");
        }
        if turn_timeout.is_some()
            && asked.turn_timeout_secs.is_some()
            && turn_timeout != asked.turn_timeout_secs
        {
            asked.turn_timeout_secs = turn_timeout;
            found.push("turn timeout");
        }
        Ok(found)
    }
}

/// Asks whether what is typed may run outside the project although its context does not allow it; gives up without a
/// `yes` typed on a terminal (contract D.19).
pub(super) async fn anyway(
    client: &Client,
    args: &LaunchArgs,
    folder: &str,
    context: &Context,
) -> Result<(), Failure> {
    let typed = args.account.as_deref().or(args.provider.as_deref());
    let typed = typed.ok_or_else(|| {
        Failure::Usage("--anyway: say what is run, with --account or --provider".into())
    })?;
    let project = project::of_folder(client, folder).await?;
    let Some(own) = project.and_then(|project| project.context) else {
        return Ok(());
    };
    context.out.note(format!(
        "warning: {typed} need not be made for {own}, what this project is for; it runs outside the project, in this folder"
    ));
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "--anyway: somebody must type yes on a terminal; make it for the project's context instead, with --context".into(),
        ));
    }
    write!(std::io::stderr(), "Type yes to run it: ").ok();
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::local("cannot read the answer", error))?;
    match line.trim() {
        "yes" => Ok(()),
        _ => Err(Failure::Failed("not run".into())),
    }
}

/// Asks a person; no when there is none.
fn agrees(what: &str, context: &Context) -> bool {
    if context.out.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let question = format!("{what}\nSave this to the agent? [y/N] ");
    let mut answer = String::new();
    let asked = std::io::stderr()
        .write_all(question.as_bytes())
        .and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    asked.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// The policy with what the flags add; none: it is so already.
fn widened(flags: &NetworkArgs, own: &NetworkPolicy) -> Result<Option<NetworkPolicy>, Failure> {
    let Some(typed) = flags.policy()? else {
        return Ok(None);
    };
    let policy = match (typed, own) {
        (
            NetworkPolicy::Filtered { allow, enforcement },
            NetworkPolicy::Filtered {
                allow: listed,
                enforcement: now,
            },
        ) => {
            let mut all = listed.clone();
            all.extend(allow.into_iter().filter(|entry| !listed.contains(entry)));
            let is_said = flags.log_only || flags.network == Some(Mode::Filtered);
            let enforcement: Enforcement = if is_said { enforcement } else { *now };
            NetworkPolicy::Filtered {
                allow: all,
                enforcement,
            }
        }
        (typed, _) => typed,
    };
    Ok((policy != *own).then_some(policy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: LaunchArgs,
        #[arg(long)]
        turn_timeout: Option<u64>,
    }

    fn differences(flags: &[&str], asked: &mut AgentRequest) -> Result<Vec<&'static str>, Failure> {
        let typed = Typed::parse_from(["run"].iter().chain(flags));
        typed.args.differences(typed.turn_timeout, asked)
    }

    fn agent() -> AgentRequest {
        serde_json::from_value(serde_json::json!({
            "models": [
                {"harness": "pi", "provider": "here", "model": "small"},
                {"harness": "claude-code", "provider": "there", "model": "large"},
            ],
            "network": {"mode": "filtered", "allow": ["a.example:443"]},
            "knowledge": ["rust"],
            "turnTimeoutSecs": 60,
        }))
        .expect("an agent")
    }

    #[test]
    fn options_that_are_the_agents_are_no_difference() {
        for flags in [
            &[][..],
            &["--harness", "claude-code"],
            &["--provider", "there", "--model", "large"],
            &["--permissions", "bypass", "--backend", "native"],
            &["--allow", "a.example:443"],
            &["--knowledge", "rust"],
            &["--network", "filtered", "--turn-timeout", "60"],
            // For this session only.
            &["--account", "perso"],
            &["--provider", "elsewhere", "--model", "m"],
        ] {
            let mut asked = agent();
            let found = differences(flags, &mut asked).expect("understood");
            assert_eq!((found, asked), (vec![], agent()), "{flags:?}");
        }
    }

    #[test]
    fn options_that_differ_are_named_and_put_into_the_settings() {
        for (flags, named, changed) in [
            (&["--model", "huge"][..], "its models", "models"),
            (
                &["--harness", "pi", "--provider", "there", "--save"],
                "its models",
                "models",
            ),
            (&["--account", "perso", "--save"], "its models", "models"),
            (&["--permissions", "ask"], "permissions", "permissions"),
            (&["--network", "open"], "network", "network"),
            (&["--network", "none"], "network", "network"),
            (&["--allow", "b.example:443"], "network", "network"),
            (&["--log-only"], "network", "network"),
            (&["--knowledge", "go"], "knowledge folders", "knowledge"),
            (&["--backend", "podman"], "backend", "backend"),
            (&["--turn-timeout", "61"], "turn timeout", "turnTimeoutSecs"),
        ] {
            let mut asked = agent();
            let found = differences(flags, &mut asked).expect("understood");
            assert_eq!(found, [named], "{flags:?}");
            let (before, after) = (
                serde_json::to_value(agent()).expect("JSON"),
                serde_json::to_value(&asked).expect("JSON"),
            );
            assert_ne!(before[changed], after[changed], "{flags:?}");
        }
        let mut asked = agent();
        differences(&["--allow", "b.example:443"], &mut asked).expect("understood");
        let NetworkPolicy::Filtered { allow, .. } = asked.network else {
            panic!("still filtered");
        };
        assert_eq!(allow.len(), 2, "the agent's own entries stay");
    }
}
