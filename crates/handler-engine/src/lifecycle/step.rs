//! One step of the state machine: pure, total, and the only place that decides what happens next.

use super::state::{After, Held, Phase, State};
use crate::rows::Intent;

/// Rounds of removal before it is left for later.
const ROUNDS: u32 = 4;

/// Something to be done. Each is idempotent; its outcome comes back as an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Writes down what is about to be done.
    WriteIntent(Intent),
    /// Makes the folders, kept and runtime.
    MakeFolders,
    /// Gives the egress filter the sandbox's settings.
    PutFilter,
    /// Starts the instance.
    StartInstance,
    /// Makes the link to the guest.
    ConnectGuest,
    /// Writes down that it runs.
    WriteRunning,
    /// Closes the link to the guest.
    CloseLink,
    /// Freezes the instance.
    PauseInstance,
    /// Thaws the instance.
    ResumeInstance,
    /// Ends the instance and keeps what it wrote.
    StopInstance,
    /// Ends the instance and removes everything the driver made or keeps.
    DestroyInstance,
    /// Takes the sandbox out of the egress filter.
    RemoveFilter,
    /// Removes the runtime folders.
    RemoveRuntime,
    /// Removes the kept folder.
    RemoveKept,
    /// Removes the row.
    DeleteRow,
    /// Writes down that it is at rest.
    WriteRest,
    /// Waits before the next round of removal.
    Wait {
        /// The round that failed, from 0.
        round: u32,
    },
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// It is to be made.
    Create,
    /// It is to run.
    Start,
    /// It is to stop.
    Stop,
    /// It is to stop and run.
    Restart,
    /// Its processes are to be frozen.
    Pause,
    /// Its processes are to be thawed.
    Resume,
    /// It is to go.
    Delete,
    /// After a restart of the daemon: its instance lives; it is to be taken over.
    Adopt,
    /// The same, when its instance was being frozen or thawed: it is to run.
    AdoptThawed,
    /// The same, when its instance is frozen.
    AdoptPaused,
    /// After a restart of the daemon: it is not alive, or was half-way; what may be left of it goes.
    Recover(After),
    /// The instance ended by itself, or its guest cannot be spoken to any more.
    InstanceEnded,
    /// An effect was done.
    Done(Effect),
    /// An effect was not done, or it is not known whether it was.
    Failed(Effect),
}

impl Event {
    /// Whether it takes up what an earlier daemon left running.
    #[must_use]
    pub fn is_adoption(self) -> bool {
        matches!(self, Self::Adopt | Self::AdoptThawed | Self::AdoptPaused)
    }

    /// Whether somebody ordered it; taking up or mending what an earlier daemon left is no order.
    #[must_use]
    pub fn is_order(self) -> bool {
        !self.is_adoption() && !matches!(self, Self::Recover(_))
    }
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// Effects are under way; ask again when they are over.
    #[error("something else is being done to it")]
    Busy,
    /// It exists no more, or not yet.
    #[error("it does not exist")]
    Gone,
    /// Its removal has begun and is not over.
    #[error("it is being removed")]
    Doomed,
    /// It exists already, or the event makes no sense here.
    #[error("it is in no state for this")]
    NotNow,
}

type Step = Result<(State, Vec<Effect>), Refused>;

/// Takes one step.
///
/// # Errors
/// [`Refused`]; the state is then as it was.
pub fn step(state: State, event: Event) -> Step {
    match event {
        Event::Done(effect) => done(state, effect),
        Event::Failed(effect) => failed(state, effect),
        Event::InstanceEnded => match state.phase {
            Phase::Running | Phase::Paused => take_down(state, After::Failed, None),
            // It is being taken down anyway, or the failing start will say so.
            _ => Ok((state, Vec::new())),
        },
        command => {
            if state.is_busy() {
                return Err(Refused::Busy);
            }
            ordered(state, command)
        }
    }
}

/// A command, while nothing is under way.
fn ordered(state: State, event: Event) -> Step {
    match (state.phase, event) {
        (Phase::Absent, Event::Create) => {
            let state = State {
                phase: Phase::Starting { fresh: true },
                ..state
            };
            build(state, Effect::WriteIntent(Intent::Create))
        }
        (Phase::Absent | Phase::Gone, Event::Delete) => Ok((gone(state), Vec::new())),
        (Phase::Absent | Phase::Gone, _) => Err(Refused::Gone),
        (_, Event::Create) => Err(Refused::NotNow),
        (_, Event::Start | Event::Restart) if state.doomed => Err(Refused::Doomed),
        (_, Event::Delete) => take_down(state, After::Gone, Some(Intent::Delete)),
        (Phase::Running, Event::Start | Event::Resume) => Ok((state, Vec::new())),
        (Phase::Running | Phase::Paused, Event::Stop) => {
            take_down(state, After::Stopped, Some(Intent::Stop))
        }
        (Phase::Running | Phase::Paused, Event::Restart) => {
            take_down(state, After::Start, Some(Intent::Start))
        }
        (Phase::Running, Event::Pause) => into(
            state,
            Phase::Pausing { undo: false },
            Effect::WriteIntent(Intent::Pause),
        ),
        (Phase::Paused, Event::Pause) => Ok((state, Vec::new())),
        (Phase::Paused, Event::Resume | Event::Start) => {
            into(state, Phase::Resuming, Effect::WriteIntent(Intent::Resume))
        }
        (Phase::Stopped | Phase::Failed, Event::Start | Event::Restart) => {
            if state.held.runs() {
                take_down(state, After::Start, Some(Intent::Start))
            } else {
                start_again(state)
            }
        }
        (Phase::Stopped | Phase::Failed, Event::Stop) if state.held.runs() => {
            take_down(state, After::Stopped, Some(Intent::Stop))
        }
        (Phase::Stopped | Phase::Failed, Event::Stop) => Ok((state, Vec::new())),
        (Phase::Stopped | Phase::Failed, Event::Adopt) => {
            let first = if state.networked {
                Effect::PutFilter
            } else {
                Effect::ConnectGuest
            };
            into(state, Phase::Starting { fresh: false }, first)
        }
        (Phase::Stopped | Phase::Failed, Event::AdoptThawed) => into(
            state,
            Phase::Starting { fresh: false },
            Effect::ResumeInstance,
        ),
        (Phase::Stopped | Phase::Failed, Event::AdoptPaused) => {
            let first = if state.networked {
                Effect::PutFilter
            } else {
                Effect::PauseInstance
            };
            into(state, Phase::Pausing { undo: false }, first)
        }
        (Phase::Stopped | Phase::Failed, Event::Recover(after)) => take_down(state, after, None),
        _ => Err(Refused::NotNow),
    }
}

/// Enters a phase whose first effect this is.
fn into(state: State, phase: Phase, first: Effect) -> Step {
    build(State { phase, ..state }, first)
}

fn gone(state: State) -> State {
    State {
        phase: Phase::Gone,
        ..state
    }
}

/// Emits an effect that makes something: from now on it may exist.
fn build(mut state: State, effect: Effect) -> Step {
    if effect == Effect::MakeFolders {
        state.held.kept = true;
        state.held.runtime = true;
    } else if effect == Effect::StartInstance {
        state.held.instance = true;
        state.held.layer = true;
    } else if let Some(part) = state.held.part(effect) {
        *part = true;
    }
    Ok((state, vec![effect]))
}

fn start_again(state: State) -> Step {
    into(
        state,
        Phase::Starting { fresh: false },
        Effect::WriteIntent(Intent::Start),
    )
}

/// Begins to take everything down that runs, and all else with [`After::Gone`].
fn take_down(state: State, after: After, intent: Option<Intent>) -> Step {
    let state = State {
        phase: Phase::Stopping {
            after,
            round: 0,
            tried: Held::default(),
        },
        doomed: state.doomed || after == After::Gone,
        ..state
    };
    match intent {
        Some(intent) => Ok((state, vec![Effect::WriteIntent(intent)])),
        None => next_removal(state),
    }
}

fn done(mut state: State, effect: Effect) -> Step {
    match state.phase {
        Phase::Starting { .. } => {
            let next = match effect {
                Effect::WriteIntent(_) => Effect::MakeFolders,
                Effect::MakeFolders if state.networked => Effect::PutFilter,
                Effect::ResumeInstance if state.networked => Effect::PutFilter,
                Effect::ResumeInstance => Effect::ConnectGuest,
                // Taken over with its instance: nothing to start.
                Effect::PutFilter if state.held.instance => Effect::ConnectGuest,
                Effect::MakeFolders | Effect::PutFilter => Effect::StartInstance,
                Effect::StartInstance => Effect::ConnectGuest,
                Effect::ConnectGuest => Effect::WriteRunning,
                Effect::WriteRunning => {
                    state.phase = Phase::Running;
                    return Ok((state, Vec::new()));
                }
                _ => return Err(Refused::NotNow),
            };
            build(state, next)
        }
        Phase::Stopping { .. } => removed(state, effect, true),
        Phase::Pausing { undo } => pausing(state, effect, undo, true),
        Phase::Resuming => resuming(state, effect, true),
        Phase::Stopped | Phase::Failed if effect == Effect::WriteRest => Ok((state, Vec::new())),
        _ => Err(Refused::NotNow),
    }
}

fn failed(state: State, effect: Effect) -> Step {
    match state.phase {
        Phase::Starting { fresh } => {
            let after = if fresh { After::Gone } else { After::Failed };
            take_down(state, after, None)
        }
        Phase::Stopping { .. } => removed(state, effect, false),
        Phase::Pausing { undo } => pausing(state, effect, undo, false),
        Phase::Resuming => resuming(state, effect, false),
        // The row then tells less than is so; reconcile mends that.
        Phase::Stopped | Phase::Failed if effect == Effect::WriteRest => Ok((state, Vec::new())),
        _ => Err(Refused::NotNow),
    }
}

fn rest_in(state: State, phase: Phase) -> Step {
    Ok((State { phase, ..state }, Vec::new()))
}

/// The outcome of an effect while being frozen: what does not work whole is undone.
fn pausing(state: State, effect: Effect, undo: bool, is_done: bool) -> Step {
    let thaw = Phase::Pausing { undo: true };
    match (effect, undo, is_done) {
        (Effect::WriteIntent(_) | Effect::PutFilter, false, true) => {
            build(state, Effect::PauseInstance)
        }
        (Effect::PauseInstance, false, true) => build(state, Effect::WriteRest),
        (Effect::WriteRest, _, true) => rest_in(state, Phase::Paused),
        // Nothing was done to it yet.
        (Effect::WriteIntent(_), false, false) => rest_in(state, Phase::Running),
        // Taken over frozen: it cannot be made to run without a way to its guest, so it is left as it is.
        (Effect::PutFilter, false, false) => build(state, Effect::PauseInstance),
        (Effect::PauseInstance, false, false) => into(state, thaw, Effect::ResumeInstance),
        (Effect::WriteRest, false, false) if state.held.link => {
            into(state, thaw, Effect::ResumeInstance)
        }
        (Effect::ResumeInstance, true, true) if state.held.link => {
            build(state, Effect::WriteRunning)
        }
        (Effect::ResumeInstance, true, true) => build(state, Effect::ConnectGuest),
        (Effect::ConnectGuest, true, true) => build(state, Effect::WriteRunning),
        (Effect::ConnectGuest, true, false) => take_down(state, After::Failed, None),
        // Also when it could not be written: the next daemon looks for itself.
        (Effect::WriteRunning, true, _) => rest_in(state, Phase::Running),
        // Neither frozen nor thawed for sure: only a resume can tell.
        (Effect::ResumeInstance, true, false) => build(state, Effect::WriteRest),
        (Effect::WriteRest, _, false) => rest_in(state, Phase::Paused),
        _ => Err(Refused::NotNow),
    }
}

/// The outcome of an effect while being thawed.
fn resuming(state: State, effect: Effect, is_done: bool) -> Step {
    match (effect, is_done) {
        // Also when it could not be written: a full disk must not keep it frozen.
        (Effect::WriteIntent(_), _) => build(state, Effect::ResumeInstance),
        (Effect::ResumeInstance, true) if state.held.link => build(state, Effect::WriteRunning),
        (Effect::ResumeInstance, true) => build(state, Effect::ConnectGuest),
        (Effect::ConnectGuest, true) => build(state, Effect::WriteRunning),
        (Effect::ConnectGuest, false) => take_down(state, After::Failed, None),
        (Effect::WriteRunning, _) => rest_in(state, Phase::Running),
        (Effect::ResumeInstance, false) => build(state, Effect::WriteRest),
        (Effect::WriteRest, _) => rest_in(state, Phase::Paused),
        _ => Err(Refused::NotNow),
    }
}

/// The outcome of an effect while being taken down.
fn removed(mut state: State, effect: Effect, is_done: bool) -> Step {
    let Phase::Stopping {
        after,
        round,
        mut tried,
    } = state.phase
    else {
        return Err(Refused::NotNow);
    };
    match effect {
        // Also when it could not be written: taking down is what frees a full disk.
        Effect::WriteIntent(_) => return next_removal(state),
        Effect::Wait { .. } => {
            state.phase = Phase::Stopping {
                after,
                round: round + 1,
                tried: Held::default(),
            };
            return next_removal(state);
        }
        _ => {}
    }
    let Some(part) = tried.part(effect) else {
        return Err(Refused::NotNow);
    };
    *part = true;
    if is_done && let Some(part) = state.held.part(effect) {
        *part = false;
    }
    if is_done && effect == Effect::DestroyInstance {
        state.held.instance = false;
    }
    state.phase = Phase::Stopping {
        after,
        round,
        tried,
    };
    next_removal(state)
}

/// The next thing to remove in this round, or what follows the round.
fn next_removal(mut state: State) -> Step {
    let Phase::Stopping {
        after,
        round,
        tried,
    } = state.phase
    else {
        return Err(Refused::NotNow);
    };
    let held = state.held;
    let all = after == After::Gone;
    // The home goes when nobody can write into it any more, the row when nothing else is left.
    let alone = !held.runs() && !held.kept && !held.layer;
    let has_instance = held.instance || held.layer;
    let order = [
        (Effect::CloseLink, held.link && !tried.link),
        (
            Effect::StopInstance,
            !all && held.instance && !tried.instance,
        ),
        (Effect::DestroyInstance, all && has_instance && !tried.layer),
        (Effect::RemoveFilter, held.filter && !tried.filter),
        (
            Effect::RemoveRuntime,
            held.runtime && !tried.runtime && !held.instance && !held.filter,
        ),
        (
            Effect::RemoveKept,
            all && held.kept && !tried.kept && !has_instance,
        ),
        (Effect::DeleteRow, all && alone && held.row && !tried.row),
    ];
    if let Some((effect, _)) = order.into_iter().find(|(_, due)| *due) {
        return Ok((state, vec![effect]));
    }
    let is_left = held.runs() || (all && (held.kept || held.layer || held.row));
    if is_left && round + 1 < ROUNDS {
        return Ok((state, vec![Effect::Wait { round }]));
    }
    state.phase = match after {
        _ if is_left => Phase::Failed,
        After::Start => return start_again(state),
        After::Stopped => Phase::Stopped,
        After::Failed => Phase::Failed,
        After::Gone => return Ok((gone(state), Vec::new())),
    };
    Ok((state, vec![Effect::WriteRest]))
}
