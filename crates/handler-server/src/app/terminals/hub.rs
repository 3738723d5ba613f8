//! The door to a terminal's owner, for everyone else.

use super::link::Keys;
use super::queue::Queue;
use super::viewers::ViewerId;
use bytes::Bytes;
use handler_terminal::Look;
use handler_types::guest::TtySize;
use handler_types::terminal::{ScreenFormat, ScreenView, TerminalView, ViewerMode};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// What the owner is asked.
#[derive(Debug)]
pub(super) enum Command {
    Attach {
        mode: ViewerMode,
        size: Option<TtySize>,
        scrollback: usize,
        answer: oneshot::Sender<Attached>,
    },
    Leave(ViewerId),
    /// A viewer's size; without a viewer the terminal's.
    Resize {
        viewer: Option<ViewerId>,
        size: TtySize,
        takes: bool,
    },
    Redraw(ViewerId),
    Look(oneshot::Sender<Look>),
    Screen {
        format: ScreenFormat,
        scrollback: usize,
        answer: oneshot::Sender<ScreenAnswer>,
    },
    Rename(Option<String>),
    /// Kill the program, and end.
    Close(oneshot::Sender<()>),
}

/// A screen in the form asked for.
#[derive(Debug)]
pub(crate) enum ScreenAnswer {
    /// Text, with or without colours.
    Text(String),
    /// A document.
    View(Box<ScreenView>),
}

/// A viewer's place.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Its number.
    pub(crate) id: ViewerId,
    /// What comes to it.
    pub(crate) queue: Queue,
}

/// The door. Cheap to clone; the terminal does not end with it.
#[derive(Debug, Clone)]
pub struct Hub {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) view: Arc<Mutex<TerminalView>>,
    pub(super) keys: Keys,
}

impl Hub {
    /// The terminal as it is now.
    #[must_use]
    pub fn view(&self) -> TerminalView {
        self.view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What is on it; none when it was closed meanwhile.
    pub async fn look(&self) -> Option<Look> {
        let (answer, look) = oneshot::channel();
        self.send(Command::Look(answer)).await?;
        look.await.ok()
    }

    pub(super) async fn send(&self, command: Command) -> Option<()> {
        self.commands.send(command).await.ok()
    }

    /// A new viewer; none when the terminal was closed meanwhile.
    pub(crate) async fn attach(
        &self,
        mode: ViewerMode,
        size: Option<TtySize>,
        scrollback: usize,
    ) -> Option<Attached> {
        let (answer, attached) = oneshot::channel();
        let command = Command::Attach {
            mode,
            size,
            scrollback,
            answer,
        };
        self.send(command).await?;
        attached.await.ok()
    }

    /// A viewer has left.
    pub(crate) async fn leave(&self, viewer: ViewerId) {
        self.send(Command::Leave(viewer)).await;
    }

    /// A viewer wants the screen again.
    pub(crate) async fn redraw(&self, viewer: ViewerId) {
        self.send(Command::Redraw(viewer)).await;
    }

    /// A viewer's size, or without one the terminal's own.
    pub(crate) async fn resize(&self, viewer: Option<ViewerId>, size: TtySize, takes: bool) {
        let command = Command::Resize {
            viewer,
            size,
            takes,
        };
        self.send(command).await;
    }

    /// Types; waits while the program is looked for (a viewer may come back faster than that after a restart of the
    /// daemon) and while it does not read. Whether there is a program.
    pub(crate) async fn type_in(&self, keys: Bytes) -> bool {
        match self.keys.found().await {
            Some(sender) => sender.send(keys).await.is_ok(),
            None => false,
        }
    }
}
