//! A harness's own terminal program in its sandbox (contract D.16): one sandbox per terminal, gone when it closes.
//!
//! The terminal is one like every other of a sandbox, so it outlives the daemon; its client attaches to it, and comes
//! back to it by itself. It closes when its program ends or when nobody has been attached for [`LINGER`].

use super::{AGENT_LABEL, Launch, Wanted, cannot, prepared};
use crate::app::terminals;
use crate::app::{agents, audit};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_base::tasks::spawn_named;
use handler_types::agent_terminal::{TerminalStart, TerminalStarted};
use handler_types::sandbox::SandboxView;
use handler_types::terminal::{CreateTerminal, TerminalNumber, TerminalState};
use handler_types::{ProblemCode, SandboxId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long nobody may be attached. Longer than a client tries to come back to a daemon that was away.
const LINGER: Duration = Duration::from_secs(75);
/// How long clients may take to come and hear how the program ended.
const HEARD: Duration = Duration::from_secs(10);
/// How often is looked.
const TICK: Duration = Duration::from_millis(250);
/// Longest `TERM` and `COLORTERM`.
const LONGEST_TERM: usize = 64;
/// Most arguments, and their length together, bytes.
const MOST_ARGS: (usize, usize) = (256, 128 << 10);

/// Starts the program; its sandbox is ready when this returns.
///
/// # Errors
/// 404; 400 for a request that makes no sense and an unusable model; 409 `the terminal cannot start`.
pub async fn start(
    app: &Arc<App>,
    agent: &str,
    request: TerminalStart,
) -> ApiResult<TerminalStarted> {
    check(&request)?;
    let model = request.model.clone();
    let wanted = Wanted {
        harness: model.as_ref().and_then(|model| model.harness.clone()),
        account: model.as_ref().and_then(|model| model.account.clone()),
        provider: model.as_ref().and_then(|model| model.provider.clone()),
        model: model.and_then(|model| model.model),
        folder: request.folder.clone(),
    };
    let launch = prepared(app, agent, &wanted, Some(&request.args)).await?;
    // In a task of its own: a client that goes away leaves no sandbox without a terminal.
    let task = tokio::spawn({
        let app = app.clone();
        async move { make(&app, launch, &request).await }
    });
    let made = task.await;
    made.map_err(|_| ApiError::new(ProblemCode::Internal, "the start ended early"))?
}

fn check(request: &TerminalStart) -> ApiResult<()> {
    let is_term = |text: &String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
        (1..=LONGEST_TERM).contains(&text.len()) && text.bytes().all(is_plain)
    };
    let mut terms = request.term.iter().chain(&request.colorterm);
    if !terms.all(is_term) {
        let detail = "term, colorterm: 1 to 64 letters, digits, `.`, `_`, `+` and `-`";
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    let (most, longest) = MOST_ARGS;
    let length: usize = request.args.iter().map(String::len).sum();
    if request.args.len() > most
        || length > longest
        || request.args.iter().any(|arg| arg.contains('\0'))
    {
        let detail = format!("args: at most {most}, {longest} bytes together, without NUL");
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    Ok(())
}

async fn make(
    app: &Arc<App>,
    launch: Launch,
    request: &TerminalStart,
) -> ApiResult<TerminalStarted> {
    let label = format!("terminal-{}", handler_base::random::hex(4));
    let spec = launch.prepared.spec.clone();
    // Nobody empties its caches before its sandbox is known to have them.
    let using = app.caches_turn.read().await;
    let made = crate::app::agent::make(app, spec, label, launch.prepared.login.as_ref()).await;
    drop(using);
    let view = made.map_err(cannot)?;
    audit::made(app, &view).await;
    launch.touch(app).await;
    match open(app, &view, launch, request).await {
        Ok(terminal) => {
            watch(app, view.id.clone(), terminal);
            Ok(started(&view.id, terminal))
        }
        Err(error) => {
            remove(app, &view.id).await;
            Err(cannot(error))
        }
    }
}

fn started(sandbox: &SandboxId, terminal: TerminalNumber) -> TerminalStarted {
    let attach = [
        "handler",
        "sandbox",
        "attach",
        sandbox.as_str(),
        &terminal.to_string(),
    ];
    TerminalStarted {
        sandbox: sandbox.clone(),
        terminal,
        attach: attach.map(str::to_owned).to_vec(),
    }
}

async fn open(
    app: &Arc<App>,
    view: &SandboxView,
    launch: Launch,
    request: &TerminalStart,
) -> ApiResult<TerminalNumber> {
    let variables = [("TERM", &request.term), ("COLORTERM", &request.colorterm)];
    let env: BTreeMap<String, String> = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
        .collect();
    let create = CreateTerminal {
        argv: launch.prepared.process.argv,
        cwd: launch.prepared.process.cwd,
        env,
        size: request.size,
        ..CreateTerminal::default()
    };
    let terminal = terminals::create(app, view.id.as_str(), create).await?;
    Ok(terminal.terminal)
}

/// Removes the sandbox when the terminal has closed.
fn watch(app: &Arc<App>, sandbox: SandboxId, terminal: TerminalNumber) {
    let app = app.clone();
    spawn_named("agent terminal", async move {
        if closes(&app, &sandbox, terminal).await {
            remove(&app, &sandbox).await;
        }
    });
}

/// Waits until it has closed; false: the daemon ends before.
async fn closes(app: &Arc<App>, sandbox: &SandboxId, terminal: TerminalNumber) -> bool {
    let mut alone_since = Instant::now();
    let mut ended_at = None;
    // Its client comes only after the start, and may find a program that has ended.
    let mut was_seen = false;
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return false,
            () = tokio::time::sleep(TICK) => {}
        }
        let Ok(hub) = terminals::find(app, sandbox.as_str(), terminal).await else {
            return true;
        };
        let view = hub.view();
        let now = Instant::now();
        if view.viewers > 0 {
            (alone_since, was_seen) = (now, true);
        }
        if view.state == TerminalState::Ended {
            let since = *ended_at.get_or_insert(now);
            if was_seen && view.viewers == 0 || now - since >= HEARD {
                return true;
            }
        } else if now - alone_since >= LINGER {
            return true;
        }
    }
}

async fn remove(app: &App, sandbox: &SandboxId) {
    if let Err(error) = app.engine.delete(sandbox).await {
        tracing::warn!(%sandbox, %error, "the sandbox of a terminal could not be removed");
    }
}

/// Goes on with a terminal that an earlier daemon started, if its program runs and its agent is there.
pub(super) async fn take_up(app: &Arc<App>, view: SandboxView) {
    let agent = view.labels.get(AGENT_LABEL).cloned().unwrap_or_default();
    let known = terminals::list(app, view.id.as_str()).await;
    let terminal = known.ok().and_then(|all| all.first().cloned());
    let is_there = agents::find(app, &agent).await.is_ok();
    match terminal {
        Some(terminal) if is_there => watch(app, view.id, terminal.terminal),
        _ => remove(app, &view.id).await,
    }
}
