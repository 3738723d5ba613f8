//! What the owner does because time passed: snapshots, the limits of a start, of a turn, of catching up.

use super::Owner;
use crate::disk::DiskError;
use crate::live::{Input, Phase};
use std::time::Duration;
use tokio::time::Instant;

/// How long output that was kept over a restart may take to arrive.
const CATCH_UP: Duration = Duration::from_secs(30);

impl Owner {
    pub(super) fn next_wake(&self) -> Instant {
        let mut wake = Instant::now() + Duration::from_secs(3600);
        let mut at = |time: Option<Instant>| wake = time.map_or(wake, |time| wake.min(time));
        at(self.save_at);
        if self.is_catching_up {
            at(Some(self.born + CATCH_UP));
        } else if self.state.phase == Phase::Starting {
            at(Some(self.born + self.config.start_timeout));
        }
        match &self.state.turn {
            Some(turn) if turn.is_timed_out => at(self.grace_ends.or(Some(Instant::now()))),
            Some(turn) => at(Some(Instant::now() + self.turn_left(turn.started_ms))),
            None => {}
        }
        wake
    }

    fn turn_left(&self, started_ms: i64) -> Duration {
        let spent = handler_base::clock::now_ms().saturating_sub(started_ms);
        let spent = Duration::from_millis(u64::try_from(spent).unwrap_or(0));
        self.config.turn_timeout.saturating_sub(spent)
    }

    pub(super) fn on_time(&mut self) -> Result<(), DiskError> {
        let now = Instant::now();
        if self.save_at.is_some_and(|at| at <= now) {
            self.save()?;
        }
        if self.is_catching_up {
            return if self.born + CATCH_UP <= now {
                self.give_up_catching_up()
            } else {
                Ok(())
            };
        }
        if self.state.phase == Phase::Starting && self.born + self.config.start_timeout <= now {
            let seconds = self.config.start_timeout.as_secs();
            let message = format!("the agent was not ready after {seconds} s");
            let message = self.with_stderr(message);
            return self.input(Input::StartTimedOut { message });
        }
        self.watch_turn(now)
    }

    fn watch_turn(&mut self, now: Instant) -> Result<(), DiskError> {
        let Some(turn) = &self.state.turn else {
            self.grace_ends = None;
            return Ok(());
        };
        if !turn.is_timed_out {
            if self.turn_left(turn.started_ms).is_zero() {
                self.grace_ends = Some(now + self.config.cancel_grace);
                return self.input(Input::Cancel { is_timeout: true });
            }
            return Ok(());
        }
        // After a restart the agent gets the time again.
        let ends = *self
            .grace_ends
            .get_or_insert(now + self.config.cancel_grace);
        if ends <= now {
            self.grace_ends = None;
            return self.input(Input::TurnLost);
        }
        Ok(())
    }
}
