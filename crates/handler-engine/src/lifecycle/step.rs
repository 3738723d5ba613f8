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
    /// Kills the instance and removes what the driver made.
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
    Pause {
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
    /// It is to go.
    Delete,
    /// After a restart of the daemon: its instance lives; it is to be taken over.
    Adopt,
    /// After a restart of the daemon: it is not alive, or was half-way; what may be left of it goes.
    Recover(After),
    /// The instance ended by itself, or its guest cannot be spoken to any more.
    InstanceEnded,
    /// An effect was done.
    Done(Effect),
    /// An effect was not done, or it is not known whether it was.
    Failed(Effect),
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
            Phase::Running => take_down(state, After::Failed, None),
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
        (Phase::Running, Event::Start) => Ok((state, Vec::new())),
        (Phase::Running, Event::Stop) => take_down(state, After::Stopped, Some(Intent::Stop)),
        (Phase::Running, Event::Restart) => take_down(state, After::Start, Some(Intent::Start)),
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
            let state = State {
                phase: Phase::Starting { fresh: false },
                ..state
            };
            let first = if state.networked {
                Effect::PutFilter
            } else {
                Effect::ConnectGuest
            };
            build(state, first)
        }
        (Phase::Stopped | Phase::Failed, Event::Recover(after)) => take_down(state, after, None),
        _ => Err(Refused::NotNow),
    }
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
    } else if let Some(part) = state.held.part(effect) {
        *part = true;
    }
    Ok((state, vec![effect]))
}

fn start_again(state: State) -> Step {
    let state = State {
        phase: Phase::Starting { fresh: false },
        ..state
    };
    build(state, Effect::WriteIntent(Intent::Start))
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
        // The row then tells less than is so; reconcile mends that.
        Phase::Stopped | Phase::Failed if effect == Effect::WriteRest => Ok((state, Vec::new())),
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
        Effect::Pause { .. } => {
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
    let alone = !held.runs() && !held.kept;
    let order = [
        (Effect::CloseLink, held.link && !tried.link),
        (Effect::DestroyInstance, held.instance && !tried.instance),
        (Effect::RemoveFilter, held.filter && !tried.filter),
        (
            Effect::RemoveRuntime,
            held.runtime && !tried.runtime && !held.instance && !held.filter,
        ),
        (
            Effect::RemoveKept,
            all && held.kept && !tried.kept && !held.instance,
        ),
        (Effect::DeleteRow, all && alone && held.row && !tried.row),
    ];
    if let Some((effect, _)) = order.into_iter().find(|(_, due)| *due) {
        return Ok((state, vec![effect]));
    }
    let is_left = held.runs() || (all && (held.kept || held.row));
    if is_left && round + 1 < ROUNDS {
        return Ok((state, vec![Effect::Pause { round }]));
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
