//! The handle: commands to the owner and what it publishes.

use super::{Choice, SessionError, StartError};
use crate::attach::{ViewerReceiver, ViewerSender};
use crate::live::PendingPermission;
use crate::owner::{Command, SessionFacts};
use handler_types::session::{SessionState, StopHow};
use tokio::sync::{mpsc, oneshot, watch};

/// Longest prompt through the API, bytes.
pub const MAX_PROMPT: usize = crate::acp::MAX_CLIENT_MESSAGE;

/// A handle to a session; clones are the same session. The session is let go (the agent runs on) when the
/// last handle and the last viewer are dropped.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) facts: watch::Receiver<SessionFacts>,
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
                (_, None) => match facts.error {
                    Some(error) => Err(StartError::Disk(error)),
                    None => Err(StartError::Ended),
                },
            },
            Err(_) => Err(StartError::Ended),
        }
    }

    /// What is known of it, as it changes. Closed when the session ended or was let go; the last value says
    /// how.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<SessionFacts> {
        self.facts.clone()
    }

    /// Attaches a viewer, once the session is ready.
    ///
    /// # Errors
    /// [`SessionError::Ended`].
    pub async fn attach(&self) -> Result<(ViewerSender, ViewerReceiver), SessionError> {
        self.ready().await.map_err(|_| SessionError::Ended)?;
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
