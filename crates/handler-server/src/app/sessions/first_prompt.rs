//! The prompt a session is made with: kept in the session's folder until the agent has it, since it may hold
//! what must not stand in the database.
//!
//! Invariant: it is given at most once. What was logged before a crash is not given again.

use handler_session::SessionHandle;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

fn file(folder: &Path) -> PathBuf {
    folder.join("first-prompt")
}

/// Keeps it.
pub(super) fn keep(folder: &Path, prompt: &str) -> std::io::Result<()> {
    handler_base::fs::write_atomic(&file(folder), prompt.as_bytes(), 0o600)
}

/// Gives it to the agent, if there is one that was not given.
///
/// # Errors
/// Why it could not be given, for people.
pub(super) async fn give(handle: &SessionHandle, folder: &Path) -> Result<(), String> {
    let failed = |why: String| format!("the first prompt could not be given: {why}");
    let prompt = match std::fs::read_to_string(file(folder)) {
        Ok(prompt) => prompt,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let has_begun = handle.state().borrow().had_turn;
    if !has_begun {
        handle
            .prompt(&prompt)
            .await
            .map_err(|e| failed(e.to_string()))?;
    }
    std::fs::remove_file(file(folder)).map_err(|e| failed(e.to_string()))
}
