//! Turns: one at a time, from the prompt to its stop reason; cancelling; the end of the session.

use super::opening::{StartFailure, StartFailureKind, error_text};
use super::record::{self, TurnEnd};
use super::state::{Expect, LiveState, Phase, Turn, send};
use super::{Asker, Effect, UpdateEffect, usage};
use crate::acp::{Envelope, RawObject, build, codes};
use crate::policy::instructions;
use handler_types::session::StopHow;
use serde_json::{Value, json};

/// How much of a prompt's text is kept to know its echo, bytes.
const KEPT_PROMPT: usize = 64 * 1024;
/// Longest title made from a prompt, characters.
const MAX_TITLE: usize = 80;

impl LiveState {
    pub(super) fn start_turn(
        &mut self,
        mut params: RawObject,
        at_ms: i64,
        asker: Option<Asker>,
        out: &mut Vec<Effect>,
    ) {
        if self.phase != Phase::Ready || self.is_busy() {
            return self.drop_message("a prompt that came at the wrong time", out);
        }
        let blocks: Vec<Value> = params.read("prompt").unwrap_or_default();
        let except = asker.as_ref().map(|asker| asker.viewer);
        out.push(Effect::Record(record::turn_start()));
        for block in &blocks {
            out.push(Effect::Update(UpdateEffect {
                update: json!({"sessionUpdate": "user_message_chunk", "content": block}),
                params: None,
                is_logged: true,
                offset: None,
                except,
            }));
        }
        self.take_prompt_title(&prompt_text(&blocks));
        let blocks = self.with_instructions(blocks, &mut params);
        let text = prompt_text(&blocks);
        let (prompt, is_cut) = cut(&text, KEPT_PROMPT);
        self.tool_titles.clear();
        self.towards_agent(&mut params);
        let request = self.request("session/prompt", Some(&params), Expect::Prompt, asker, out);
        self.turn = Some(Turn {
            request,
            started_ms: at_ms,
            prompt: prompt.to_owned(),
            is_cut,
            is_cancelled: false,
            is_timed_out: false,
        });
        self.had_turn = true;
        out.push(Effect::Changed);
    }

    /// The prompt as the agent gets it: the first one with the instructions before it (P9).
    fn with_instructions(&self, blocks: Vec<Value>, params: &mut RawObject) -> Vec<Value> {
        match &self.opening.instructions {
            Some(text) if !self.had_turn => {
                let blocks = instructions::before(text, blocks);
                params.put("prompt", &blocks);
                blocks
            }
            _ => blocks,
        }
    }

    fn take_prompt_title(&mut self, text: &str) {
        if self.title.is_none()
            && let Some(line) = text.lines().map(str::trim).find(|line| !line.is_empty())
        {
            self.title = Some(line.chars().take(MAX_TITLE).collect());
        }
    }

    /// Whether an update repeats the prompt of the turn, which every viewer already has.
    pub(super) fn is_echo(&self, update: &Value) -> bool {
        let Some(turn) = &self.turn else { return false };
        match update["content"]["text"].as_str() {
            Some(text) => turn.is_cut || turn.prompt.contains(text),
            None => true,
        }
    }

    pub(super) fn on_prompt_answer(
        &mut self,
        message: &Envelope,
        asker: Option<Asker>,
        answer: Result<Value, Value>,
        offset: u64,
        out: &mut Vec<Effect>,
    ) {
        let is_timed_out = self.turn.as_ref().is_some_and(|turn| turn.is_timed_out);
        let (reason, usage, error) = match answer {
            Ok(result) => {
                let reason = result["stopReason"].as_str().unwrap_or("unknown");
                let reason = reason.chars().take(64).collect();
                (reason, usage::of_answer(&result), None)
            }
            Err(error) => ("error".to_owned(), None, Some(error_text(&error))),
        };
        let reason = if is_timed_out {
            "timed_out".to_owned()
        } else {
            reason
        };
        let end = TurnEnd {
            reason: &reason,
            usage,
            error: error.as_deref(),
            offset: Some(offset),
        };
        self.close_turn(end, asker.as_ref(), out);
        self.reply(message, asker, out);
        out.push(Effect::Changed);
    }

    /// Ends the turn under way for the log and for those who did not start it.
    fn close_turn(&mut self, end: TurnEnd<'_>, asker: Option<&Asker>, out: &mut Vec<Effect>) {
        self.settle_all("turn_end", end.offset, out);
        if self.turn.take().is_none() {
            return;
        }
        let reason = end.reason;
        out.push(Effect::Record(record::turn_end(end)));
        self.last_stop_reason = Some(reason.to_owned());
        out.push(Effect::Show {
            frame: build::notification("_handler/turn_ended", Some(&json!({"stopReason": reason}))),
            except: asker.map(|asker| asker.viewer),
        });
    }

    pub(super) fn cancel(&mut self, is_timeout: bool, out: &mut Vec<Effect>) {
        if self.turn.is_none() && self.pending.is_empty() {
            return;
        }
        if let Some(turn) = &mut self.turn {
            turn.is_cancelled = true;
            turn.is_timed_out |= is_timeout;
        }
        let params = json!({"sessionId": self.agent_session});
        out.push(send(build::notification("session/cancel", Some(&params))));
        // Some agents do not end the turn before their open questions are answered.
        self.settle_all("cancel", None, out);
        out.push(Effect::Changed);
    }

    pub(super) fn lose_turn(&mut self, out: &mut Vec<Effect>) {
        let Some(turn) = &self.turn else { return };
        let asker = self
            .outstanding
            .remove(&turn.request)
            .and_then(|waiting| waiting.asker);
        self.error = Some("the agent did not end a turn that took too long".to_owned());
        let error = self.error.clone();
        let end = TurnEnd {
            reason: "timed_out",
            error: error.as_deref(),
            ..TurnEnd::default()
        };
        self.close_turn(end, asker.as_ref(), out);
        if let Some(asker) = asker {
            out.push(Effect::Reply {
                viewer: asker.viewer,
                frame: build::error(
                    Some(&asker.id),
                    codes::INTERNAL,
                    "the turn took too long",
                    None,
                ),
            });
        }
        out.push(Effect::Changed);
    }

    pub(super) fn end(
        &mut self,
        how: StopHow,
        detail: &str,
        is_error: bool,
        out: &mut Vec<Effect>,
    ) {
        if self.phase == Phase::Ended {
            return;
        }
        if self.phase == Phase::Starting && self.failure.is_none() {
            self.failure = Some(StartFailure {
                kind: StartFailureKind::Ended,
                message: detail.to_owned(),
            });
        }
        let end = TurnEnd {
            reason: "stopped",
            ..TurnEnd::default()
        };
        self.close_turn(end, None, out);
        self.phase = Phase::Ended;
        self.outstanding.clear();
        self.early.clear();
        if is_error {
            self.error = Some(detail.to_owned());
        }
        out.push(Effect::Record(record::stopped(how, detail)));
        out.push(Effect::Changed);
        out.push(Effect::Ended {
            reason: detail.to_owned(),
        });
    }
}

fn prompt_text(blocks: &[Value]) -> String {
    blocks
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

fn cut(text: &str, max: usize) -> (&str, bool) {
    if text.len() <= max {
        return (text, false);
    }
    let mut at = max;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    (&text[..at], true)
}
