//! What a guest or its launcher wrote into its own file, taken into the log of its sandbox.

use super::Note;
use crate::state::App;
use handler_types::SandboxId;
use handler_types::observe::{LogLevel, LogSource};

/// Takes in what is new.
pub(crate) async fn take_in(app: &App, id: &SandboxId) {
    let logs = &app.observe.logs;
    let (lines, end) = logs.guest_text(id).await;
    for message in lines {
        let mut note = Note::new(id, LogSource::Guest, LogLevel::Info, message);
        note.guest_end = Some(end);
        logs.note(note);
    }
}
