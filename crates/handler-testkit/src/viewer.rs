//! A viewer of a terminal: what comes over its socket, drawn on a screen.

use crate::inside::{LONG, Sandbox};
use anyhow::{Context as _, bail};
use handler_client::{Socket, SocketMessage};
use handler_terminal::{Limits, Screen, Size};
use handler_types::guest::Exit;
use handler_types::terminal::{TerminalCommand, TerminalEvent};

/// An attached viewer.
#[expect(missing_debug_implementations, reason = "a connection")]
pub struct Viewer {
    /// The connection.
    pub socket: Socket,
    /// What it shows.
    pub screen: Screen,
    /// Whether it has the size.
    pub owner: bool,
    /// Bytes left out so far.
    pub skipped: u64,
    /// Output bytes that came, redraws included.
    pub received: u64,
    /// Bells that rang.
    pub bells: usize,
    /// How the stream ended, if it did.
    pub ended: Option<Ended>,
}

/// How the stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The program ended.
    Exited(Option<Exit>),
    /// It broke, or the terminal is gone.
    Closed {
        /// Attach again.
        retry: bool,
    },
}

impl Viewer {
    /// Attaches; `query` is what follows the address.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn attach(sandbox: &Sandbox, terminal: u32, query: &str) -> anyhow::Result<Self> {
        let path = format!("/v1/sandboxes/{}/terminals/{terminal}{query}", sandbox.id);
        let mut socket = sandbox.client.socket(&path, "terminal.v1").await?;
        let first = tokio::time::timeout(LONG, socket.next()).await?;
        let SocketMessage::Text(first) = first else {
            bail!("first came {first:?}");
        };
        let TerminalEvent::Attached { terminal, owner } = serde_json::from_str(&first)? else {
            bail!("first came {first}");
        };
        let size = Size {
            cols: terminal.size.cols,
            rows: terminal.size.rows,
        };
        Ok(Self {
            socket,
            screen: Screen::new(size, Limits::default()),
            owner,
            skipped: 0,
            received: 0,
            bells: 0,
            ended: None,
        })
    }

    /// Takes what comes next.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn step(&mut self) -> anyhow::Result<()> {
        let message = tokio::time::timeout(LONG, self.socket.next()).await;
        match message.with_context(|| format!("nothing comes: {:#?}", self.screen.rows_text()))? {
            SocketMessage::Binary(bytes) => {
                self.received += bytes.len() as u64;
                self.screen.feed(&bytes);
            }
            SocketMessage::Text(text) => match serde_json::from_str(&text)? {
                TerminalEvent::Size { cols, rows, owner } => {
                    self.screen.resize(Size { cols, rows });
                    self.owner = owner;
                }
                TerminalEvent::RedrawBegin { skipped } => self.skipped += skipped,
                TerminalEvent::Bell => self.bells += 1,
                TerminalEvent::Exited { exit } => self.ended = Some(Ended::Exited(exit)),
                TerminalEvent::Closed { retry, .. } => self.ended = Some(Ended::Closed { retry }),
                _ => {}
            },
            SocketMessage::Closed { .. } if self.ended.is_some() => {}
            SocketMessage::Closed { .. } => self.ended = Some(Ended::Closed { retry: true }),
        }
        Ok(())
    }

    /// Takes what comes until the screen, or something else, is as wanted.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn until(&mut self, wanted: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let patience = tokio::time::Instant::now() + LONG;
        while !wanted(self) {
            if self.ended.is_some() || tokio::time::Instant::now() > patience {
                bail!(
                    "it did not come ({:?}): {:#?}",
                    self.ended,
                    self.screen.rows_text()
                );
            }
            self.step().await?;
        }
        Ok(())
    }

    /// Takes what comes until the screen shows a text.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn until_text(&mut self, wanted: &str) -> anyhow::Result<()> {
        let shows = |viewer: &Self| viewer.screen.rows_text().join("\n").contains(wanted);
        self.until(shows).await.with_context(|| wanted.to_owned())
    }

    /// Takes what comes to its end.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn rest(&mut self) -> anyhow::Result<Ended> {
        while self.ended.is_none() {
            self.step().await?;
        }
        self.ended.clone().context("it ended")
    }

    /// Takes what comes until it shows the same as another's screen, who is silent.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn until_like(&mut self, other: &Screen) -> anyhow::Result<()> {
        let wanted = look(other);
        self.until(|viewer| look(&viewer.screen) == wanted).await
    }

    /// Types.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn type_in(&mut self, keys: &str) -> anyhow::Result<()> {
        let keys = bytes::Bytes::copy_from_slice(keys.as_bytes());
        Ok(self.socket.send_binary(keys).await?)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes.
    pub async fn send(&mut self, command: &TerminalCommand) -> anyhow::Result<()> {
        Ok(self
            .socket
            .send_text(serde_json::to_string(command)?)
            .await?)
    }
}

/// All that is seen of a screen: text, colours, cursor, modes, title.
#[must_use]
pub fn look(screen: &Screen) -> String {
    use std::fmt::Write as _;
    let mut out = format!(
        "{:?} {:?} {} {:?} {} {} {} {} {:?}",
        screen.size(),
        screen.cursor(),
        screen.shows_cursor(),
        screen.cursor_shape(),
        screen.is_alternate(),
        screen.wants_bracketed_paste(),
        screen.wants_mouse(),
        screen.has_application_keys(),
        screen.osc().title,
    );
    for row in 0..screen.size().rows {
        for col in 0..screen.size().cols {
            let Some(cell) = screen.cell(row, col) else {
                continue;
            };
            let colours = (cell.fgcolor(), cell.bgcolor());
            let flags = (
                cell.bold(),
                cell.underline(),
                cell.inverse(),
                cell.is_wide(),
            );
            if cell.has_contents() || format!("{colours:?}") != "(Default, Default)" {
                write!(
                    out,
                    "\n{row},{col} {:?} {colours:?} {flags:?}",
                    cell.contents()
                )
                .ok();
            }
        }
    }
    out
}
