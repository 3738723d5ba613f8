//! Commands of handles and messages of viewers.

use super::Owner;
use super::commands::{Choice, Command};
use super::facts::session_state_frame;
use crate::acp::build;
use crate::acp::{Envelope, EnvelopeError, Kind, MAX_CLIENT_MESSAGE, RawId, RawObject, codes};
use crate::attach::replay::{self, Stretch};
use crate::core::SessionError;
use crate::disk::DiskError;
use crate::live::state::MAX_OUTSTANDING;
use crate::live::{Answer, Asker, Input, Phase, ViewerId};
use crate::policy::capabilities::for_viewers;
use crate::policy::from_client::{ClientContext, ClientVerdict, decide};
use bytes::Bytes;
use serde_json::json;

/// Events a replay may still miss when its last round begins; live updates are held back meanwhile.
const LAST_ROUND: u64 = 1000;
/// Input the agent has not taken yet above which viewers' requests are refused, bytes.
const MAX_BACKLOG: u64 = 64 * 1024 * 1024;

impl Owner {
    pub(super) fn command(&mut self, command: Command) -> Result<(), DiskError> {
        match command {
            Command::Attach { reply } => {
                if let Some(own) = self.own.upgrade() {
                    self.is_changed = true;
                    reply
                        .send(self.roster.attach(self.config.max_attach, own))
                        .ok();
                }
            }
            Command::Frame { viewer, frame } => return self.frame(viewer, &frame),
            Command::Replayed { viewer, upto } => self.replayed(viewer, upto),
            Command::ReplayFailed { viewer, reason } => {
                tracing::warn!(session = %self.config.id, reason, "a replay failed");
                self.roster
                    .close(viewer, codes::CLOSE_BROKEN, "the events could not be read");
                self.is_changed = true;
            }
            Command::Prompt { text, reply } => {
                let outcome = self.api_prompt(&text)?;
                reply.send(outcome).ok();
            }
            Command::Cancel { reply } => {
                self.input(Input::Cancel { is_timeout: false })?;
                reply.send(()).ok();
            }
            Command::Permissions { reply } => {
                reply
                    .send(
                        self.state
                            .questions()
                            .map(crate::live::Pending::view)
                            .collect(),
                    )
                    .ok();
            }
            Command::Answer { id, choice, reply } => {
                let outcome = self.api_answer(&id, choice)?;
                reply.send(outcome).ok();
            }
            Command::Stop { how, detail, reply } => {
                self.input(Input::End {
                    how,
                    detail,
                    is_error: false,
                })?;
                reply.send(()).ok();
            }
            Command::Release { reply } => self.release(reply),
        }
        Ok(())
    }

    fn api_prompt(&mut self, text: &str) -> Result<Result<(), SessionError>, DiskError> {
        if self.state.phase != Phase::Ready {
            return Ok(Err(SessionError::NotReady));
        }
        if self.state.is_busy() {
            return Ok(Err(SessionError::Busy));
        }
        let mut params = RawObject::default();
        params.put("sessionId", self.state.session());
        params.put("prompt", &json!([{"type": "text", "text": text}]));
        let at_ms = handler_base::clock::now_ms();
        self.input(Input::Prompt {
            params,
            at_ms,
            asker: None,
        })?;
        Ok(Ok(()))
    }

    fn api_answer(
        &mut self,
        id: &str,
        choice: Choice,
    ) -> Result<Result<(), SessionError>, DiskError> {
        let Some(pending) = self
            .state
            .questions()
            .find(|pending| pending.id.display() == id)
        else {
            return Ok(Err(SessionError::NoSuchQuestion));
        };
        let result = match choice {
            Choice::Cancelled => pending.cancelled(),
            Choice::Option(option) => {
                json!({"outcome": {"outcome": "selected", "optionId": option}})
            }
        };
        let id = pending.id.clone();
        let answer = Answer::Result(crate::acp::raw::to_raw(&result));
        if !self.state.accepts_answer(&id, &answer) {
            return Ok(Err(SessionError::NotAnOption));
        }
        self.input(Input::Answer {
            id,
            answer,
            by: "api".to_owned(),
            viewer: None,
        })?;
        Ok(Ok(()))
    }

    fn frame(&mut self, viewer: ViewerId, frame: &Bytes) -> Result<(), DiskError> {
        if frame.len() > MAX_CLIENT_MESSAGE {
            self.roster
                .close(viewer, codes::CLOSE_TOO_BIG, "message too big");
            self.is_changed = true;
            return Ok(());
        }
        match Envelope::parse(frame) {
            Ok(message) => self.message(viewer, message),
            Err(error) => {
                let code = match error {
                    EnvelopeError::NotJson(_) => codes::PARSE_ERROR,
                    EnvelopeError::NotAMessage(_) => codes::INVALID_REQUEST,
                };
                self.roster
                    .reply(viewer, build::error(None, code, &error.to_string(), None));
                Ok(())
            }
        }
    }

    fn message(&mut self, viewer: ViewerId, message: Envelope) -> Result<(), DiskError> {
        let verdict = decide(
            &message,
            &ClientContext {
                session: self.state.session(),
                scope: &self.config.scope,
                network: &self.config.network,
                is_busy: self.state.is_busy(),
            },
        );
        let has_params = message
            .object
            .get("params")
            .is_some_and(|raw| raw.get() != "null");
        let params = has_params.then(|| message.params());
        match message.kind.clone() {
            Kind::Response { .. } => self.answer(viewer, &message),
            Kind::Notification { method } => match verdict {
                ClientVerdict::Cancel => self.input(Input::Cancel { is_timeout: false }),
                ClientVerdict::Notify => self.input(Input::Notify { method, params }),
                other => {
                    tracing::debug!(session = %self.config.id, method, ?other, "a viewer's notification was dropped");
                    Ok(())
                }
            },
            Kind::Request { id, method } => {
                self.request(Asker { viewer, id }, method, params, verdict)
            }
        }
    }

    fn request(
        &mut self,
        asker: Asker,
        method: String,
        params: Option<RawObject>,
        verdict: ClientVerdict,
    ) -> Result<(), DiskError> {
        match verdict {
            ClientVerdict::Initialize => {
                let result = for_viewers(self.state.init.clone());
                self.roster
                    .reply(asker.viewer, build::result(&asker.id, &result));
            }
            ClientVerdict::Load { after_seq } => self.load(asker, after_seq),
            ClientVerdict::Refuse(refusal) => {
                let policy = refusal.policy.as_deref();
                self.refuse(&asker, refusal.code, &refusal.message, policy);
            }
            ClientVerdict::Prompt | ClientVerdict::Forward if self.is_overloaded() => {
                self.refuse(
                    &asker,
                    codes::INTERNAL,
                    "the agent does not take its input",
                    None,
                );
            }
            ClientVerdict::Prompt => {
                let params = params.unwrap_or_default();
                let at_ms = handler_base::clock::now_ms();
                return self.input(Input::Prompt {
                    params,
                    at_ms,
                    asker: Some(asker),
                });
            }
            ClientVerdict::Forward => {
                return self.input(Input::Forward {
                    method,
                    params,
                    asker: Some(asker),
                });
            }
            ClientVerdict::Notify
            | ClientVerdict::Cancel
            | ClientVerdict::Answer
            | ClientVerdict::Drop(_) => {
                self.refuse(&asker, codes::INVALID_REQUEST, "not a request", None);
            }
        }
        Ok(())
    }

    fn refuse(&mut self, asker: &Asker, code: i32, message: &str, policy: Option<&str>) {
        self.roster.reply(
            asker.viewer,
            build::error(Some(&asker.id), code, message, policy),
        );
    }

    fn is_overloaded(&self) -> bool {
        self.state.outstanding.len() >= MAX_OUTSTANDING
            || self.disk.stdin().saturating_sub(*self.link.taken.borrow()) > MAX_BACKLOG
    }

    fn answer(&mut self, viewer: ViewerId, message: &Envelope) -> Result<(), DiskError> {
        let Some((id, answer)) = Answer::of(message) else {
            return Ok(());
        };
        if !self.state.accepts_answer(&id, &answer) {
            tracing::debug!(session = %self.config.id, "an answer to no open question was dropped");
            return Ok(());
        }
        self.input(Input::Answer {
            id,
            answer,
            by: "client".to_owned(),
            viewer: Some(viewer),
        })
    }

    fn load(&mut self, asker: Asker, after: u64) {
        let Asker { viewer, id } = asker;
        if !self.roster.begin_replay(viewer, id.clone()) {
            let message = "a session/load is under way";
            self.roster.reply(
                viewer,
                build::error(Some(&id), codes::INVALID_REQUEST, message, None),
            );
            return;
        }
        self.next_round(viewer, after.min(self.disk.seq()));
    }

    fn next_round(&mut self, viewer: ViewerId, after: u64) {
        let until = self.disk.seq();
        let is_last = until - after <= LAST_ROUND;
        let Some(lane) = self.roster.begin_round(viewer, is_last) else {
            return;
        };
        if until == after {
            return self.finish_replay(viewer);
        }
        let Some(own) = self.own.upgrade() else {
            return;
        };
        let session = self.state.session().to_owned();
        let log = self.disk.log().clone();
        let stretch = Stretch {
            log,
            viewer,
            session,
            after,
            until,
        };
        let task = replay::run(stretch, lane, own);
        self.roster.keep_task(
            viewer,
            handler_base::tasks::spawn_named("session-replay", task),
        );
    }

    fn replayed(&mut self, viewer: ViewerId, upto: u64) {
        match self.roster.is_last_round(viewer) {
            Some(true) => self.finish_replay(viewer),
            Some(false) => self.next_round(viewer, upto),
            None => {}
        }
    }

    /// The viewer has all events: the answer to its load, the state, the open questions, then live.
    fn finish_replay(&mut self, viewer: ViewerId) {
        let Some(request) = self.roster.end_replay(viewer) else {
            return;
        };
        self.roster
            .reply(viewer, load_result(&request, &self.state.opened));
        let facts = self.facts.borrow().clone();
        self.roster.reply(viewer, session_state_frame(&facts));
        for pending in &self.state.pending {
            self.roster.reply(viewer, pending.request.to_bytes());
        }
        self.is_changed = true;
    }
}

fn load_result(request: &RawId, opened: &serde_json::Value) -> Vec<u8> {
    if opened.is_object() {
        build::result(request, opened)
    } else {
        build::result(request, &json!({}))
    }
}
