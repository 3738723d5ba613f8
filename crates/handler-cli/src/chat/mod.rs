//! One viewer of a session on a terminal: an ACP client that renders what comes and answers what is asked.

mod ask;
mod message;
mod render;
mod wire;

use crate::commands::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use ask::Question;
use handler_client::{Client, SocketMessage};
use handler_types::session::SessionView;
use message::{Incoming, SessionFacts};
use render::Renderer;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;
use wire::Wire;

/// How long a lost connection is tried to be made again.
const COME_BACK: Duration = Duration::from_secs(30);

/// When to stop following.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// A turn has ended (the session's first one, or the one under way).
    TurnEnd,
    /// The turn of the prompt sent here has ended.
    OwnTurnEnd,
    /// The person leaves or the session stops.
    Left,
}

/// The viewer.
pub struct Chat {
    client: Client,
    wire: Wire,
    render: Renderer,
    questions: Vec<Question>,
    facts: SessionFacts,
    lines: Option<mpsc::Receiver<String>>,
    session: SessionView,
    interrupts: u32,
}

impl std::fmt::Debug for Chat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chat")
            .field("session", &self.session.id)
            .finish_non_exhaustive()
    }
}

impl Chat {
    /// Attaches: replays what came after `after`, then is live.
    ///
    /// # Errors
    /// When the session cannot be started; the daemon's reason is the message.
    pub async fn attach(
        client: &Client,
        session: &SessionView,
        after: u64,
        context: &Context,
    ) -> Result<Self, Failure> {
        let mut render = Renderer::new(context.out.clone());
        let mut early = Vec::new();
        let wire = Wire::open(client, session, after, |message| match message {
            Incoming::Update(update) => render.update(&update),
            other => early.push(other),
        })
        .await?;
        let lines = std::io::stdin().is_terminal().then(line_reader);
        let mut chat = Self {
            client: client.clone(),
            wire,
            render,
            questions: Vec::new(),
            facts: SessionFacts::default(),
            lines,
            session: session.clone(),
            interrupts: 0,
        };
        for message in early {
            chat.take(message).await?;
        }
        if !chat.facts.busy {
            // The history's last line is whole: what is typed next stands on its own.
            chat.render.end();
        }
        Ok(chat)
    }

    /// Sends a prompt.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn prompt(&mut self, text: &str) -> Result<(), Failure> {
        self.render.own_prompt(text);
        self.wire.prompt(text).await
    }

    /// Leaves without waiting.
    ///
    /// # Errors
    /// None today.
    pub async fn leave(mut self) -> Outcome {
        self.render.end();
        self.wire.close().await;
        Ok(0)
    }

    /// Follows until the moment given.
    ///
    /// # Errors
    /// [`Failure`], also when the agent ended or refused.
    pub async fn follow(&mut self, until: Until) -> Outcome {
        let mut waits_for_state = until == Until::TurnEnd;
        loop {
            if waits_for_state && until != Until::Left && self.facts.has_ended_turn() {
                self.render.turn_end(&self.facts);
                return Ok(self.facts.code());
            }
            tokio::select! {
                message = self.wire.next() => match message {
                    SocketMessage::Text(text) => {
                        let Some(message) = self.wire.read(&text) else { continue };
                        if let Incoming::Answer { id, result } = &message
                            && self.wire.take_prompt(id)
                        {
                            self.render.end();
                            let facts = SessionFacts::of_answer(result)?;
                            self.render.turn_end(&facts);
                            self.facts = facts.clone();
                            if until != Until::Left {
                                return Ok(facts.code());
                            }
                            continue;
                        }
                        self.take(message).await?;
                    }
                    SocketMessage::Binary(_) => {}
                    SocketMessage::Closed { code, reason } => {
                        self.render.end();
                        if !is_worth_coming_back(code) {
                            return Self::ended(code, &reason);
                        }
                        let was_waiting = self.wire.awaits_answer();
                        self.come_back(&reason).await?;
                        // The answer to a prompt of the lost connection comes to nobody: the state tells.
                        waits_for_state |= was_waiting;
                    }
                },
                line = next_line(&mut self.lines) => match line {
                    Some(line) => self.typed(line.trim()).await?,
                    None if until == Until::Left => return Ok(0),
                    None => self.lines = None,
                },
                interrupt = tokio::signal::ctrl_c() => {
                    interrupt.ok();
                    if let Some(code) = self.interrupted().await? {
                        return Ok(code);
                    }
                }
            }
        }
    }

    /// Attaches again from the last event seen, for as long as a daemon may need to start.
    async fn come_back(&mut self, reason: &str) -> Result<(), Failure> {
        self.render
            .note(&format!("connection lost ({reason}); trying to come back…"));
        let deadline = Instant::now() + COME_BACK;
        loop {
            let mut early = Vec::new();
            let after = self.wire.last_seq();
            let opened = Wire::open(&self.client, &self.session, after, |m| early.push(m)).await;
            match opened {
                Ok(wire) => {
                    self.wire = wire;
                    self.questions.clear();
                    for message in early {
                        self.take(message).await?;
                    }
                    return Ok(());
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
    }

    fn ended(code: u16, reason: &str) -> Outcome {
        match code {
            1000 | 4002 => Ok(0),
            4001 => Err(Failure::Failed(
                "another client attached in this one's place".into(),
            )),
            _ => Err(Failure::Failed(format!(
                "the session's connection ended: {reason}"
            ))),
        }
    }

    /// First interrupt: cancel the turn; second, or without a turn: leave (the session goes on).
    async fn interrupted(&mut self) -> Result<Option<u8>, Failure> {
        self.interrupts += 1;
        self.render.end();
        if self.facts.busy && self.interrupts == 1 {
            self.render
                .note("cancelling the turn; once more leaves (the session goes on)");
            self.wire.cancel().await?;
            return Ok(None);
        }
        self.render.note(&format!(
            "left; `handler attach {}` comes back",
            self.session.id
        ));
        Ok(Some(130))
    }

    async fn take(&mut self, message: Incoming) -> Result<(), Failure> {
        match message {
            Incoming::Update(update) => self.render.update(&update),
            Incoming::State(facts) => {
                if self.facts.busy && !facts.busy {
                    self.interrupts = 0;
                    self.render.end();
                    self.render.turn_end(&facts);
                }
                self.facts = facts;
            }
            Incoming::Permission(question) => {
                self.render.end();
                self.render
                    .question(&question, self.lines.is_some(), self.session.id.as_str());
                self.questions.push(question);
            }
            Incoming::Resolved { request } => {
                let before = self.questions.len();
                self.questions.retain(|q| q.id != request);
                if self.questions.len() != before {
                    self.render.note("answered elsewhere");
                }
            }
            Incoming::Request { id, method } => self.wire.refuse(&id, &method).await?,
            Incoming::Answer { .. } | Incoming::Other => {}
        }
        Ok(())
    }

    /// A line: the answer to the oldest question, else a prompt.
    async fn typed(&mut self, line: &str) -> Result<(), Failure> {
        let Some(question) = self.questions.first() else {
            if line.is_empty() {
                return Ok(());
            }
            if self.facts.busy {
                self.render
                    .note("the agent is working; Ctrl-C cancels its turn");
                return Ok(());
            }
            self.facts.busy = true;
            self.render.new_turn();
            return self.wire.prompt(line).await;
        };
        match question.choose(line) {
            Some(option) => {
                let id = question.id.clone();
                let option = option.to_owned();
                self.questions.remove(0);
                self.wire.answer(&id, &option).await
            }
            None => {
                self.render.note("type the number of an answer");
                Ok(())
            }
        }
    }
}

/// Whether the session goes on although the connection ended: broken, daemon going away, too slow.
fn is_worth_coming_back(code: u16) -> bool {
    matches!(code, 1001 | 1005 | 1006 | 4003)
}

fn line_reader() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(4);
    handler_base::tasks::spawn_named("typed lines", async move {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(line).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn next_line(lines: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}
