//! `handler account login`: an agent program's own login, on a terminal of its own that is relayed to this one.
//!
//! It keeps its state in a new folder instead of the person's home. The folder goes whatever happens: nothing but the
//! store keeps what the login left.

use super::super::Outcome;
use super::super::raw::RawMode;
use super::{find, harness, told};
use crate::context::Context;
use crate::exit::Failure;
use handler_client::Client;
use handler_types::account::{AccountLoginRequest, LoginHow, LoginKind};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{tcgetwinsize, tcsetwinsize};
use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Where a login keeps its state, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, Failure> {
        let name = format!("handler-login-{}", handler_base::random::hex(16));
        let path = std::env::temp_dir().join(name);
        handler_base::fs::create_private_dir(&path)
            .map_err(|e| Failure::local(format!("cannot make {}", path.display()), e))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Runs it, and keeps the file it leaves.
///
/// # Errors
/// A token login, which is the person's to run; a program that is missing or fails; a login that is refused.
pub(super) async fn run(
    name: &str,
    keep_open: bool,
    client: &Client,
    context: &Context,
) -> Outcome {
    let account = find(client, name).await?;
    let how = harness(client, &account.harness).await?.login;
    let how = how.ok_or_else(|| {
        Failure::Failed(format!(
            "{} has no login: it runs on providers",
            account.harness
        ))
    })?;
    if how.kind == LoginKind::Token {
        let command = how.token_command.as_deref().unwrap_or_default();
        return Err(Failure::Failed(format!(
            "this login is yours to run: run `{command}`, then give the token it prints with `handler account token {name}`"
        )));
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "a login needs a terminal; give a file that was left already with `handler account import {name} FILE`"
        )));
    }
    if let Some(help) = &how.help {
        context.out.note(help);
    }
    let folder = Folder::make()?;
    let code = on_terminal(&how, &folder, keep_open).await?;
    let file = how.login_file.as_deref().unwrap_or_default();
    let left = folder.0.join(file);
    let text = match super::read_file(&left) {
        Ok(text) => text,
        Err(_) => {
            let command = how.command.join(" ");
            return Err(Failure::Failed(format!(
                "`{command}` ended with {code} and left no {file}: nothing was changed; try again"
            )));
        }
    };
    let request = AccountLoginRequest {
        file: Some(text),
        ..AccountLoginRequest::default()
    };
    told(&client.log_in(name, &request).await?, context);
    Ok(0)
}

/// Runs the login's command; its exit code.
async fn on_terminal(how: &LoginHow, folder: &Folder, keep_open: bool) -> Result<i32, Failure> {
    let failed = |e: rustix::io::Errno| Failure::local("cannot open a terminal", e.into());
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).map_err(failed)?;
    grantpt(&master).map_err(failed)?;
    unlockpt(&master).map_err(failed)?;
    let inner = ptsname(&master, Vec::new()).map_err(failed)?;
    let inner = inner.to_string_lossy().into_owned();
    let master = File::from(master);
    take_size(&master);
    let child = start(how, folder, &inner)?;
    let raw = RawMode::enter();
    let (code, mut keys) = relay(child, master).await?;
    if keep_open {
        write!(std::io::stderr(), "\r\nended with {code}; press Enter\r\n").ok();
        while let Some(typed) = keys.recv().await {
            if typed.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
                break;
            }
        }
    }
    drop(raw);
    Ok(code)
}

/// The size of our terminal.
fn take_size(master: &File) {
    if let Ok(size) = tcgetwinsize(std::io::stdin()) {
        tcsetwinsize(master, size).ok();
    }
}

fn start(how: &LoginHow, folder: &Folder, inner: &str) -> Result<Child, Failure> {
    let dir = folder.0.to_string_lossy().into_owned();
    let fill = |text: &String| text.replace("{dir}", &dir);
    let program = how.command.first().cloned().unwrap_or_default();
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .open(inner)
            .map(Stdio::from)
            .map_err(|e| Failure::local("cannot open a terminal", e))
    };
    if !is_on_path(&program) {
        return Err(Failure::Failed(format!(
            "`{program}` is not on the PATH: install {}, then log in again",
            match program.as_str() {
                "npx" => "Node.js with npm",
                "uvx" => "uv",
                _ => "it",
            }
        )));
    }
    // A session of its own with this as its terminal: what is typed and resized is told to it, and nothing else.
    Command::new("setsid")
        .args(["--ctty", "--wait"])
        .args(how.command.iter().map(fill))
        .envs(how.env.iter().map(|(name, value)| (name, fill(value))))
        .current_dir(&folder.0)
        .stdin(open()?)
        .stdout(open()?)
        .stderr(open()?)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| Failure::local("cannot run `setsid`", e))
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program.contains('/')
        || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Carries bytes both ways until the program ends; gives its code and what is typed from then on.
async fn relay(mut child: Child, master: File) -> Result<(i32, mpsc::Receiver<Vec<u8>>), Failure> {
    let failed = |e| Failure::local("cannot relay the terminal", e);
    let mut shown = master.try_clone().map_err(failed)?;
    let screen = std::thread::spawn(move || {
        let (mut block, mut out) = ([0; 4096], std::io::stdout());
        // It ends with an error when the program has let go of the terminal.
        while let Ok(count @ 1..) = shown.read(&mut block) {
            if out
                .write_all(&block[..count])
                .and_then(|()| out.flush())
                .is_err()
            {
                return;
            }
        }
    });
    let (typed, mut keys) = mpsc::channel(16);
    // It waits for a key when all is over; the end of this program is its own.
    std::thread::spawn(move || {
        let mut block = [0; 1024];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut block) {
            if typed.blocking_send(block[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let hear = |kind| signal(kind).map_err(failed);
    let mut resized = hear(SignalKind::window_change())?;
    let mut ended = hear(SignalKind::terminate())?;
    let mut hung_up = hear(SignalKind::hangup())?;
    let mut open = true;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(failed)?,
            typed = keys.recv(), if open => match typed {
                Some(typed) => (&master).write_all(&typed).map_err(failed)?,
                None => open = false,
            },
            _ = resized.recv() => take_size(&master),
            _ = ended.recv() => return Err(Failure::Failed("stopped".into())),
            _ = hung_up.recv() => return Err(Failure::Failed("the terminal went away".into())),
        }
    };
    drop(master);
    screen.join().ok();
    Ok((status.code().unwrap_or(1), keys))
}
