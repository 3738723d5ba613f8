//! The door to a session: how it is started or taken over, and the handle to it.

use crate::acp::{LineDecoder, MAX_AGENT_LINE};
use crate::attach::{ViewerReceiver, ViewerSender};
use crate::disk::{CrashPoint, Disk, DiskError, Snapshot};
use crate::io::AgentIo;
use crate::live::{
    Effect, Input, LiveState, OpenKind, Opening, PendingPermission, Phase, StartFailure,
};
use crate::owner::link::Link;
use crate::owner::{Command, Owner, Parts, SessionFacts, fold_log};
use crate::policy::capabilities::ClientInfo;
use handler_store::log::LogError;
use handler_store::{EventLog, Redactor};
use handler_types::harness::SessionDefaults;
use handler_types::network::NetworkPolicy;
use handler_types::session::{SessionState, StopHow};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

pub use crate::owner::Choice;

/// Longest prompt through the API, bytes.
pub const MAX_PROMPT: usize = crate::acp::MAX_CLIENT_MESSAGE;

/// What a session is started with.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Its id, for the daemon's log.
    pub id: String,
    /// Its folder; made when missing.
    pub dir: PathBuf,
    /// The project folder, which is the agent's working directory.
    pub scope: String,
    /// What the sandbox may reach (P3).
    pub network: NetworkPolicy,
    /// What every start sets (P7).
    pub defaults: SessionDefaults,
    /// A turn is cancelled after this time.
    pub turn_timeout: Duration,
    /// How long the agent may take to end a turn that was cancelled for its length.
    pub cancel_grace: Duration,
    /// How long the agent may take to be ready.
    pub start_timeout: Duration,
    /// Viewers at once.
    pub max_attach: usize,
    /// Takes secrets out of everything logged.
    pub redactor: Redactor,
    /// Who the daemon says it is.
    pub client_info: ClientInfo,
    /// Where a test lets the daemon die.
    pub crash: CrashPoint,
}

impl SessionConfig {
    /// A configuration with the usual limits.
    #[must_use]
    pub fn new(id: &str, dir: PathBuf, scope: &str) -> Self {
        Self {
            id: id.to_owned(),
            dir,
            scope: scope.to_owned(),
            network: NetworkPolicy::None,
            defaults: SessionDefaults::default(),
            turn_timeout: Duration::from_secs(3600),
            cancel_grace: Duration::from_secs(30),
            start_timeout: Duration::from_secs(120),
            max_attach: 8,
            redactor: Redactor::default(),
            client_info: Opening::default().client_info,
            crash: CrashPoint::default(),
        }
    }
}

/// What kind of start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartKind {
    /// A new agent process and a new conversation.
    New,
    /// A new agent process that goes on with an earlier conversation.
    Load {
        /// Its id for clients.
        acp_session_id: String,
        /// It had a turn; without one it is opened anew under the same id.
        had_turn: bool,
    },
    /// The agent process a previous daemon started is still running, maybe in the middle of a turn.
    Adopt,
}

/// Why a session did not become ready.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// The agent's fault, or it could not be brought into the state asked for. `-32004` in the contract's
    /// words when the kind is `Policy`.
    #[error("{}", .0.message)]
    Failed(StartFailure),
    /// The session's files.
    #[error("{0}")]
    Disk(String),
    /// No agent of this session was running when the last daemon ended.
    #[error("no agent of this session was running")]
    NothingToAdopt,
    /// The agent has input that this session's files know nothing of.
    #[error("the running agent does not belong to this session's files")]
    WrongAgent,
}

impl From<DiskError> for StartError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::NothingToAdopt => Self::NothingToAdopt,
            other => Self::Disk(other.to_string()),
        }
    }
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It ended.
    #[error("the session has ended")]
    Ended,
    /// It is not ready yet.
    #[error("the session is not ready")]
    NotReady,
    /// A turn is in progress.
    #[error("a turn is in progress")]
    Busy,
    /// The prompt is too long.
    #[error("the prompt is longer than {MAX_PROMPT} bytes")]
    TooLong,
    /// The prompt says nothing.
    #[error("the prompt is empty")]
    Empty,
    /// No such question waits.
    #[error("no such permission request is open")]
    NoSuchQuestion,
    /// The agent did not offer this option.
    #[error("that is not one of the options offered")]
    NotAnOption,
}

/// A handle to a session; clones are the same session. The session is let go (the agent runs on) when the
/// last handle and the last viewer are dropped.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    commands: mpsc::Sender<Command>,
    facts: watch::Receiver<SessionFacts>,
}

/// Starts sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionCore;

impl SessionCore {
    /// Starts a session on a running agent process. Returns as soon as its files are ready; wait with
    /// [`SessionHandle::ready`] for the agent.
    ///
    /// # Errors
    /// [`StartError`]: the session's files, or nothing to adopt.
    pub async fn start(
        config: SessionConfig,
        io: Box<dyn AgentIo>,
        kind: StartKind,
    ) -> Result<SessionHandle, StartError> {
        handler_base::fs::create_private_dir(&config.dir)
            .map_err(|error| StartError::Disk(error.to_string()))?;
        let log = open_log(&config.dir).await?;
        let (commands_in, commands) = mpsc::channel(crate::owner::QUEUE);
        let (facts, facts_seen) = watch::channel(SessionFacts::default());
        let own = commands_in.downgrade();
        let base = |state, disk: Disk, link, decoder| Parts {
            config: config.clone(),
            state,
            disk,
            link,
            decoder,
            line_offset: 0,
            read_offset: 0,
            again: Vec::new(),
            is_adopted: false,
            first: None,
            facts,
            commands,
            own,
        };
        let parts = match open_kind(&config, kind, &log)? {
            None => {
                let adopted = Disk::adopt(
                    &config.dir,
                    log,
                    config.redactor.clone(),
                    config.crash.clone(),
                )?;
                let snapshot = adopted.snapshot;
                if snapshot.state.phase == Phase::Ended {
                    return Err(StartError::NothingToAdopt);
                }
                if io.received() > adopted.disk.stdin_written() {
                    return Err(StartError::WrongAgent);
                }
                let decoder = LineDecoder::resume(
                    MAX_AGENT_LINE,
                    adopted.decoder_partial,
                    snapshot.is_skipping,
                );
                let link = Link::start(io, adopted.disk.stdin_file(), adopted.disk.stdin());
                // The last daemon ended between the first snapshot and the first input.
                let is_unopened = snapshot.state.phase == Phase::Starting
                    && snapshot.state.outstanding.is_empty()
                    && adopted.inputs.is_empty();
                let first =
                    is_unopened.then(|| Input::Open(Box::new(snapshot.state.opening.clone())));
                Parts {
                    first,
                    line_offset: snapshot.line_offset,
                    read_offset: snapshot.read_offset,
                    again: adopted.inputs,
                    is_adopted: true,
                    ..base(snapshot.state, adopted.disk, link, decoder)
                }
            }
            Some(fresh) => {
                let disk = Disk::create(
                    &config.dir,
                    log,
                    config.redactor.clone(),
                    fresh.generation,
                    &fresh.state,
                    config.crash.clone(),
                )?;
                let link = Link::start(io, disk.stdin_file(), 0);
                Parts {
                    first: Some(Input::Open(Box::new(fresh.opening))),
                    ..base(fresh.state, disk, link, LineDecoder::new(MAX_AGENT_LINE))
                }
            }
        };
        handler_base::tasks::spawn_named("session", Owner::new(parts).run());
        Ok(SessionHandle {
            commands: commands_in,
            facts: facts_seen,
        })
    }

    /// Closes the books of a session whose agent is gone without this program having seen it go: an open
    /// turn and open questions are logged as ended, and the session as stopped. Does nothing when the log
    /// says so already. Returns the number of the last event.
    ///
    /// # Errors
    /// [`StartError::Disk`].
    pub async fn bury(
        dir: &Path,
        redactor: Redactor,
        how: StopHow,
        detail: &str,
    ) -> Result<u64, StartError> {
        let log = open_log(dir).await?;
        let (mut state, generation) = last_state(dir, &log)?;
        if bury(&mut state, &log, &redactor, how, detail)? {
            Disk::create(
                dir,
                log.clone(),
                redactor,
                generation,
                &state,
                CrashPoint::default(),
            )?;
        }
        Ok(log.last_seq())
    }
}

impl SessionHandle {
    /// Waits until the session can be used.
    ///
    /// # Errors
    /// [`StartError::Failed`] when it never will.
    pub async fn ready(&self) -> Result<(), StartError> {
        let mut facts = self.facts.clone();
        let is_settled = |facts: &SessionFacts| facts.state != SessionState::Starting;
        let facts = facts.wait_for(is_settled).await.map(|facts| facts.clone());
        match facts {
            Ok(facts) => match (facts.state, facts.failure) {
                (SessionState::Running, _) => Ok(()),
                (_, Some(failure)) => Err(StartError::Failed(failure)),
                (_, None) => Err(StartError::Disk(
                    facts
                        .error
                        .unwrap_or_else(|| "the session has ended".to_owned()),
                )),
            },
            Err(_) => Err(StartError::Disk("the session was let go".to_owned())),
        }
    }

    /// What is known of it, as it changes. Closed when the session ended or was let go; the last value says
    /// how.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<SessionFacts> {
        self.facts.clone()
    }

    /// Attaches a viewer.
    ///
    /// # Errors
    /// [`SessionError::Ended`].
    pub async fn attach(&self) -> Result<(ViewerSender, ViewerReceiver), SessionError> {
        self.ask(|reply| Command::Attach { reply }).await
    }

    /// Starts a turn of the daemon's own. Returns when the prompt is on its way for sure.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn prompt(&self, text: &str) -> Result<(), SessionError> {
        if text.len() > MAX_PROMPT {
            return Err(SessionError::TooLong);
        }
        if text.trim().is_empty() {
            return Err(SessionError::Empty);
        }
        let text = text.to_owned();
        self.ask(|reply| Command::Prompt { text, reply }).await?
    }

    /// Cancels the turn and answers the agent's open questions with "cancelled".
    ///
    /// # Errors
    /// [`SessionError::Ended`].
    pub async fn cancel(&self) -> Result<(), SessionError> {
        self.ask(|reply| Command::Cancel { reply }).await
    }

    /// The questions that wait.
    ///
    /// # Errors
    /// [`SessionError::Ended`].
    pub async fn permissions(&self) -> Result<Vec<PendingPermission>, SessionError> {
        self.ask(|reply| Command::Permissions { reply }).await
    }

    /// Answers a question.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn answer_permission(
        &self,
        request_id: &str,
        choice: Choice,
    ) -> Result<(), SessionError> {
        let id = request_id.to_owned();
        self.ask(|reply| Command::Answer { id, choice, reply })
            .await?
    }

    /// Ends the session: an open turn ends as `stopped`, viewers are closed with 4002. The agent itself is
    /// left to the caller, who removes its sandbox. Returns when the log says so.
    ///
    /// # Errors
    /// [`SessionError::Ended`] when it had ended already.
    pub async fn stop(&self, how: StopHow, detail: &str) -> Result<(), SessionError> {
        let detail = detail.to_owned();
        self.ask(|reply| Command::Stop { how, detail, reply })
            .await?;
        self.commands.closed().await;
        Ok(())
    }

    /// Lets go of the session without ending it, for a daemon that shuts down: the agent runs on and can be
    /// adopted. Returns when its files are closed.
    pub async fn release(&self) {
        self.ask(|reply| Command::Release { reply }).await.ok();
        self.commands.closed().await;
    }

    /// Waits until nothing of the session is left in this program.
    pub async fn closed(&self) {
        self.commands.closed().await;
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, SessionError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .await
            .map_err(|_| SessionError::Ended)?;
        answer.await.map_err(|_| SessionError::Ended)
    }
}

/// What a new agent process starts from.
struct Fresh {
    state: LiveState,
    opening: Opening,
    generation: u64,
}

/// None: adopt.
fn open_kind(
    config: &SessionConfig,
    kind: StartKind,
    log: &EventLog,
) -> Result<Option<Fresh>, StartError> {
    let load = match kind {
        StartKind::Adopt => return Ok(None),
        StartKind::New => None,
        StartKind::Load {
            acp_session_id,
            had_turn,
        } => Some((acp_session_id, had_turn)),
    };
    let (mut old, generation) = last_state(&config.dir, log)?;
    let detail = "the sandbox was lost";
    bury(&mut old, log, &config.redactor, StopHow::Error, detail)?;
    let kind = match load {
        None => OpenKind::New,
        Some((client_session, had_turn)) => {
            let known = old
                .agent_session
                .clone()
                .filter(|_| old.client_session.as_deref() == Some(client_session.as_str()));
            OpenKind::Load {
                agent_session: known.unwrap_or_else(|| client_session.clone()),
                client_session,
                had_turn: had_turn || old.had_turn,
                is_history_wanted: !has_updates(log)?,
            }
        }
    };
    let opening = Opening {
        kind,
        scope: config.scope.clone(),
        defaults: config.defaults.clone(),
        client_info: config.client_info.clone(),
        steps: Vec::new(),
    };
    let state = LiveState {
        phase: Phase::Starting,
        opening: opening.clone(),
        next_id: old.next_id,
        had_turn: old.had_turn,
        title: old.title,
        is_title_given: old.is_title_given,
        usage: old.usage,
        last_stop_reason: old.last_stop_reason,
        ..LiveState::default()
    };
    Ok(Some(Fresh {
        state,
        opening,
        generation,
    }))
}

/// The last state of a session and the number of its last agent process. A state that cannot be read is
/// made from the log: only what a restart needs.
fn last_state(dir: &Path, log: &EventLog) -> Result<(LiveState, u64), StartError> {
    let (mut state, seq, generation) = match Snapshot::read(dir) {
        Ok(Some(snapshot)) => (snapshot.state, snapshot.seq, snapshot.generation),
        Ok(None) => (LiveState::default(), 0, 0),
        Err(error) => {
            tracing::warn!(%error, "the session's state is made anew from its log");
            // Above any number that can be in use, so that no old file is mistaken for a new one.
            let generation = u64::try_from(handler_base::clock::now_ms()).unwrap_or(0);
            (LiveState::default(), 0, generation)
        }
    };
    fold_log(&mut state, log, seq)?;
    Ok((state, generation))
}

/// Logs the end of a session that was not seen to end; false when there was nothing to log.
fn bury(
    state: &mut LiveState,
    log: &EventLog,
    redactor: &Redactor,
    how: StopHow,
    detail: &str,
) -> Result<bool, StartError> {
    if state.phase == Phase::Ended {
        return Ok(false);
    }
    let mut effects = Vec::new();
    state.on_input(
        Input::End {
            how,
            detail: detail.to_owned(),
            is_error: true,
        },
        &mut effects,
    );
    for effect in effects {
        if let Effect::Record(event) = effect {
            let mut event = serde_json::Value::Object(event);
            redactor.redact_value(&mut event);
            if let serde_json::Value::Object(event) = event {
                log.append(&event).map_err(DiskError::from)?;
            }
        }
    }
    Ok(true)
}

fn has_updates(log: &EventLog) -> Result<bool, StartError> {
    for line in log.read_from(0, u64::MAX) {
        let line = line.map_err(DiskError::from)?;
        if memchr::memmem::find(&line, b"\"kind\":\"update\"").is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens the event log. The owner of a session that just ended may hold it a moment longer.
async fn open_log(dir: &Path) -> Result<EventLog, StartError> {
    let path = dir.join("events.ndjson");
    let mut tries = 0;
    loop {
        match EventLog::open(&path) {
            Err(LogError::AlreadyOpen { .. }) if tries < 100 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return Ok(other.map_err(DiskError::from)?),
        }
    }
}
