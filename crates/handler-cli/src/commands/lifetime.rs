//! `handler sandbox pause|resume|restart|set`, and the flags of `up` about lifetimes.

use super::Outcome;
use super::sandbox::pairs;
use crate::context::Context;
use crate::duration;
use crate::exit::Failure;
use clap::Args;
use handler_types::lifetime::{IdleAction, IdlePolicy};
use handler_types::sandbox::{CreateSandbox, Resources, SandboxState, SandboxView};
use handler_types::update::{IdleUpdate, NoIdle, UpdateSandbox};

/// When a sandbox ends, and what happens while nobody uses it.
#[derive(Debug, Args)]
pub struct LifeArgs {
    /// Remove it after this time, e.g. 30m, 2h, 7d
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<String>,
    /// What to do after this time without use: TIME:pause, TIME:stop or TIME:delete. A running command, an open
    /// terminal and an open connection are use
    #[arg(long, value_name = "TIME:ACTION")]
    pub idle: Option<String>,
    /// Do not wake it when it is used again
    #[arg(long, requires = "idle")]
    pub no_wake: bool,
    /// Free data of programs, NAME=VALUE (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    pub metadata: Vec<String>,
}

/// `handler sandbox set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The sandbox
    pub sandbox: String,
    /// Another name ("": none but its id)
    #[arg(long)]
    pub name: Option<String>,
    /// Set a label, NAME=VALUE; NAME= takes it away (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,
    /// Set data of programs, NAME=VALUE; NAME= takes it away (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    pub metadata: Vec<String>,
    /// Remove it after this time from now ("none": never)
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<String>,
    /// What to do after this time without use, TIME:pause, TIME:stop or TIME:delete ("none": nothing)
    #[arg(long, value_name = "TIME:ACTION")]
    pub idle: Option<String>,
    /// Do not wake it when it is used again
    #[arg(long, requires = "idle")]
    pub no_wake: bool,
    /// Another memory limit, MiB
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u64>,
    /// Another CPU limit
    #[arg(long)]
    pub cpus: Option<f64>,
    /// Another limit on processes
    #[arg(long)]
    pub pids: Option<u64>,
}

/// Puts what the flags say into a request.
///
/// # Errors
/// [`Failure::Usage`].
pub(super) fn apply(args: &LifeArgs, request: &mut CreateSandbox) -> Result<(), Failure> {
    if let Some(ttl) = &args.ttl {
        request.ttl_seconds = Some(duration::parse(ttl, "--ttl")?);
    }
    if let Some(idle) = &args.idle {
        request.idle = Some(idle_policy(idle, args.no_wake)?);
    }
    request.metadata = pairs(&args.metadata, "--metadata")?;
    Ok(())
}

fn idle_policy(text: &str, no_wake: bool) -> Result<IdlePolicy, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "--idle {text}: write TIME:pause, TIME:stop or TIME:delete, e.g. 10m:pause"
        ))
    };
    let (time, action) = text.split_once(':').ok_or_else(wrong)?;
    let action = match action {
        "pause" => IdleAction::Pause,
        "stop" => IdleAction::Stop,
        "delete" => IdleAction::Delete,
        _ => return Err(wrong()),
    };
    Ok(IdlePolicy {
        after_seconds: duration::parse(time, "--idle")?,
        action,
        wake: !no_wake,
    })
}

/// Changes a sandbox.
///
/// # Errors
/// [`Failure`].
pub(super) async fn set(args: SetArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let now = client.sandbox(&args.sandbox).await?;
    let request = update(&args, &now)?;
    if request == UpdateSandbox::default() {
        let hint = "say what to change, e.g. --ttl 2h; see `handler sandbox set --help`";
        return Err(Failure::Usage(hint.to_owned()));
    }
    let view = client.update_sandbox(now.id.as_str(), &request).await?;
    context.out.show(&view, |out, view| out.line(&view.name));
    Ok(0)
}

fn update(args: &SetArgs, now: &SandboxView) -> Result<UpdateSandbox, Failure> {
    let merged =
        |given: &[String], flag: &str, old: &std::collections::BTreeMap<String, String>| {
            if given.is_empty() {
                return Ok::<_, Failure>(None);
            }
            let mut all = old.clone();
            for (name, value) in pairs(given, flag)? {
                if value.is_empty() {
                    all.remove(&name);
                } else {
                    all.insert(name, value);
                }
            }
            Ok(Some(all))
        };
    let ttl_seconds = match args.ttl.as_deref() {
        Some("none") => Some(0),
        Some(text) => Some(duration::parse(text, "--ttl")?),
        None => None,
    };
    let idle = match args.idle.as_deref() {
        Some("none") => Some(IdleUpdate::Nothing(NoIdle { none: true })),
        Some(text) => Some(IdleUpdate::Policy(idle_policy(text, args.no_wake)?)),
        None => None,
    };
    let old = now.resources;
    let wanted = Resources {
        memory_mib: args.memory.or(old.memory_mib),
        cpus: args.cpus.or(old.cpus),
        pids: args.pids.or(old.pids),
    };
    Ok(UpdateSandbox {
        name: args.name.clone(),
        labels: merged(&args.label, "--label", &now.labels)?,
        metadata: merged(&args.metadata, "--metadata", &now.metadata)?,
        ttl_seconds,
        idle,
        resources: (wanted != old).then_some(wanted),
    })
}

/// The state as a list shows it: with what is still there of one that could not be removed.
#[must_use]
pub(super) fn state(view: &SandboxView) -> String {
    let word = format!("{:?}", view.state).to_lowercase();
    let is_left = view.state == SandboxState::Failed && !view.remains.is_empty();
    if is_left {
        return format!("{word}, left: {}", view.remains.join(", "));
    }
    word
}

/// How long it still lives.
#[must_use]
pub(super) fn time_left(view: &SandboxView) -> String {
    let expires = view.life.expires_at.as_deref();
    let Some(at) = expires.and_then(handler_base::clock::parse_rfc3339) else {
        return String::new();
    };
    let left = at.saturating_sub(handler_base::clock::now_ms()).max(0);
    duration::format(left.unsigned_abs().div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_policy_is_read_as_written() {
        let policy = idle_policy("10m:pause", false).expect("fine");
        assert_eq!(
            (policy.after_seconds, policy.action, policy.wake),
            (600, IdleAction::Pause, true)
        );
        assert!(!idle_policy("2h:stop", true).expect("fine").wake);
        for wrong in ["10m", "10m:sleep", ":stop", "x:stop"] {
            assert!(idle_policy(wrong, false).is_err(), "{wrong}");
        }
    }
}
