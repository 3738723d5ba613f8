//! `handler run`: a task for an agent in a folder, followed to the end of its turn.

use super::launch::{self, LaunchArgs};
use super::{Outcome, absolute, agent, current_folder};
use crate::chat::{Chat, Until};
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, ValueEnum};
use handler_types::harness::PermissionMode;
use handler_types::session::CreateSession;
use std::io::{IsTerminal as _, Read as _};

/// How free the agent is.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Permissions {
    /// Asks before it changes or runs something
    Ask,
    /// Changes files freely, asks for the rest
    AcceptEdits,
    /// Never asks; the sandbox is the wall
    Bypass,
}

impl From<Permissions> for PermissionMode {
    fn from(typed: Permissions) -> Self {
        match typed {
            Permissions::Ask => Self::Ask,
            Permissions::AcceptEdits => Self::AcceptEdits,
            Permissions::Bypass => Self::Bypass,
        }
    }
}

/// `handler run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The task; `-` or nothing: read from standard input
    pub prompt: Option<String>,
    /// Project folder (default: the current folder)
    #[arg(long)]
    pub folder: Option<String>,
    /// The agent it goes to (default: that of the project the folder is in)
    #[arg(long)]
    pub agent: Option<String>,
    /// Run it without the project's agent
    #[arg(long, conflicts_with_all = ["agent", "save"])]
    pub no_agent: bool,
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Cancel a turn after so many seconds (default 3600)
    #[arg(long, value_name = "SECONDS")]
    pub turn_timeout: Option<u64>,
    /// Run an account or provider that is not made for the project's context, outside the project; asks for a `yes`
    #[arg(long, conflicts_with_all = ["agent", "save"])]
    pub anyway: bool,
    /// Print the session's id and leave
    #[arg(long, short)]
    pub detach: bool,
    /// Stay after the turn and take further prompts
    #[arg(long, short)]
    pub interactive: bool,
}

/// Runs it. Ends with 0 when the turn ended by itself, else with 1.
///
/// # Errors
/// [`Failure`].
pub async fn run(args: RunArgs, context: &Context) -> Outcome {
    let prompt = prompt(args.prompt.as_deref())?;
    let scope = match &args.folder {
        Some(folder) => absolute(folder)?,
        None => current_folder()?,
    };
    let client = context.client()?;
    if args.anyway {
        launch::anyway(&client, &args.launch, &scope, context).await?;
    }
    let agent = match &args.agent {
        _ if args.no_agent || args.anyway => None,
        Some(name) => Some(agent::find_in(&client, name, &scope).await?),
        None => launch::default_agent(&client, &scope).await?,
    };
    let timeout = args.turn_timeout;
    let session = args
        .launch
        .session(&client, agent, &scope, timeout, context);
    let request = session.await?;
    let request = CreateSession {
        prompt: Some(prompt),
        ..request
    };
    let session = client.create_session(&request).await?;
    if args.detach {
        context
            .out
            .show(&session, |out, session| out.line(session.id.as_str()));
        return Ok(0);
    }
    let through = session.account.as_ref().or(session.provider.as_ref());
    let with = match session.model.as_str() {
        "" => through.cloned().unwrap_or_default(),
        model => model.to_owned(),
    };
    context.out.note(format!(
        "session {} — {} with {with}",
        session.id, session.harness
    ));
    let mut chat = Chat::attach(&client, &session, 0, context).await?;
    if args.interactive {
        return chat.follow(Until::Left).await;
    }
    let code = chat.follow(Until::TurnEnd).await?;
    context
        .out
        .note(format!("go on with `handler attach {}`", session.id));
    Ok(code)
}

fn prompt(typed: Option<&str>) -> Result<String, Failure> {
    let text = match typed {
        Some(text) if text != "-" => text.to_owned(),
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::Usage("say what to do: handler run \"…\"".into()));
        }
        _ => {
            let mut text = String::new();
            std::io::stdin()
                .take(1024 * 1024)
                .read_to_string(&mut text)
                .map_err(|e| Failure::local("cannot read the task", e))?;
            text
        }
    };
    if text.trim().is_empty() {
        return Err(Failure::Usage("the task is empty".into()));
    }
    Ok(text)
}
