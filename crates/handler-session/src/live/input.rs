//! What reaches the session besides the agent's lines. Every input is written to disk before it takes
//! effect, so each is plain data; who waits for the answer is not, because viewers do not survive.

use super::{Asker, LiveState, Opening, ViewerId};
use crate::acp::{RawId, RawObject};
use handler_types::session::StopHow;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An answer to a request of the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// `result`.
    Result(Box<RawValue>),
    /// `error`.
    Error(Box<RawValue>),
}

/// One input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Input {
    /// A new agent process is to be set up.
    Open(Box<Opening>),
    /// A turn starts.
    Prompt {
        /// Parameters of `session/prompt`.
        params: RawObject,
        /// When, milliseconds since the epoch.
        at_ms: i64,
        /// Who waits.
        #[serde(skip)]
        asker: Option<Asker>,
    },
    /// A viewer's request for the agent.
    Forward {
        /// Its method.
        method: String,
        /// Its parameters.
        params: Option<RawObject>,
        /// Who waits.
        #[serde(skip)]
        asker: Option<Asker>,
    },
    /// A viewer's notification for the agent.
    Notify {
        /// Its method.
        method: String,
        /// Its parameters.
        params: Option<RawObject>,
    },
    /// An answer to a request of the agent.
    Answer {
        /// The agent's id.
        id: RawId,
        /// The answer.
        answer: Answer,
        /// `client` or `api`.
        by: String,
        /// Who answered.
        #[serde(skip)]
        viewer: Option<ViewerId>,
    },
    /// Cancel what is under way.
    Cancel {
        /// Because the turn took too long.
        is_timeout: bool,
    },
    /// The agent did not end a turn that was cancelled for its length.
    TurnLost,
    /// Nobody is there to answer the agent's extension requests.
    RefuseExtensions,
    /// The setup took too long.
    StartTimedOut {
        /// What is said about it.
        message: String,
    },
    /// The session ends: stopped, or the agent is gone.
    End {
        /// How.
        how: StopHow,
        /// For people.
        detail: String,
        /// Whether it is an error.
        is_error: bool,
    },
}

impl LiveState {
    /// Takes one input.
    pub(crate) fn on_input(&mut self, input: Input, out: &mut Vec<super::Effect>) {
        match input {
            Input::Open(opening) => self.open(*opening, out),
            Input::Prompt {
                params,
                at_ms,
                asker,
            } => self.start_turn(params, at_ms, asker, out),
            Input::Forward {
                method,
                params,
                asker,
            } => self.forward(&method, params, asker, out),
            Input::Notify { method, params } => self.notify(&method, params, out),
            Input::Answer {
                id,
                answer,
                by,
                viewer,
            } => {
                self.answer_pending(&id, &answer, &by, viewer, out);
            }
            Input::Cancel { is_timeout } => self.cancel(is_timeout, out),
            Input::TurnLost => self.lose_turn(out),
            Input::RefuseExtensions => self.refuse_extensions(out),
            Input::StartTimedOut { message } => self.start_timed_out(message, out),
            Input::End {
                how,
                detail,
                is_error,
            } => self.end(how, &detail, is_error, out),
        }
    }
}
