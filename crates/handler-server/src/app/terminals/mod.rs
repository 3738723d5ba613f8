//! Rules of terminals. Each has an owner task from the moment it is made, or found again after a restart of the
//! daemon, until it is closed: its output is read whether anybody looks or not.

mod hub;
mod link;
mod owner;
mod queue;
mod record;
mod registry;
mod request;
mod tell;
mod tmux;
mod viewers;

pub use hub::Hub;
pub(crate) use hub::ScreenAnswer;
pub(crate) use queue::{Frame, Next};
pub use registry::{Terminals, forget, leave, take_up};
pub use tmux::sessions as tmux_sessions;
pub(crate) use viewers::ViewerId;

use crate::app::sandboxes::{self, guest_error};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::event::ServerEvent;
use handler_types::guest::TtySize;
use handler_types::terminal::{
    CreateTerminal, ScreenFormat, TerminalNumber, TerminalState, TerminalView, UpdateTerminal,
};
use handler_types::{ProblemCode, SandboxId};
use hub::Command;
use link::Link;
use owner::Owner;
use record::{Folder, Record};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Most terminals of one sandbox, ended ones included.
const MOST: usize = 1000;
/// Longest name, characters.
const LONGEST_NAME: usize = 120;

/// Opens a terminal.
///
/// # Errors
/// A request that makes no sense, a sandbox that does not run, what the guest refuses, a full disk.
pub async fn create(
    app: &Arc<App>,
    text: &str,
    request: CreateTerminal,
) -> ApiResult<TerminalView> {
    let (sandbox, guest) = sandboxes::view_and_guest(app, text).await?;
    let id = sandbox.id;
    if request.tmux.is_some() {
        tmux::require(&guest).await?;
    }
    let name = request.name.clone().map(clean_name).transpose()?.flatten();
    let (spec, size) = request::spec(request)?;
    let known = registry::load(app, &id).await;
    if known.len() >= MOST {
        return Err(ApiError::new(
            ProblemCode::TooMany,
            format!("the sandbox has {MOST} terminals; close some (ended ones count too)"),
        ));
    }
    let (terminal, folder) = registry::make_folder(app, &id).await?;
    let mut record = Record {
        terminal,
        key: spec.key.clone(),
        process: 0,
        name,
        argv: request::shown(&spec),
        size,
        created_ms: handler_base::clock::now_ms(),
        ended: false,
        exit: None,
    };
    // Written before the process is there: after a crash it is found by its key, or the folder goes.
    let started = async {
        write(&folder, &record)?;
        let info = guest.start(spec).await.map_err(guest_error)?;
        record.process = info.process;
        write(&folder, &record)?;
        let (owner, hub, commands) = Owner::new(app.clone(), id.clone(), folder.clone(), record);
        let link = Link::to(app, &id, guest.clone(), &info, 0, owner.keys()).await;
        let owner = owner.linked(link.map_err(guest_error)?);
        registry::adopt(app, &id, terminal, &hub, owner.run(commands));
        ApiResult::Ok(hub)
    };
    let hub = started.await.inspect_err(|_| folder.remove())?;
    let view = hub.view();
    app.events.publish(ServerEvent::Terminal {
        sandbox: id.to_string(),
        terminal: view.clone(),
    });
    Ok(view)
}

fn write(folder: &Folder, record: &Record) -> ApiResult<()> {
    folder
        .write_record(record)
        .map_err(|error| registry::disk_error(&error))
}

/// A name as kept; an empty one is none.
fn clean_name(name: String) -> ApiResult<Option<String>> {
    if name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            format!("name: at most {LONGEST_NAME} characters, no control characters"),
        ));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// A sandbox's terminals by number.
///
/// # Errors
/// An unknown sandbox.
pub async fn list(app: &Arc<App>, text: &str) -> ApiResult<Vec<TerminalView>> {
    let id = sandboxes::find(app, text).await?.id;
    let known = registry::load(app, &id).await;
    Ok(known.values().map(Hub::view).collect())
}

/// One terminal.
///
/// # Errors
/// An unknown sandbox or number.
pub async fn find(app: &Arc<App>, text: &str, terminal: TerminalNumber) -> ApiResult<Hub> {
    Ok(find_in(app, text, terminal).await?.1)
}

async fn find_in(
    app: &Arc<App>,
    text: &str,
    terminal: TerminalNumber,
) -> ApiResult<(SandboxId, Hub)> {
    let id = sandboxes::find(app, text).await?.id;
    let known = registry::load(app, &id).await;
    let hub = known.get(&terminal).cloned().ok_or_else(|| {
        ApiError::new(
            ProblemCode::NotFound,
            format!("there is no terminal {terminal} in this sandbox"),
        )
    })?;
    Ok((id, hub))
}

/// Renames a terminal.
///
/// # Errors
/// As [`find`]; a name too long.
pub async fn update(
    app: &Arc<App>,
    text: &str,
    terminal: TerminalNumber,
    update: UpdateTerminal,
) -> ApiResult<TerminalView> {
    let hub = find(app, text, terminal).await?;
    let name = clean_name(update.name)?;
    hub.send(Command::Rename(name)).await.ok_or_else(closed)?;
    // What is asked next is answered after the change.
    hub.look().await.ok_or_else(closed)?;
    Ok(hub.view())
}

/// Closes a terminal: its program and all it started end, and nothing is kept.
///
/// # Errors
/// As [`find`].
pub async fn close(app: &Arc<App>, text: &str, terminal: TerminalNumber) -> ApiResult<()> {
    let (id, hub) = find_in(app, text, terminal).await?;
    let (answer, done) = oneshot::channel();
    if hub.send(Command::Close(answer)).await.is_some() {
        done.await.ok();
    }
    registry::drop_one(app, &id, terminal);
    app.events.publish(ServerEvent::TerminalRemoved {
        sandbox: id.to_string(),
        terminal,
    });
    Ok(())
}

/// What is on a terminal, with at most `scrollback` lines that have left it.
///
/// # Errors
/// As [`find`].
pub(crate) async fn screen(
    app: &Arc<App>,
    text: &str,
    terminal: TerminalNumber,
    format: ScreenFormat,
    scrollback: usize,
) -> ApiResult<ScreenAnswer> {
    let hub = find(app, text, terminal).await?;
    let (answer, screen) = oneshot::channel();
    let command = Command::Screen {
        format,
        scrollback,
        answer,
    };
    hub.send(command).await.ok_or_else(closed)?;
    screen.await.map_err(|_| closed())
}

/// Types on a terminal.
///
/// # Errors
/// As [`find`]; 409 when its program has ended.
pub async fn type_in(
    app: &Arc<App>,
    text: &str,
    terminal: TerminalNumber,
    keys: bytes::Bytes,
) -> ApiResult<()> {
    let hub = awake(app, text, terminal).await?;
    if hub.type_in(keys).await {
        Ok(())
    } else {
        Err(ApiError::new(
            ProblemCode::Conflict,
            "nothing runs on this terminal; make a new one",
        ))
    }
}

/// Sets a terminal's size, whoever owns it.
///
/// # Errors
/// As [`find`]; a size out of range.
pub async fn resize(
    app: &Arc<App>,
    text: &str,
    terminal: TerminalNumber,
    size: TtySize,
) -> ApiResult<()> {
    request::check_size(size)?;
    let hub = awake(app, text, terminal).await?;
    hub.resize(None, size, false).await;
    Ok(())
}

/// A terminal to be used now: a sandbox at rest is woken for one that runs.
///
/// # Errors
/// As [`find`]; what waking the sandbox fails of.
pub async fn awake(app: &Arc<App>, text: &str, terminal: TerminalNumber) -> ApiResult<Hub> {
    let hub = find(app, text, terminal).await?;
    if hub.view().state == TerminalState::Running {
        sandboxes::guest(app, text).await?;
    }
    Ok(hub)
}

fn closed() -> ApiError {
    ApiError::new(ProblemCode::NotFound, "the terminal was closed just now")
}
