//! Where a sandbox stands and what of it may exist.

use super::step::Effect;
use crate::rows::Intent;
use handler_types::sandbox::SandboxState;

/// What of a sandbox may exist. Set before it is made, cleared after it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Held {
    /// Its row.
    pub row: bool,
    /// The folder kept until it is removed.
    pub kept: bool,
    /// Its runtime folders.
    pub runtime: bool,
    /// Its settings in the egress filter.
    pub filter: bool,
    /// Its instance: processes, frozen or not.
    pub instance: bool,
    /// What its driver keeps of it while it does not run: a stopped container, a writable layer.
    pub layer: bool,
    /// The link to its guest.
    pub link: bool,
}

impl Held {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self {
            row: true,
            kept: true,
            runtime: true,
            filter: true,
            instance: true,
            layer: true,
            link: true,
        }
    }

    /// What a sandbox at rest keeps.
    #[must_use]
    pub fn resting() -> Self {
        Self {
            row: true,
            kept: true,
            layer: true,
            ..Self::default()
        }
    }

    /// Whether something is held that a sandbox has only while it runs.
    #[must_use]
    pub fn runs(self) -> bool {
        self.runtime || self.filter || self.instance || self.link
    }

    /// What of it is there, in words for people.
    #[must_use]
    pub fn words(self) -> Vec<String> {
        [
            (self.instance, "processes"),
            (self.filter, "settings in the egress filter"),
            (self.runtime, "runtime folder"),
            (self.layer, "what the backend keeps of it"),
            (self.kept, "home folder"),
            (self.row, "database entry"),
        ]
        .iter()
        .filter(|(is_held, _)| *is_held)
        .map(|(_, word)| (*word).to_owned())
        .collect()
    }

    /// The part that an effect makes or removes.
    pub(super) fn part(&mut self, effect: Effect) -> Option<&mut bool> {
        match effect {
            Effect::WriteIntent(Intent::Create) | Effect::DeleteRow => Some(&mut self.row),
            Effect::PutFilter | Effect::RemoveFilter => Some(&mut self.filter),
            Effect::StartInstance | Effect::StopInstance => Some(&mut self.instance),
            Effect::DestroyInstance => Some(&mut self.layer),
            Effect::ConnectGuest | Effect::CloseLink => Some(&mut self.link),
            Effect::RemoveRuntime => Some(&mut self.runtime),
            Effect::RemoveKept => Some(&mut self.kept),
            Effect::MakeFolders
            | Effect::WriteIntent(_)
            | Effect::WriteRunning
            | Effect::WriteRest
            | Effect::PauseInstance
            | Effect::ResumeInstance
            | Effect::Wait { .. } => None,
        }
    }
}

/// What follows when everything that runs is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum After {
    /// It rests.
    Stopped,
    /// It rests, with a reason.
    Failed,
    /// It starts again.
    Start,
    /// All of it is removed.
    Gone,
}

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing exists yet.
    Absent,
    /// It is being brought up, one effect at a time; `fresh`: for the first time, so that failure leaves nothing.
    Starting {
        /// For the first time.
        fresh: bool,
    },
    /// Its guest answers.
    Running,
    /// Its processes are being frozen; `undo`: thawed again, because that did not work.
    Pausing {
        /// It is being thawed again.
        undo: bool,
    },
    /// Its processes are frozen; a link to its guest may stand or not.
    Paused,
    /// Its processes are being thawed.
    Resuming,
    /// It is being taken down.
    Stopping {
        /// What follows.
        after: After,
        /// How many rounds failed before this one.
        round: u32,
        /// What was tried in this round.
        tried: Held,
    },
    /// At rest.
    Stopped,
    /// At rest, with a reason; something may be left that could not be removed.
    Failed,
    /// Nothing exists any more.
    Gone,
}

/// The whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// Where it stands.
    pub phase: Phase,
    /// What may exist.
    pub held: Held,
    /// Whether it has a link to the egress filter.
    pub networked: bool,
    /// Whether its removal has begun: it never starts again.
    pub doomed: bool,
}

impl State {
    /// Before anything exists.
    #[must_use]
    pub fn absent(networked: bool) -> Self {
        Self {
            phase: Phase::Absent,
            held: Held::default(),
            networked,
            doomed: false,
        }
    }

    /// What a row says after the daemon started anew, when nothing is known of the world.
    #[must_use]
    pub fn found(networked: bool) -> Self {
        Self {
            phase: Phase::Failed,
            held: Held {
                link: false,
                ..Held::all()
            },
            networked,
            doomed: false,
        }
    }

    /// The state as it is shown.
    #[must_use]
    pub fn shown(self) -> SandboxState {
        match self.phase {
            Phase::Absent | Phase::Starting { fresh: true } => SandboxState::Creating,
            Phase::Starting { fresh: false } => SandboxState::Starting,
            Phase::Running => SandboxState::Running,
            Phase::Pausing { .. } => SandboxState::Pausing,
            Phase::Paused => SandboxState::Paused,
            Phase::Resuming => SandboxState::Resuming,
            Phase::Stopping {
                after: After::Gone, ..
            }
            | Phase::Gone => SandboxState::Deleting,
            Phase::Stopping { .. } => SandboxState::Stopping,
            Phase::Stopped => SandboxState::Stopped,
            Phase::Failed => SandboxState::Failed,
        }
    }

    /// Whether effects are under way.
    #[must_use]
    pub fn is_busy(self) -> bool {
        matches!(
            self.phase,
            Phase::Starting { .. }
                | Phase::Pausing { .. }
                | Phase::Resuming
                | Phase::Stopping { .. }
        )
    }

    /// Whether it has processes, or is getting or losing them: it takes up memory.
    #[must_use]
    pub fn is_up(self) -> bool {
        !matches!(self.phase, Phase::Stopped | Phase::Failed | Phase::Gone) || self.held.instance
    }

    /// Whether nothing has to be watched or done for it: it needs no owner until somebody asks for something.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        matches!(self.phase, Phase::Stopped | Phase::Failed)
    }

    /// What of a removal or failed start is still there, in words; empty: nothing that should not be.
    #[must_use]
    pub fn remains(self) -> Vec<String> {
        match (self.phase, self.doomed) {
            (Phase::Failed, true) => self.held.words(),
            (Phase::Failed, false) => Held {
                row: false,
                kept: false,
                layer: false,
                ..self.held
            }
            .words(),
            _ => Vec::new(),
        }
    }
}
