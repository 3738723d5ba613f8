//! `handler shell`, and what `handler sandbox` does with terminals: shell, attach, terminals, screen, close, tmux.

use super::detach::{DEFAULT, DetachKeys};
use super::raw::size;
use super::watch_terminal::{How, Left, watch};
use super::{Outcome, current_folder};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use handler_client::Client;
use handler_types::sandbox::{CreateSandbox, SandboxState, SandboxView};
use handler_types::terminal::{CreateTerminal, TerminalState, TerminalView};
use std::path::Path;

/// `handler shell`.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// The sandbox (default: the one with the current folder, made if there is none)
    pub sandbox: Option<String>,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// What a new terminal runs, and how it is left.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// Working folder inside
    #[arg(long)]
    pub cwd: Option<String>,
    /// User inside, where there are several
    #[arg(long)]
    pub user: Option<String>,
    /// A name for the terminal
    #[arg(long)]
    pub name: Option<String>,
    /// Attach to this tmux session inside, made when there is none
    #[arg(long, value_name = "SESSION", conflicts_with = "argv")]
    pub tmux: Option<String>,
    /// Only open it and print its number
    #[arg(long, short)]
    pub detach: bool,
    /// Keys that let go of it: like `ctrl-],d`, or `none`
    #[arg(long, value_name = "KEYS", env = "HANDLER_DETACH_KEYS", default_value = DEFAULT)]
    pub detach_keys: String,
    /// Program and arguments instead of a login shell
    #[arg(last = true)]
    pub argv: Vec<String>,
}

/// `handler sandbox attach`.
#[derive(Debug, Args)]
pub struct AttachTerminalArgs {
    /// The sandbox
    pub sandbox: String,
    /// The terminal's number (default: the only one that runs)
    pub terminal: Option<u32>,
    /// Look only; nothing typed gets there
    #[arg(long, short)]
    pub read_only: bool,
    /// Leave its size to whoever has it
    #[arg(long)]
    pub no_take: bool,
    /// Lines before the screen that are shown too
    #[arg(long, default_value_t = 1000)]
    pub scrollback: u32,
    /// Keys that let go of it: like `ctrl-],d`, or `none`
    #[arg(long, value_name = "KEYS", env = "HANDLER_DETACH_KEYS", default_value = DEFAULT)]
    pub detach_keys: String,
}

/// Opens a terminal in the named sandbox or the folder's and follows it.
///
/// # Errors
/// [`Failure`].
pub async fn shell(args: ShellArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let sandbox = match args.sandbox {
        Some(sandbox) => sandbox,
        None => of_folder(&client, context).await?,
    };
    open(&sandbox, args.open, context).await
}

/// The sandbox of the current folder: the one whose project folder it is or lies in, else a new one.
async fn of_folder(client: &Client, context: &Context) -> Result<String, Failure> {
    let folder = current_folder()?;
    let mut best: Option<SandboxView> = None;
    let mut cursor = String::new();
    loop {
        let page = client.sandboxes(&cursor, 500).await?;
        for view in page.items {
            let depth = |v: &SandboxView| v.scope.as_ref().map_or(0, String::len);
            let fits = view.state != SandboxState::Failed
                && view.state != SandboxState::Deleting
                && view
                    .scope
                    .as_ref()
                    .is_some_and(|s| Path::new(&folder).starts_with(s));
            // The innermost; of those the newest, which comes first.
            if fits && best.as_ref().is_none_or(|b| depth(&view) > depth(b)) {
                best = Some(view);
            }
        }
        let Some(next) = page.next_cursor else { break };
        cursor = next;
    }
    if let Some(view) = best {
        context.out.note(format!("in sandbox {}", view.name));
        return Ok(view.id.to_string());
    }
    let request = CreateSandbox {
        scope: Some(folder),
        ..Default::default()
    };
    let view = client.create_sandbox(&request).await?;
    context.out.note(format!(
        "made sandbox {0} for this folder; `handler sandbox down {0}` removes it",
        view.name
    ));
    Ok(view.id.to_string())
}

/// Opens a terminal and follows it to its end.
///
/// # Errors
/// [`Failure`].
pub async fn open(sandbox: &str, args: OpenArgs, context: &Context) -> Outcome {
    let detach = DetachKeys::parse(&args.detach_keys)?;
    let client = context.client()?;
    let request = CreateTerminal {
        argv: args.argv,
        cwd: args.cwd,
        user: args.user,
        name: args.name,
        tmux: args.tmux,
        size: size(),
        ..Default::default()
    };
    let view = client.create_terminal(sandbox, &request).await?;
    let terminal = view.terminal;
    if args.detach {
        context
            .out
            .show(&view, |out, view| out.line(view.terminal.to_string()));
        return Ok(0);
    }
    let how = How {
        sandbox: sandbox.to_owned(),
        terminal,
        read_only: false,
        takes: true,
        scrollback: 0,
        detach,
    };
    match watch(&client, context, how).await? {
        Left::Ended(code) => {
            // It was ours alone, and what it showed is on our terminal.
            client.close_terminal(sandbox, terminal).await.ok();
            Ok(code)
        }
        Left::Detached => {
            detached(context, sandbox, terminal);
            Ok(0)
        }
    }
}

fn detached(context: &Context, sandbox: &str, terminal: u32) {
    context.out.note(format!(
        "left; `handler sandbox attach {sandbox} {terminal}` comes back"
    ));
}

/// Follows a terminal that is there.
///
/// # Errors
/// [`Failure`].
pub async fn attach(args: AttachTerminalArgs, context: &Context) -> Outcome {
    let detach = DetachKeys::parse(&args.detach_keys)?;
    let client = context.client()?;
    let terminal = match args.terminal {
        Some(terminal) => terminal,
        None => only_one(&client, &args.sandbox).await?,
    };
    let how = How {
        sandbox: args.sandbox.clone(),
        terminal,
        read_only: args.read_only,
        takes: !args.no_take,
        scrollback: args.scrollback,
        detach,
    };
    match watch(&client, context, how).await? {
        Left::Ended(code) => Ok(code),
        Left::Detached => {
            detached(context, &args.sandbox, terminal);
            Ok(0)
        }
    }
}

async fn only_one(client: &Client, sandbox: &str) -> Result<u32, Failure> {
    let all = client.terminals(sandbox).await?;
    let running: Vec<&TerminalView> = all
        .iter()
        .filter(|t| t.state == TerminalState::Running)
        .collect();
    match running.as_slice() {
        [one] => Ok(one.terminal),
        [] => Err(Failure::Failed(format!(
            "no terminal runs in {sandbox}; `handler sandbox shell {sandbox}` opens one"
        ))),
        several => {
            let numbers: Vec<String> = several.iter().map(|t| t.terminal.to_string()).collect();
            Err(Failure::Usage(format!(
                "several terminals run in {sandbox}: give one of {}",
                numbers.join(", ")
            )))
        }
    }
}

/// Lists terminals.
///
/// # Errors
/// [`Failure`].
pub async fn list(sandbox: &str, context: &Context) -> Outcome {
    let all = context.client()?.terminals(sandbox).await?;
    context.out.show(&all, |out, all| {
        let rows: Vec<Vec<String>> = all.iter().map(row).collect();
        out.table(
            &[
                "TERMINAL", "STATE", "SIZE", "VIEWERS", "NAME", "TITLE", "COMMAND",
            ],
            &rows,
        );
    });
    Ok(0)
}

fn row(view: &TerminalView) -> Vec<String> {
    let state = match (view.state, view.exit) {
        (TerminalState::Running, _) => "running".to_owned(),
        (TerminalState::Ended, Some(exit)) => format!("exited {}", exit.code),
        (TerminalState::Ended, None) => "ended".to_owned(),
    };
    vec![
        view.terminal.to_string(),
        state,
        format!("{}x{}", view.size.cols, view.size.rows),
        view.viewers.to_string(),
        view.name.clone().unwrap_or_default(),
        view.title.clone().unwrap_or_default(),
        view.argv.join(" "),
    ]
}

/// `handler sandbox screen`.
#[derive(Debug, Args)]
pub struct ScreenArgs {
    /// The sandbox
    pub sandbox: String,
    /// The terminal's number (default: the only one that runs)
    pub terminal: Option<u32>,
    /// With its colours
    #[arg(long, visible_alias = "color")]
    pub colour: bool,
    /// Lines before the screen that are shown too
    #[arg(long, default_value_t = 0)]
    pub scrollback: u32,
}

/// Prints what is on a terminal.
///
/// # Errors
/// [`Failure`].
pub async fn screen(args: ScreenArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let terminal = match args.terminal {
        Some(terminal) => terminal,
        None => only_one(&client, &args.sandbox).await?,
    };
    if context.out.json {
        let screen = client
            .terminal_screen(&args.sandbox, terminal, args.scrollback)
            .await?;
        context.out.document(&screen);
        return Ok(0);
    }
    let sandbox = handler_client::transport::encode(&args.sandbox);
    let format = if args.colour { "ansi" } else { "text" };
    let path = format!(
        "/v1/sandboxes/{sandbox}/terminals/{terminal}/screen?format={format}&scrollback={}",
        args.scrollback
    );
    let text = client
        .call_raw(http::Method::GET, &path, None::<&()>)
        .await?;
    context.out.bytes(&text);
    Ok(0)
}

/// Closes terminals.
///
/// # Errors
/// [`Failure`].
pub async fn close(sandbox: &str, terminals: &[u32], context: &Context) -> Outcome {
    let client = context.client()?;
    for terminal in terminals {
        client.close_terminal(sandbox, *terminal).await?;
        context.out.note(format!("closed {terminal}"));
    }
    Ok(0)
}

/// Lists tmux sessions inside.
///
/// # Errors
/// [`Failure`].
pub async fn tmux(sandbox: &str, context: &Context) -> Outcome {
    let found = context.client()?.tmux_sessions(sandbox).await?;
    context.out.show(&found, |out, found| {
        if !found.installed {
            out.note("tmux is not installed in this sandbox");
            return;
        }
        let rows: Vec<Vec<String>> = found
            .sessions
            .iter()
            .map(|s| {
                vec![
                    s.name.clone(),
                    s.windows.to_string(),
                    s.attached.to_string(),
                ]
            })
            .collect();
        out.table(&["SESSION", "WINDOWS", "ATTACHED"], &rows);
    });
    Ok(0)
}
