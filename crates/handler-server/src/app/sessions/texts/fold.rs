//! A session's log as messages and turns: what is said in chunks is put together, what a turn used is counted.
//!
//! Pure. A batch ends only where a turn or the session's agent ended, so that nothing is cut in two.

use handler_store::rows::{Batch, Indexed, Message, Role, TurnUsage};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Longest message kept for search, bytes.
const LONGEST: usize = 64 * 1024;
/// Millionths of a unit of a currency.
const MILLION: f64 = 1_000_000.0;

/// What is being put together.
#[derive(Debug, Default)]
pub(super) struct Fold {
    batch: Batch,
    /// Messages and turns since the last boundary.
    since: Batch,
    open: Option<Message>,
    /// The running cost told last.
    told: Option<(u64, String)>,
}

#[derive(Deserialize)]
struct Event<'a> {
    seq: u64,
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    phase: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    update: Option<&'a RawValue>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    #[serde(borrow)]
    session_update: Cow<'a, str>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    cost: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
struct Money {
    amount: f64,
    currency: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
    cached_read_tokens: u64,
    cached_write_tokens: u64,
}

impl Fold {
    /// Goes on from where a log is in.
    pub(super) fn new(from: Indexed) -> Self {
        Self {
            batch: Batch {
                indexed: from,
                ..Batch::default()
            },
            ..Self::default()
        }
    }

    /// Takes a line; `end` is where the next one starts. A line that cannot be read is passed over.
    pub(super) fn take(&mut self, line: &[u8], end: u64) {
        let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else {
            return;
        };
        match (event.kind.as_ref(), event.phase.as_deref()) {
            ("update", _) => self.update(event.seq, event.update),
            ("turn", Some("end")) => {
                self.close();
                self.turn(&event);
                self.boundary(event.seq, end);
            }
            ("lifecycle", _) => {
                self.close();
                self.boundary(event.seq, end);
            }
            _ => self.close(),
        }
    }

    /// What is whole, and how much that is; more may follow.
    pub(super) fn messages(&self) -> usize {
        self.batch.messages.len()
    }

    /// Gives what is whole.
    pub(super) fn give(&mut self) -> Batch {
        let indexed = self.batch.indexed.clone();
        std::mem::replace(
            &mut self.batch,
            Batch {
                indexed,
                ..Batch::default()
            },
        )
    }

    fn update(&mut self, seq: u64, update: Option<&RawValue>) {
        let Some(update) =
            update.and_then(|raw| serde_json::from_str::<Update<'_>>(raw.get()).ok())
        else {
            return;
        };
        match update.session_update.as_ref() {
            "user_message_chunk" => self.said(seq, Role::User, update.content),
            "agent_message_chunk" => self.said(seq, Role::Agent, update.content),
            "usage_update" => {
                let money = update
                    .cost
                    .and_then(|raw| serde_json::from_str::<Money>(raw.get()).ok());
                if let Some(money) = money.filter(|money| money.currency.len() <= 8) {
                    self.told = Some((millionths(money.amount), money.currency));
                }
            }
            _ => self.close(),
        }
    }

    fn said(&mut self, seq: u64, role: Role, content: Option<&RawValue>) {
        // Images and links have no text of their own.
        let Some(text) = content.and_then(|raw| serde_json::from_str::<Text>(raw.get()).ok())
        else {
            return;
        };
        if self.open.as_ref().is_some_and(|open| open.role != role) {
            self.close();
        }
        let open = self.open.get_or_insert_with(|| Message {
            seq,
            role,
            text: String::new(),
        });
        let room = LONGEST.saturating_sub(open.text.len());
        let mut cut = room.min(text.text.len());
        while !text.text.is_char_boundary(cut) {
            cut -= 1;
        }
        open.text.push_str(&text.text[..cut]);
    }

    fn close(&mut self) {
        self.since
            .messages
            .extend(self.open.take().filter(|open| !open.text.trim().is_empty()));
    }

    fn turn(&mut self, event: &Event<'_>) {
        let tokens = event.usage.as_ref();
        let cost = self.cost();
        let is_told = tokens.is_some() || cost > 0;
        let none = Tokens::default();
        let tokens = tokens.unwrap_or(&none);
        let currency = if is_told {
            self.batch.indexed.currency.clone()
        } else {
            String::new()
        };
        self.since.turns.push(TurnUsage {
            seq: event.seq,
            day: event.t.chars().take(10).collect(),
            input: tokens.input_tokens,
            output: tokens.output_tokens,
            cached: tokens
                .cached_read_tokens
                .saturating_add(tokens.cached_write_tokens),
            cost,
            currency,
        });
    }

    /// What was told since the last turn. Agents tell a running sum, which starts anew when they do.
    fn cost(&mut self) -> u64 {
        let Some((now, currency)) = self.told.take() else {
            return 0;
        };
        let before = &mut self.batch.indexed;
        let is_on = before.currency == currency && now >= before.cost;
        let spent = if is_on { now - before.cost } else { now };
        before.cost = now;
        before.currency = currency;
        spent
    }

    fn boundary(&mut self, seq: u64, end: u64) {
        self.batch.messages.append(&mut self.since.messages);
        self.batch.turns.append(&mut self.since.turns);
        self.batch.indexed.seq = seq;
        self.batch.indexed.bytes = end;
    }
}

/// Agents' floating sums as whole numbers; nothing negative, nothing endless.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "brought into range before"
)]
fn millionths(amount: f64) -> u64 {
    if amount.is_finite() {
        (amount * MILLION).round().clamp(0.0, 1e15) as u64
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn fold(from: Indexed, events: &[Value]) -> Fold {
        let mut fold = Fold::new(from);
        for (at, event) in events.iter().enumerate() {
            let mut event = event.clone();
            event["seq"] = json!(at + 1);
            event["t"] = json!("2026-11-30T10:00:00Z");
            fold.take(event.to_string().as_bytes(), 100 * (at as u64 + 1));
        }
        fold
    }

    fn chunk(kind: &str, text: &str) -> Value {
        json!({"kind": "update", "update": {"sessionUpdate": kind, "content": {"type": "text", "text": text}}})
    }

    fn cost(amount: f64) -> Value {
        json!({"kind": "update", "update": {"sessionUpdate": "usage_update", "used": 1, "size": 2,
            "cost": {"amount": amount, "currency": "USD"}}})
    }

    fn end(usage: &Value) -> Value {
        json!({"kind": "turn", "phase": "end", "stopReason": "end_turn", "usage": usage})
    }

    #[test]
    fn chunks_become_messages_and_other_things_part_them() {
        let tool = json!({"kind": "update", "update": {"sessionUpdate": "tool_call", "toolCallId": "1", "content": []}});
        let image = json!({"kind": "update", "update": {"sessionUpdate": "user_message_chunk",
            "content": {"type": "image", "data": "AA=="}}});
        let mut fold = fold(
            Indexed::default(),
            &[
                chunk("user_message_chunk", "please"),
                image,
                json!({"kind": "turn", "phase": "start"}),
                chunk("agent_message_chunk", "I "),
                chunk("agent_message_chunk", "look."),
                tool,
                chunk("agent_thought_chunk", "hm"),
                chunk("agent_message_chunk", "Done."),
                json!({"kind": 7}),
                end(
                    &json!({"inputTokens": 7, "outputTokens": 2, "cachedReadTokens": 3, "cachedWriteTokens": 1}),
                ),
                chunk("user_message_chunk", "not whole yet"),
            ],
        );
        let batch = fold.give();
        let said: Vec<_> = batch
            .messages
            .iter()
            .map(|m| (m.seq, m.role, m.text.as_str()))
            .collect();
        let expected = [
            (1, Role::User, "please"),
            (4, Role::Agent, "I look."),
            (8, Role::Agent, "Done."),
        ];
        assert_eq!(said, expected);
        assert_eq!((batch.indexed.seq, batch.indexed.bytes), (10, 1000));
        let turn = &batch.turns[0];
        assert_eq!(
            (
                turn.seq,
                turn.day.as_str(),
                turn.input,
                turn.output,
                turn.cached
            ),
            (10, "2026-11-30", 7, 2, 4)
        );
        assert_eq!(fold.give().messages, [], "given once");
    }

    #[test]
    fn a_running_cost_is_split_by_turns_also_when_it_starts_anew() {
        let from = Indexed {
            seq: 0,
            bytes: 0,
            cost: 1_000_000,
            currency: "USD".into(),
        };
        let nothing = Value::Null;
        let batch = fold(
            from,
            &[
                cost(1.25),
                cost(1.5),
                end(&nothing),
                end(&nothing),
                cost(0.25),
                end(&nothing),
                cost(f64::MAX),
                end(&nothing),
                cost(-3.0),
                end(&nothing),
            ],
        )
        .give();
        let costs: Vec<_> = batch.turns.iter().map(|turn| turn.cost).collect();
        assert_eq!(
            costs,
            [500_000, 0, 250_000, 1_000_000_000_000_000 - 250_000, 0]
        );
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long = "é".repeat(LONGEST);
        let mut fold = fold(
            Indexed::default(),
            &[chunk("agent_message_chunk", &long), end(&Value::Null)],
        );
        assert_eq!(fold.give().messages[0].text.len(), LONGEST);
    }
}
