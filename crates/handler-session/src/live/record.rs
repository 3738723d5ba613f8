//! The records of the event log, without `seq` and `t`, which the log adds.

use handler_types::session::StopHow;
use serde_json::{Map, Value, json};

type Record = Map<String, Value>;

fn record(value: Value) -> Record {
    match value {
        Value::Object(map) => map,
        _ => Record::new(),
    }
}

fn at(mut record: Record, offset: Option<u64>) -> Record {
    if let Some(offset) = offset {
        record.insert("o".to_owned(), json!(offset));
    }
    record
}

/// An update.
#[must_use]
pub(crate) fn update(update: Value, offset: Option<u64>) -> Record {
    at(record(json!({"kind": "update", "update": update})), offset)
}

/// A turn begins.
#[must_use]
pub(crate) fn turn_start() -> Record {
    record(json!({"kind": "turn", "phase": "start"}))
}

/// How a turn ended.
#[derive(Debug, Default)]
pub(crate) struct TurnEnd<'a> {
    /// As the agent says, or a word of ours.
    pub(crate) reason: &'a str,
    /// What it used, where the agent told.
    pub(crate) usage: Option<Value>,
    /// What went wrong.
    pub(crate) error: Option<&'a str>,
    /// Of the agent's answer.
    pub(crate) offset: Option<u64>,
}

/// A turn ends.
#[must_use]
pub(crate) fn turn_end(turn: TurnEnd<'_>) -> Record {
    let mut end = record(json!({"kind": "turn", "phase": "end", "stopReason": turn.reason}));
    if let Some(usage) = turn.usage {
        end.insert("usage".to_owned(), usage);
    }
    if let Some(error) = turn.error {
        end.insert("error".to_owned(), json!(error));
    }
    at(end, turn.offset)
}

/// The agent is ready.
#[must_use]
pub(crate) fn started(offset: Option<u64>) -> Record {
    at(
        record(json!({"kind": "lifecycle", "event": "started"})),
        offset,
    )
}

/// The session stopped.
#[must_use]
pub(crate) fn stopped(how: StopHow, detail: &str) -> Record {
    record(json!({"kind": "lifecycle", "event": "stopped", "how": how, "detail": detail}))
}

/// The agent asks.
#[must_use]
pub(crate) fn permission_request(pending: &super::Pending, offset: u64) -> Record {
    let mut asked = record(json!({
        "kind": "permission",
        "phase": "request",
        "requestId": pending.id,
        "request": pending.kind,
    }));
    if let Some(id) = &pending.tool_call_id {
        asked.insert("toolCallId".to_owned(), json!(id));
    }
    asked.insert("title".to_owned(), json!(pending.title));
    asked.insert("options".to_owned(), json!(pending.options));
    at(asked, Some(offset))
}

/// A question is settled.
#[must_use]
pub(crate) fn permission_resolved(
    pending: &super::Pending,
    outcome: &Value,
    by: &str,
    offset: Option<u64>,
) -> Record {
    let mut settled = record(json!({
        "kind": "permission",
        "phase": "resolved",
        "requestId": pending.id,
    }));
    if let Some(id) = &pending.tool_call_id {
        settled.insert("toolCallId".to_owned(), json!(id));
    }
    settled.insert("outcome".to_owned(), outcome.clone());
    settled.insert("by".to_owned(), json!(by));
    at(settled, offset)
}
