//! Starting on a new agent process, taking over a running one, closing the books of a lost one.

use super::{SessionConfig, SessionHandle, StartError, StartKind};
use crate::acp::{LineDecoder, MAX_AGENT_LINE};
use crate::disk::{CrashPoint, Disk, DiskError, Snapshot};
use crate::io::AgentIo;
use crate::live::{Effect, Input, LiveState, OpenKind, Opening, Phase};
use crate::owner::link::Link;
use crate::owner::{Owner, Parts, SessionFacts, fold_log};
use handler_store::log::LogError;
use handler_store::{EventLog, Redactor};
use handler_types::session::StopHow;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Starts sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionCore;

/// What is known of a session after its books were closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buried {
    /// Number of the last event.
    pub last_seq: u64,
    /// There was a turn.
    pub had_turn: bool,
    /// How the last turn ended.
    pub last_stop_reason: Option<String>,
}

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
    /// says so already.
    ///
    /// # Errors
    /// [`StartError::Disk`].
    pub async fn bury(
        dir: &Path,
        redactor: Redactor,
        how: StopHow,
        detail: &str,
    ) -> Result<Buried, StartError> {
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
        Ok(Buried {
            last_seq: log.last_seq(),
            had_turn: state.had_turn,
            last_stop_reason: state.last_stop_reason,
        })
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
        instructions: config.instructions.clone(),
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
