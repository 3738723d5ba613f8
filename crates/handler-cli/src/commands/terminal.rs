//! `handler sandbox shell`: a terminal of the sandbox on ours, resized with it.

use super::Outcome;
use super::exec::{read_piece, stdin_reader};
use super::follow::{Followed, Follower};
use crate::context::Context;
use crate::exit::Failure;
use handler_types::api::{CreateTerminal, StreamCommand};
use handler_types::guest::TtySize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::IsTerminal as _;
use tokio::signal::unix::{SignalKind, signal};

/// Opens a terminal and follows it to its end.
///
/// # Errors
/// [`Failure`]; our own terminal is restored whatever happens.
pub async fn shell(sandbox: &str, argv: Vec<String>, context: &Context) -> Outcome {
    let client = context.client()?;
    let request = CreateTerminal {
        argv,
        size: size(),
        ..Default::default()
    };
    let terminal = client.create_terminal(sandbox, &request).await?;
    let mut follower = Follower::attach(&client, context, sandbox, terminal.process, true).await?;
    let _raw = RawMode::enter();
    let mut resized = signal(SignalKind::window_change())
        .map_err(|e| Failure::local("cannot follow the terminal's size", e))?;
    let mut input = Some(stdin_reader());
    loop {
        tokio::select! {
            message = follower.receive() => {
                if let Followed::Ended(code) = follower.take(message).await? {
                    return Ok(code);
                }
            }
            piece = read_piece(&mut input) => match piece {
                Some(bytes) => follower.input(bytes).await?,
                None => {
                    // End of input on a terminal is a character.
                    input = None;
                    follower.input(vec![4]).await?;
                }
            },
            _ = resized.recv() => {
                if let Some(TtySize { cols, rows }) = size() {
                    follower.command(&StreamCommand::Resize { cols, rows }).await?;
                }
            }
        }
    }
}

fn size() -> Option<TtySize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(TtySize {
        cols: size.ws_col,
        rows: size.ws_row,
    })
}

/// Our terminal in raw mode until dropped.
struct RawMode(Option<Termios>);

impl RawMode {
    fn enter() -> Self {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(&stdin) else {
            return Self(None);
        };
        let mut raw = before.clone();
        raw.make_raw();
        // What was typed ahead is kept: it is meant for the shell inside.
        if tcsetattr(&stdin, OptionalActions::Drain, &raw).is_err() {
            return Self(None);
        }
        Self(Some(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            tcsetattr(std::io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}
