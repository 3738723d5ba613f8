//! A terminal of a sandbox on ours: keys there, output here, back again when the daemon was away.
//!
//! Invariant: however this ends, our terminal is put back into its usual modes.

use super::detach::DetachKeys;
use super::exec::{exit_code, read_piece, stdin_reader};
use super::raw::{RawMode, size};
use crate::context::Context;
use crate::exit::Failure;
use handler_client::{Client, Socket, SocketMessage};
use handler_terminal::{Limits, Screen, Size};
use handler_types::guest::TtySize;
use handler_types::terminal::{TerminalCommand, TerminalEvent};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Drawn bytes after which they are acknowledged.
const ACK_EVERY: u64 = 128 * 1024;
/// How long a lost connection is tried to be made again.
const COME_BACK: Duration = Duration::from_secs(60);
/// Most keys kept while the daemon is away.
const MAX_HELD: usize = 4096;

/// How a terminal is watched.
#[derive(Debug)]
pub(super) struct How {
    /// Its sandbox, as typed.
    pub(super) sandbox: String,
    /// Its number.
    pub(super) terminal: u32,
    /// Only look.
    pub(super) read_only: bool,
    /// Make its size ours.
    pub(super) takes: bool,
    /// Lines that have left the screen, shown before it.
    pub(super) scrollback: u32,
    /// Keys that let go.
    pub(super) detach: DetachKeys,
}

/// How the watching ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The program ended, with this code for us.
    Ended(u8),
    /// We let go; it goes on.
    Detached,
}

struct Watcher<'a> {
    client: &'a Client,
    context: &'a Context,
    how: How,
    socket: Socket,
    /// What our terminal shows, if it is one.
    shown: Screen,
    is_terminal: bool,
    /// A redraw under way, collected.
    redraw: Option<Vec<u8>>,
    is_first: bool,
    drawn: u64,
    acked: u64,
    input: Option<mpsc::Receiver<Vec<u8>>>,
}

/// Watches it to its end, or until we let go.
///
/// # Errors
/// [`Failure`]; our own terminal is restored whatever happens.
pub(super) async fn watch(client: &Client, context: &Context, how: How) -> Result<Left, Failure> {
    let mut resized = signal(SignalKind::window_change())
        .map_err(|e| Failure::local("cannot follow the terminal's size", e))?;
    let socket = connect(client, &how).await?;
    let own = size().unwrap_or(TtySize { cols: 80, rows: 24 });
    let raw = RawMode::enter();
    let mut watcher = Watcher {
        client,
        context,
        socket,
        shown: Screen::new(screen_size(own), Limits { lines: 0, bytes: 0 }),
        is_terminal: std::io::stdout().is_terminal(),
        redraw: None,
        is_first: true,
        drawn: 0,
        acked: 0,
        input: Some(stdin_reader()),
        how,
    };
    let left = loop {
        tokio::select! {
            message = watcher.socket.next() => match watcher.take(message).await {
                Ok(None) => {}
                Ok(Some(left)) => break Ok(left),
                Err(failure) => break Err(failure),
            },
            piece = read_piece(&mut watcher.input) => {
                if watcher.typed(piece).await {
                    break Ok(Left::Detached);
                }
            }
            _ = resized.recv() => watcher.resized().await,
        }
    };
    if watcher.is_terminal {
        context.out.bytes(&watcher.shown.undo());
        if !matches!(left, Ok(Left::Ended(_))) {
            context.out.bytes(b"\r\n");
        }
    }
    drop(raw);
    left
}

fn screen_size(size: TtySize) -> Size {
    Size {
        cols: size.cols,
        rows: size.rows,
    }
}

async fn connect(client: &Client, how: &How) -> Result<Socket, Failure> {
    let sandbox = handler_client::transport::encode(&how.sandbox);
    let mode = if how.read_only { "read" } else { "write" };
    let mut path = format!(
        "/v1/sandboxes/{sandbox}/terminals/{}?mode={mode}&ack=client&scrollback={}",
        how.terminal, how.scrollback
    );
    if let Some(TtySize { cols, rows }) = size() {
        path += &format!("&cols={cols}&rows={rows}");
    }
    Ok(client.socket(&path, "terminal.v1").await?)
}

impl Watcher<'_> {
    async fn take(&mut self, message: SocketMessage) -> Result<Option<Left>, Failure> {
        match message {
            SocketMessage::Binary(bytes) => {
                self.drawn += bytes.len() as u64;
                match &mut self.redraw {
                    Some(redraw) => redraw.extend_from_slice(&bytes),
                    None => self.print(&bytes),
                }
                if self.drawn - self.acked >= ACK_EVERY {
                    self.acked = self.drawn;
                    let bytes = self.drawn;
                    self.command(&TerminalCommand::Ack { bytes }).await;
                }
                Ok(None)
            }
            SocketMessage::Text(text) => match serde_json::from_str(&text) {
                Ok(event) => self.event(event).await,
                // A newer daemon may say more.
                Err(_) => Ok(None),
            },
            SocketMessage::Closed { reason, .. } => self.come_back(&reason).await,
        }
    }

    async fn event(&mut self, event: TerminalEvent) -> Result<Option<Left>, Failure> {
        match event {
            TerminalEvent::Attached { owner, .. } => {
                if !owner
                    && self.how.takes
                    && !self.how.read_only
                    && let Some(TtySize { cols, rows }) = size()
                {
                    self.command(&TerminalCommand::Take { cols, rows }).await;
                }
            }
            TerminalEvent::Size { cols, rows, .. } => {
                self.shown.resize(Size { cols, rows });
            }
            TerminalEvent::RedrawBegin { .. } => self.redraw = Some(Vec::new()),
            TerminalEvent::RedrawEnd => self.redrawn(),
            TerminalEvent::Exited { exit } => {
                return Ok(Some(Left::Ended(exit.map_or(1, |e| exit_code(e.code)))));
            }
            TerminalEvent::Closed { reason, retry } if retry => {
                return self.come_back(&reason).await;
            }
            TerminalEvent::Closed { reason, .. } => return Err(Failure::Failed(reason)),
            TerminalEvent::Title { .. }
            | TerminalEvent::Cwd { .. }
            | TerminalEvent::Shell { .. }
            | TerminalEvent::Told { .. }
            | TerminalEvent::Bell => {}
        }
        Ok(None)
    }

    fn print(&mut self, bytes: &[u8]) {
        self.shown.feed(bytes);
        self.context.out.bytes(bytes);
    }

    /// A whole redraw is here.
    fn redrawn(&mut self) {
        let redraw = self.redraw.take().unwrap_or_default();
        let is_first = std::mem::take(&mut self.is_first);
        let mut fresh = Screen::new(self.shown.size(), Limits::default());
        fresh.feed(&redraw);
        if !self.is_terminal {
            // A pipe gets what there is as text, once.
            let text = fresh.text(usize::from(u16::MAX));
            if is_first && !text.trim().is_empty() {
                self.context.out.text(text.trim_end_matches('\n'));
            }
            return;
        }
        // A new shell goes on below what is on our terminal; anything else gets a whole screen for itself.
        if is_first && fresh.is_blank() {
            return;
        }
        if is_first {
            let rows = usize::from(self.shown.size().rows);
            self.context.out.bytes("\r\n".repeat(rows).as_bytes());
        }
        self.print(&redraw);
    }

    /// Passes keys on; whether the keys that let go were among them.
    async fn typed(&mut self, piece: Option<Vec<u8>>) -> bool {
        let (keys, detaches) = match piece {
            Some(typed) => self.how.detach.take(&typed),
            None => {
                self.input = None;
                // End of input on a terminal is a character.
                (vec![4], false)
            }
        };
        if !keys.is_empty() && !self.how.read_only {
            // A connection that breaks here shows in the next message.
            self.socket.send_binary(keys.into()).await.ok();
        }
        detaches
    }

    async fn resized(&mut self) {
        if let Some(TtySize { cols, rows }) = size() {
            self.command(&TerminalCommand::Resize { cols, rows }).await;
        }
    }

    async fn command(&mut self, command: &TerminalCommand) {
        if let Ok(text) = serde_json::to_string(command) {
            self.socket.send_text(text).await.ok();
        }
    }

    /// Makes a lost connection again; keys typed meanwhile are sent then.
    async fn come_back(&mut self, reason: &str) -> Result<Option<Left>, Failure> {
        let deadline = Instant::now() + COME_BACK;
        let mut held = Vec::new();
        loop {
            match connect(self.client, &self.how).await {
                Ok(socket) => {
                    self.socket = socket;
                    (self.drawn, self.acked, self.redraw) = (0, 0, None);
                    if !held.is_empty() {
                        self.socket.send_binary(held.into()).await.ok();
                    }
                    return Ok(None);
                }
                // The daemon is back and says no: the sandbox or the terminal is gone.
                Err(Failure::Client(error)) if error.problem().is_some_and(|p| p.status == 404) => {
                    return Err(Failure::Client(error));
                }
                Err(_) if Instant::now() > deadline => {
                    return Err(Failure::Failed(format!("the terminal was lost: {reason}")));
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
                piece = read_piece(&mut self.input) => {
                    let Some(typed) = piece else {
                        self.input = None;
                        continue;
                    };
                    let (keys, detaches) = self.how.detach.take(&typed);
                    if detaches {
                        return Ok(Some(Left::Detached));
                    }
                    if !self.how.read_only && held.len() + keys.len() <= MAX_HELD {
                        held.extend(keys);
                    }
                }
            }
        }
    }
}
