//! Putting a sandbox to rest because nobody uses it, and waking it because somebody does.
//!
//! Invariant: from [`Owner::idle`]'s decision on, whoever asks for the guest waits for this owner and wakes it; nobody gets
//! a guest that is about to freeze or end.

use super::owner::Owner;
use super::timers::Due;
use crate::error::EngineError;
use crate::lifecycle::{Event, Phase};
use handler_types::lifetime::{IdleAction, IdlePolicy};
use handler_types::sandbox::SandboxView;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long the guest may think about what runs in it.
const LOOK: Duration = Duration::from_secs(5);

fn after(policy: IdlePolicy) -> Duration {
    Duration::from_secs(policy.after_seconds.max(1))
}

impl Owner {
    /// Nobody seems to have used it: looks closer, and does what its policy says.
    pub(super) async fn idle(&mut self) {
        let Some(policy) = self.row.spec.idle else {
            return;
        };
        if self.state.phase != Phase::Running {
            return;
        }
        if self.has_commands().await || !self.begin_leaving(policy) {
            self.set_idle_timer_soon(policy);
            return;
        }
        let event = match policy.action {
            IdleAction::Pause => Event::Pause,
            IdleAction::Stop => Event::Stop,
            IdleAction::Delete => Event::Delete,
        };
        tracing::info!(sandbox = %self.id, ?policy.action, "nobody uses it");
        self.row.idled = true;
        let result = self.drive(event).await;
        if let Err(error) = result {
            tracing::warn!(sandbox = %self.id, error = %error.detail(), "an idle sandbox could not be put to rest");
        }
        if self.state.phase == Phase::Running {
            self.row.idled = false;
        }
        // Unknown by now when it was removed.
        self.shared
            .with(&self.id, |entry| entry.is_leaving = false)
            .ok();
    }

    /// Whether a command or terminal started through the API is alive. A guest that does not say so keeps it running.
    async fn has_commands(&mut self) -> bool {
        let Some(guest) = &self.guest else {
            return false;
        };
        match timeout(LOOK, guest.processes()).await {
            Ok(Ok(processes)) => processes.iter().any(|process| process.exit.is_none()),
            _ => true,
        }
    }

    /// From now on its guest is given to nobody, unless it was used meanwhile.
    fn begin_leaving(&self, policy: IdlePolicy) -> bool {
        let begin = self.shared.with(&self.id, |entry| {
            let is_idle =
                !entry.usage.is_held() && entry.last_use() + after(policy) <= Instant::now();
            entry.is_leaving = is_idle;
            is_idle
        });
        begin.unwrap_or(false)
    }

    /// Looks again when it can be idle at the earliest; what runs now may end in a moment.
    fn set_idle_timer_soon(&self, policy: IdlePolicy) {
        let at = Instant::now() + after(policy);
        self.shared.timers.set(&self.id, Due::Idle, Some(at));
    }

    /// Makes it run, when it does not because nobody used it.
    pub(super) async fn wake(&mut self) -> Result<SandboxView, EngineError> {
        let may_wake = self.row.idled && self.row.spec.idle.is_some_and(|policy| policy.wake);
        let event = match self.state.phase {
            Phase::Running => return Ok(self.row.view()),
            Phase::Paused if may_wake => Event::Resume,
            Phase::Stopped if may_wake => Event::Start,
            Phase::Paused => return Err(self.wrong_state("resume it first")),
            _ => return Err(self.wrong_state("start it first")),
        };
        // It stays marked until it runs: what did not work may be tried by the next who uses it.
        self.admitted(event).await
    }
}
