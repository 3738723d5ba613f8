//! After a restart of the daemon: everything after the snapshot runs again, in the order it took place,
//! until the files hold nothing that has not been seen. Only then are new inputs taken.

use super::Owner;
use crate::disk::{DiskError, WalEntry};
use crate::live::{LiveState, Phase};
use handler_store::EventLog;
use serde_json::Value;

impl Owner {
    /// Runs inputs again whose place among the agent's lines is reached; ends catching up when nothing is
    /// left.
    pub(super) fn run_again(&mut self) -> Result<(), DiskError> {
        while let Some(entry) = self.again.front()
            && entry.at <= self.line_offset
        {
            let Some(WalEntry { input, .. }) = self.again.pop_front() else {
                break;
            };
            self.run_input(input)?;
        }
        if self.is_catching_up && self.again.is_empty() && self.disk.is_caught_up() {
            self.caught_up();
        }
        Ok(())
    }

    /// Ends catching up although something is missing: the agent's output before it is gone.
    pub(super) fn give_up_catching_up(&mut self) -> Result<(), DiskError> {
        if !self.is_catching_up {
            return Ok(());
        }
        tracing::warn!(session = %self.config.id, "output of the agent is missing after a restart");
        while let Some(entry) = self.again.pop_front() {
            self.run_input(entry.input)?;
        }
        fold_log(&mut self.state, self.disk.log(), self.disk.seq())?;
        self.disk.skip_to_end();
        self.link.input.send_replace(self.disk.stdin());
        self.caught_up();
        Ok(())
    }

    fn caught_up(&mut self) {
        self.is_catching_up = false;
        self.is_changed = true;
        self.is_dirty = true;
    }
}

/// Takes turns and questions from events that the state does not know of yet.
///
/// # Errors
/// [`DiskError::Log`].
pub(crate) fn fold_log(state: &mut LiveState, log: &EventLog, after: u64) -> Result<(), DiskError> {
    for line in log.read_from(after, u64::MAX) {
        let line = line?;
        let Ok(event) = serde_json::from_slice::<Value>(&line) else {
            continue;
        };
        match (event["kind"].as_str(), event["phase"].as_str()) {
            (Some("turn"), Some("start")) => state.note_turn_open(),
            (Some("turn"), Some("end")) => state.note_turn_over(event["stopReason"].as_str()),
            (Some("permission"), Some("resolved")) => {
                state.note_settled_question(&event["requestId"]);
            }
            (Some("lifecycle"), _) if event["event"] == "started" => state.phase = Phase::Ready,
            (Some("lifecycle"), _) if event["event"] == "stopped" => state.note_ended(),
            _ => {}
        }
    }
    Ok(())
}
