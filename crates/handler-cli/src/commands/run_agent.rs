//! Which agent `handler run` is: the one that was named, else the default one of the project the folder is in.
//!
//! Invariant: options that differ from the agent's settings are refused or, with `--save`, become its settings; none
//! is ignored.

use super::agent_flags::{AgentFlags, save};
use super::network::{Mode, NetworkArgs};
use super::run::RunArgs;
use super::{agent, project};
use crate::context::Context;
use crate::exit::Failure;
use handler_client::Client;
use handler_types::agent::{AgentRequest, AgentView, ModelAccess};
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::session::CreateSession;

/// The agent that a task in this folder goes to; none: nobody was named and the folder is in no project with agents.
pub(super) async fn chosen(
    client: &Client,
    args: &RunArgs,
    folder: &str,
) -> Result<Option<AgentView>, Failure> {
    if args.no_agent {
        return Ok(None);
    }
    if let Some(name) = &args.agent {
        return Ok(Some(agent::find(client, name).await?));
    }
    let project = project::of_folder(client, folder).await?;
    Ok(project.and_then(|project| project.agents.into_iter().find(|agent| agent.default)))
}

/// The request for a session of this agent.
pub(super) async fn request(
    client: &Client,
    args: &RunArgs,
    folder: &str,
    agent: AgentView,
    context: &Context,
) -> Result<CreateSession, Failure> {
    let agent = fitting(client, args, agent, context).await?;
    Ok(CreateSession {
        scope: match agent.scope {
            Some(_) => String::new(),
            None => folder.to_owned(),
        },
        agent_id: Some(agent.id),
        harness: args.harness.clone(),
        provider: args.provider.clone(),
        model: args.model.clone(),
        turn_timeout_secs: args.turn_timeout,
        ..CreateSession::default()
    })
}

/// The agent as the options ask for it: as it is, or saved anew.
async fn fitting(
    client: &Client,
    args: &RunArgs,
    agent: AgentView,
    context: &Context,
) -> Result<AgentView, Failure> {
    let mut asked = AgentRequest::from(agent.clone());
    let differences = differences(args, &mut asked)?;
    if differences.is_empty() {
        return Ok(agent);
    }
    let name = agent.name.as_deref().unwrap_or(agent.id.as_str());
    if !args.save {
        return Err(Failure::Usage(format!(
            "the agent {name} is set up otherwise: {}; change it for good with --save, or run without it with \
             --no-agent",
            differences.join(", ")
        )));
    }
    let flags = AgentFlags {
        permissions: args.permissions,
        network: args.network.clone(),
        ..AgentFlags::default()
    };
    save(
        client,
        Some(agent.id.as_str()),
        asked,
        false,
        &flags,
        context,
    )
    .await
}

/// Puts the options into the settings; says which were not so before. Pure.
fn differences(args: &RunArgs, asked: &mut AgentRequest) -> Result<Vec<&'static str>, Failure> {
    let mut found = Vec::new();
    let fits = |access: &ModelAccess| {
        let is = |typed: &Option<String>, own: Option<&String>| {
            typed.as_ref().is_none_or(|typed| Some(typed) == own)
        };
        is(&args.harness, access.harness.as_ref())
            && is(&args.provider, Some(&access.provider))
            && is(&args.model, access.model.as_ref())
    };
    if !asked.models.iter().any(fits) {
        let first = asked.models.first().map(|access| access.provider.clone());
        let provider = args.provider.clone().or(first).unwrap_or_default();
        // First, so that it is what the options choose.
        asked.models.insert(
            0,
            ModelAccess {
                harness: args.harness.clone(),
                provider,
                model: args.model.clone(),
            },
        );
        found.push("its models");
    }
    if let Some(mode) = args.permissions.map(Into::into)
        && mode != asked.permissions
    {
        asked.permissions = mode;
        found.push("permissions");
    }
    if let Some(policy) = widened(&args.network, &asked.network)? {
        asked.network = policy;
        found.push("network");
    }
    let mut added = args.knowledge.clone();
    added.retain(|folder| !asked.knowledge.contains(folder));
    if !added.is_empty() {
        asked.knowledge.extend(added);
        found.push("knowledge folders");
    }
    let native = |backend: &Option<String>| backend.clone().unwrap_or_else(|| "native".into());
    if args.backend.is_some() && native(&args.backend) != native(&asked.backend) {
        asked.backend.clone_from(&args.backend);
        found.push("backend");
    }
    if args.turn_timeout.is_some()
        && asked.turn_timeout_secs.is_some()
        && args.turn_timeout != asked.turn_timeout_secs
    {
        asked.turn_timeout_secs = args.turn_timeout;
        found.push("turn timeout");
    }
    Ok(found)
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
        args: RunArgs,
    }

    fn typed(flags: &[&str]) -> RunArgs {
        let all = ["run", "task"].iter().chain(flags);
        Typed::parse_from(all).args
    }

    fn agent() -> AgentRequest {
        serde_json::from_value(serde_json::json!({
            "models": [
                {"harness": "pi", "provider": "here", "model": "small"},
                {"harness": "claude-code", "provider": "there", "model": "large"},
            ],
            "network": {"mode": "filtered", "allow": ["a.example:443"]},
            "turnTimeoutSecs": 60,
            "knowledge": ["rust"],
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
        ] {
            let mut asked = agent();
            let found = differences(&typed(flags), &mut asked).expect("understood");
            assert_eq!((found, asked), (vec![], agent()), "{flags:?}");
        }
    }

    #[test]
    fn options_that_differ_are_named_and_put_into_the_settings() {
        for (flags, named, changed) in [
            (&["--model", "huge"][..], "its models", "models"),
            (
                &["--harness", "pi", "--provider", "there"],
                "its models",
                "models",
            ),
            (&["--permissions", "ask"], "permissions", "permissions"),
            (&["--network", "open"], "network", "network"),
            (&["--network", "none"], "network", "network"),
            (&["--allow", "b.example:443"], "network", "network"),
            (&["--log-only"], "network", "network"),
            (&["--backend", "podman"], "backend", "backend"),
            (&["--knowledge", "go"], "knowledge folders", "knowledge"),
            (&["--turn-timeout", "61"], "turn timeout", "turnTimeoutSecs"),
        ] {
            let mut asked = agent();
            let found = differences(&typed(flags), &mut asked).expect("understood");
            assert_eq!(found, [named], "{flags:?}");
            let (before, after) = (
                serde_json::to_value(agent()).expect("JSON"),
                serde_json::to_value(&asked).expect("JSON"),
            );
            assert_ne!(before[changed], after[changed], "{flags:?}");
        }
        let mut asked = agent();
        differences(&typed(&["--allow", "b.example:443"]), &mut asked).expect("understood");
        let NetworkPolicy::Filtered { allow, .. } = asked.network else {
            panic!("still filtered");
        };
        assert_eq!(allow.len(), 2, "the agent's own entries stay");
    }
}
