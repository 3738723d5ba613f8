//! P7 on a plain connection: a conversation's answer is held until its mode and options are set.

use crate::acp::raw::to_raw;
use crate::acp::{RawId, RawObject};
use crate::policy::{DefaultStep, Refusal, defaults};
use handler_types::harness::SessionDefaults;
use serde_json::{Value, json};

/// The parts of an answer that the defaults are found in and patched into.
const PARTS: [&str; 2] = ["modes", "configOptions"];

/// A conversation that is opened but not handed out yet.
#[derive(Debug)]
pub(super) struct Setting {
    /// The client's request.
    pub(super) client: RawId,
    /// The conversation.
    pub(super) session: String,
    /// Its first prompt gets the instructions.
    pub(super) is_new: bool,
    result: RawObject,
    parts: Value,
    /// What is still to be set, last first.
    steps: Vec<DefaultStep>,
}

impl Setting {
    /// What is to be set for a conversation that the agent opened with `result`.
    ///
    /// # Errors
    /// P7 when no wanted mode is offered.
    pub(super) fn begin(
        wanted: &SessionDefaults,
        client: RawId,
        session: String,
        is_new: bool,
        result: RawObject,
    ) -> Result<Self, Refusal> {
        let mut parts = json!({});
        for part in PARTS {
            if let Some(value) = result.read::<Value>(part) {
                parts[part] = value;
            }
        }
        let mut steps = defaults::plan(wanted, &parts)?;
        steps.reverse();
        Ok(Self {
            client,
            session,
            is_new,
            result,
            parts,
            steps,
        })
    }

    /// The next request to the agent; none: all is set.
    pub(super) fn next(&self) -> Option<(&'static str, Value)> {
        let step = self.steps.last()?;
        Some(defaults::request(step, &self.session))
    }

    /// Takes the agent's answer to it.
    ///
    /// # Errors
    /// P7 when it did not do what it was asked.
    pub(super) fn set(&mut self, answer: Result<Value, String>) -> Result<(), Refusal> {
        let Some(step) = self.steps.pop() else {
            return Ok(());
        };
        let result = answer.map_err(|said| {
            let (method, _) = defaults::request(&step, "");
            defaults::failed(format!("the agent refused {method}: {said}"))
        })?;
        defaults::apply(&step, &result, &mut self.parts)
    }

    /// The agent's answer to the client, with what was set in its place.
    pub(super) fn result(mut self) -> RawObject {
        for part in PARTS {
            if self.result.get(part).is_some() && !self.parts[part].is_null() {
                self.result.set(part, to_raw(&self.parts[part]));
            }
        }
        self.result
    }
}
