//! The four model protocols: which path speaks which, and the shapes each answers in.
//!
//! Invariant: a protocol module knows JSON shapes only; plans, tools and HTTP live elsewhere.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod gemini;
pub(crate) mod responses;

use serde_json::Value;

use crate::answer::Answer;
use crate::conversation::{Conversation, ReadConversationError};
use crate::sse::Frame;

/// A wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

/// Everything an answer's shape is made of.
pub(crate) struct Outgoing<'a> {
    /// The request it answers.
    pub(crate) talk: &'a Conversation,
    /// What to say.
    pub(crate) answer: &'a Answer,
    /// Random part of the identifiers.
    pub(crate) id: &'a str,
    /// Seconds since the Unix epoch.
    pub(crate) created: u64,
    /// Tokens read, roughly.
    pub(crate) input_tokens: usize,
}

impl Protocol {
    /// Reduces a request body to the conversation it carries.
    pub(crate) fn read(self, body: &Value) -> Result<Conversation, ReadConversationError> {
        match self {
            Self::Anthropic => anthropic::read(body),
            Self::Chat => chat::read(body),
            Self::Responses => responses::read(body),
            Self::Gemini => gemini::read(body),
        }
    }

    /// The answer in one piece.
    pub(crate) fn whole(self, out: &Outgoing<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::whole(out),
            Self::Chat => chat::whole(out),
            Self::Responses => responses::whole(out),
            Self::Gemini => gemini::whole(out),
        }
    }

    /// The answer as events.
    pub(crate) fn frames(self, out: &Outgoing<'_>) -> Vec<Frame> {
        match self {
            Self::Anthropic => anthropic::frames(out),
            Self::Chat => chat::frames(out),
            Self::Responses => responses::frames(out),
            Self::Gemini => gemini::chunks(out)
                .iter()
                .map(|(c, p)| Frame::data(c).paced(*p))
                .collect(),
        }
    }

    /// An error in the protocol's shape.
    pub(crate) fn error(self, status: u16, message: &str) -> Value {
        match self {
            Self::Anthropic => anthropic::error(status, message),
            Self::Chat | Self::Responses => chat::error(status, message),
            Self::Gemini => gemini::error(status, message),
        }
    }
}
