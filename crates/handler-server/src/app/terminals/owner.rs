//! The owner of a terminal: the one task that reads its process, draws its screen, and serves its viewers.
//!
//! Invariant: what was read was drawn and offered to every viewer; what was acknowledged is in a written snapshot.

use super::hub::{Attached, Command, Hub, ScreenAnswer};
use super::link::{Found, Keys, Link, Way, find};
use super::record::{Folder, Position, Record};
use super::tell::{screen_view, tell};
use super::viewers::{ViewerId, Viewers};
use crate::state::App;
use bytes::Bytes;
use handler_base::clock::now_ms;
use handler_engine::guest::StreamItem;
use handler_terminal::{Limits, OscState, Screen, Size};
use handler_types::SandboxId;
use handler_types::event::ServerEvent;
use handler_types::guest::{Exit, TtySize};
use handler_types::terminal::{
    ScreenFormat, TerminalEvent, TerminalState, TerminalView, ViewerMode,
};
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Output taken since the last snapshot after which another is written, bytes. Half of what the guest keeps.
const SAVE_BYTES: u64 = 512 * 1024;
/// How old output gets without a snapshot of it.
const SAVE_AFTER: Duration = Duration::from_secs(2);
/// How often a changed title is told.
const TELL_AFTER: Duration = Duration::from_millis(250);
/// How long a program is given to end when its terminal hangs up, and then when it is killed.
const HANG_UP: Duration = Duration::from_millis(1500);
/// Requests that wait for an owner.
const COMMANDS: usize = 64;

type Looking = Pin<Box<dyn Future<Output = Found> + Send>>;

pub(super) struct Owner {
    app: Arc<App>,
    sandbox: SandboxId,
    folder: Folder,
    record: Record,
    screen: Screen,
    position: Position,
    told: OscState,
    saved: u64,
    save_at: Option<Instant>,
    tell_at: Option<Instant>,
    viewers: Viewers,
    view: Arc<Mutex<TerminalView>>,
    keys: Keys,
    link: Option<Box<Link>>,
    looking: Option<Looking>,
    exit: Option<Exit>,
}

impl Owner {
    /// Makes the owner of a terminal as its folder describes it, and the door to it.
    pub(super) fn new(
        app: Arc<App>,
        sandbox: SandboxId,
        folder: Folder,
        record: Record,
    ) -> (Self, Hub, mpsc::Receiver<Command>) {
        let size = Size {
            cols: record.size.cols,
            rows: record.size.rows,
        };
        let (screen, position) = folder.read_screen().unwrap_or_else(|| {
            let position = Position {
                offset: 0,
                changed_ms: record.created_ms,
            };
            (Screen::new(size, Limits::default()), position)
        });
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let keys = Keys::default();
        let view = Arc::new(Mutex::new(first_view(&record)));
        let hub = Hub {
            commands,
            view: view.clone(),
            keys: keys.clone(),
        };
        let owner = Self {
            told: screen.osc().clone(),
            saved: position.offset,
            exit: record.exit,
            app,
            sandbox,
            folder,
            record,
            screen,
            position,
            save_at: None,
            tell_at: None,
            viewers: Viewers::default(),
            view,
            keys,
            link: None,
            looking: None,
        };
        owner.show();
        (owner, hub, receiver)
    }

    /// Gives it the process that was just started.
    pub(super) fn linked(mut self, link: Link) -> Self {
        self.link = Some(Box::new(link));
        self
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Runs until the terminal is closed or the daemon stops.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        if self.link.is_none() && !self.record.ended {
            self.look_for_process();
        }
        if self.record.ended {
            self.keys.set(Way::Closed);
        }
        let shutdown = self.app.shutdown.clone();
        self.touched();
        loop {
            let hold = self.viewers.hold_until().filter(|_| self.link.is_some());
            let moved = self.viewers.moved.clone();
            let (save_at, tell_at) = (self.save_at, self.tell_at);
            tokio::select! {
                () = shutdown.cancelled() => return self.leave().await,
                command = commands.recv() => {
                    let Some(command) = command else { return self.leave().await };
                    if self.command(command).await.is_break() {
                        return;
                    }
                }
                item = next(self.link.as_mut()), if hold.is_none() => self.item(item).await,
                () = moved.notified(), if hold.is_some() => {}
                () = at(hold.map(Into::into)), if hold.is_some() => self.viewers.give_up(),
                found = looked(self.looking.as_mut()) => self.found(found).await,
                () = at(save_at) => self.save().await,
                () = at(tell_at) => {
                    self.tell_at = None;
                    self.publish();
                }
            }
        }
    }

    /// What its program does is read anew, a moment later.
    fn touched(&self) {
        let touched = self.app.observe.activities.touched();
        touched.note(&self.sandbox, self.record.terminal);
    }

    fn look_for_process(&mut self) {
        self.keys.set(Way::Sought);
        self.looking = Some(Box::pin(find(
            self.app.clone(),
            self.sandbox.clone(),
            self.record.clone(),
            self.position.offset,
            self.keys.clone(),
        )));
    }

    async fn found(&mut self, found: Found) {
        self.looking = None;
        match found {
            Found::Link(link) => {
                self.record.process = link.process;
                link.resize(self.record.size);
                self.link = Some(link);
                self.show();
            }
            Found::Gone => self.ended().await,
        }
    }

    async fn item(&mut self, item: StreamItem) {
        match item {
            StreamItem::Chunk { offset, bytes, .. } => self.output(offset, &bytes).await,
            StreamItem::Exited(exit) => self.exit = Some(exit),
            StreamItem::End { .. } => self.ended().await,
            StreamItem::Lost(reason) => {
                tracing::debug!(%reason, sandbox = %self.sandbox, "a terminal's stream broke");
                self.unlink();
                self.look_for_process();
            }
        }
    }

    async fn output(&mut self, offset: u64, bytes: &Bytes) {
        self.screen.feed(bytes);
        self.viewers.output(bytes);
        let end = offset + bytes.len() as u64;
        let answers = self.screen.take_replies();
        let is_new = self.link.as_ref().is_some_and(|l| end > l.replayed_below);
        if is_new
            && !answers.is_empty()
            && !self.viewers.any_writes()
            && let Some(keys) = self.keys.sender()
        {
            // A program that asks without reading the answers gets no more of them.
            keys.try_send(answers.into()).ok();
        }
        self.position = Position {
            offset: end,
            changed_ms: now_ms(),
        };
        self.tell_changes();
        self.touched();
        if end - self.saved >= SAVE_BYTES {
            self.save().await;
        } else if self.save_at.is_none() {
            self.save_at = Some(Instant::now() + SAVE_AFTER);
        }
    }

    fn tell_changes(&mut self) {
        let now = self.screen.osc();
        if *now != self.told {
            let is_shown = now.title != self.told.title || now.cwd != self.told.cwd;
            tell(&self.told, now, |event| self.viewers.event(&event));
            self.told = now.clone();
            if is_shown && self.tell_at.is_none() {
                self.tell_at = Some(Instant::now() + TELL_AFTER);
            }
        }
        self.show();
    }

    async fn command(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Attach {
                mode,
                size,
                scrollback,
                answer,
            } => self.attach(mode, size, scrollback, answer),
            Command::Leave(viewer) => {
                if let Some(size) = self.viewers.remove(viewer) {
                    self.resize(size);
                }
                self.show();
            }
            Command::Resize {
                viewer,
                size,
                takes,
            } => {
                if viewer.is_none_or(|id| self.viewers.resized(id, size, takes)) {
                    self.resize(size);
                }
            }
            Command::Redraw(viewer) => self.redraw(viewer),
            Command::Look(answer) => {
                let exit = self.exit.map(|exit| exit.code);
                answer
                    .send(self.screen.look(self.position.changed_ms, exit))
                    .ok();
            }
            Command::Screen {
                format,
                scrollback,
                answer,
            } => {
                answer.send(self.picture(format, scrollback)).ok();
            }
            Command::Rename(name) => {
                self.record.name = name;
                self.write_record();
                self.show();
                self.publish();
            }
            Command::Close(answer) => {
                self.close().await;
                answer.send(()).ok();
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn attach(
        &mut self,
        mode: ViewerMode,
        size: Option<TtySize>,
        scrollback: usize,
        answer: oneshot::Sender<Attached>,
    ) {
        let (id, queue, sets) = self.viewers.add(mode, size);
        if let Some(size) = sets {
            self.resize_quietly(size, Some(id));
        }
        self.show();
        let attached = TerminalEvent::Attached {
            terminal: self.view_now(),
            owner: self.viewers.owns(id),
        };
        queue.event(attached);
        queue.repaint(self.screen.redraw(scrollback).into());
        if self.record.ended {
            queue.finish(TerminalEvent::Exited { exit: self.exit });
        }
        if answer.send(Attached { id, queue }).is_err() {
            self.viewers.remove(id);
            self.show();
        }
    }

    fn redraw(&mut self, viewer: ViewerId) {
        let redraw: Bytes = self.screen.redraw(0).into();
        if let Some(queue) = self.viewers.queue(viewer) {
            queue.redraw(redraw, [self.viewers.size_event(viewer, self.record.size)]);
        }
    }

    fn resize(&mut self, size: TtySize) {
        self.resize_quietly(size, None);
    }

    /// Sets the size and tells the others; the newcomer gets it with its first redraw.
    fn resize_quietly(&mut self, size: TtySize, newcomer: Option<ViewerId>) {
        let size = Size {
            cols: size.cols,
            rows: size.rows,
        }
        .clamped();
        let is_new = size != self.screen.size();
        let size = TtySize {
            cols: size.cols,
            rows: size.rows,
        };
        if is_new {
            self.screen.resize(Size {
                cols: size.cols,
                rows: size.rows,
            });
            self.record.size = size;
            self.write_record();
        }
        if let Some(link) = &self.link {
            link.resize(size);
        }
        // The one who just came has nothing on its screen that could be wrong.
        let others = self.viewers.count() > u32::from(newcomer.is_some());
        if others {
            let redraw = is_new.then(|| Bytes::from(self.screen.redraw(0)));
            self.viewers.sized(size, redraw.as_ref(), newcomer);
        }
        self.show();
    }

    fn picture(&self, format: ScreenFormat, lines: usize) -> ScreenAnswer {
        match format {
            ScreenFormat::Text => ScreenAnswer::Text(self.screen.text(lines)),
            ScreenFormat::Ansi => ScreenAnswer::Text(self.screen.ansi(lines)),
            ScreenFormat::Json => {
                let view = screen_view(&self.screen, lines, self.position.changed_ms);
                ScreenAnswer::View(Box::new(view))
            }
        }
    }

    fn unlink(&mut self) {
        self.keys.set(Way::Closed);
        self.link = None;
    }

    /// The program has ended and all its output was drawn.
    async fn ended(&mut self) {
        self.record.ended = true;
        self.record.exit = self.exit;
        self.touched();
        self.save().await;
        self.write_record();
        if let Some(link) = self.link.take() {
            let (guest, process) = (link.guest.clone(), link.process);
            handler_base::tasks::spawn_named("forget", async move {
                guest.forget(process).await.ok();
            });
        }
        self.unlink();
        let redraw = self.screen.redraw(0).into();
        let last = TerminalEvent::Exited { exit: self.exit };
        self.viewers.finish(&last, &redraw);
        self.tell_at = None;
        self.show();
        self.publish();
    }

    /// Ends the program and forgets the terminal.
    async fn close(&mut self) {
        let program = self.link.as_ref().map(|l| (l.guest.clone(), l.process));
        if let Some((guest, process)) = program {
            // What it is told at first is that its terminal is gone, as by any other terminal.
            guest.signal(process, 1, true).await.ok();
            let is_over = self.ends_within(HANG_UP).await;
            // Also when the program has ended: what it left in the background may not have listened.
            guest.signal(process, 9, true).await.ok();
            if !is_over {
                self.ends_within(HANG_UP).await;
            }
            guest.forget(process).await.ok();
        }
        self.unlink();
        let redraw = self.screen.redraw(0).into();
        let last = TerminalEvent::Closed {
            reason: "the terminal was closed".to_owned(),
            retry: false,
        };
        self.viewers.finish(&last, &redraw);
        self.folder.remove();
    }

    async fn ends_within(&mut self, limit: Duration) -> bool {
        let ends = async {
            while let Some(link) = self.link.as_mut() {
                match link.stream.next().await {
                    StreamItem::Chunk { offset, bytes, .. } => {
                        link.stream.ack(offset + bytes.len() as u64);
                    }
                    StreamItem::Exited(_) => {}
                    StreamItem::End { .. } | StreamItem::Lost(_) => return,
                }
            }
        };
        tokio::time::timeout(limit, ends).await.is_ok()
    }

    /// The daemon stops: everything is kept for the next one.
    async fn leave(mut self) {
        self.save().await;
        self.write_record();
        let redraw = self.screen.redraw(0).into();
        let last = TerminalEvent::Closed {
            reason: "the daemon is stopping; attach again".to_owned(),
            retry: true,
        };
        self.viewers.finish(&last, &redraw);
    }

    /// Writes a snapshot and lets the guest forget what is in it.
    async fn save(&mut self) {
        self.save_at = None;
        if self.position.offset > self.saved {
            let note = serde_json::to_value(self.position).unwrap_or_default();
            let snapshot = self.screen.snapshot(&note);
            let folder = self.folder.clone();
            let written = tokio::task::spawn_blocking(move || folder.write_screen(&snapshot)).await;
            if let Ok(Err(error)) = written {
                // Better a screen that is lost with a killed daemon than a program that stands still.
                tracing::warn!(%error, sandbox = %self.sandbox, "a terminal's screen cannot be kept");
            }
            self.saved = self.position.offset;
        }
        if let Some(link) = &mut self.link {
            link.stream.ack(self.saved);
        }
    }

    fn write_record(&self) {
        if let Err(error) = self.folder.write_record(&self.record) {
            tracing::warn!(%error, sandbox = %self.sandbox, "a terminal's record cannot be kept");
        }
    }

    /// Brings the view that others read up to date.
    fn show(&self) {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        view.process = self.record.process;
        view.size = self.record.size;
        view.viewers = self.viewers.count();
        view.changed_ms = self.position.changed_ms;
        if view.name != self.record.name {
            view.name.clone_from(&self.record.name);
        }
        let osc = self.screen.osc();
        if view.title != osc.title {
            view.title.clone_from(&osc.title);
        }
        if view.cwd != osc.cwd {
            view.cwd.clone_from(&osc.cwd);
        }
        if self.record.ended {
            view.state = TerminalState::Ended;
            view.exit = self.exit;
        }
    }

    fn view_now(&self) -> TerminalView {
        self.view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn publish(&self) {
        self.app.events.publish(ServerEvent::Terminal {
            sandbox: self.sandbox.to_string(),
            terminal: self.view_now(),
        });
    }
}

fn first_view(record: &Record) -> TerminalView {
    TerminalView {
        terminal: record.terminal,
        process: record.process,
        name: record.name.clone(),
        title: None,
        cwd: None,
        argv: record.argv.clone(),
        size: record.size,
        state: TerminalState::Running,
        exit: None,
        viewers: 0,
        created_ms: record.created_ms,
        changed_ms: record.created_ms,
    }
}

async fn next(link: Option<&mut Box<Link>>) -> StreamItem {
    match link {
        Some(link) => link.stream.next().await,
        None => std::future::pending().await,
    }
}

async fn looked(looking: Option<&mut Looking>) -> Found {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
