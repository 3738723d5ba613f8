//! OpenAI Responses.

use serde_json::{Value, json};

use super::Outgoing;
use super::chat::function;
use crate::conversation::{Conversation, ReadConversationError, text_of};
use crate::sse::Frame;

/// Reads `POST /v1/responses`.
pub(crate) fn read(body: &Value) -> Result<Conversation, ReadConversationError> {
    let mut talk = Conversation::from_common(body)?;
    match body.get("input") {
        Some(Value::String(text)) => talk.user_text(text, false),
        Some(Value::Array(items)) => items.iter().for_each(|item| read_item(item, &mut talk)),
        _ => return Err(ReadConversationError::Field("input")),
    }
    let tools = body
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    talk.tools = tools
        .filter(|tool| tool["type"] == "function")
        .filter_map(function)
        .collect();
    talk.json = match body["text"]["format"]["type"].as_str() {
        Some("json_schema") => Some(body["text"]["format"]["schema"].clone()),
        Some("json_object") => Some(Value::Null),
        _ => None,
    };
    Ok(talk)
}

fn read_item(item: &Value, talk: &mut Conversation) {
    let kind = item["type"].as_str().unwrap_or("message");
    if kind.ends_with("_call_output") {
        talk.tool_result(&text_of(&item["output"]), false);
    } else if kind == "message" && item["role"] == "user" {
        match item["content"].as_array() {
            Some(parts) => parts
                .iter()
                .for_each(|part| talk.user_text(&text_of(part), false)),
            None => talk.user_text(&text_of(&item["content"]), false),
        }
    }
}

/// The plain answer.
pub(crate) fn whole(out: &Outgoing<'_>) -> Value {
    let mut response = envelope(out, "completed");
    response["output"] = [message(out, "completed"), call(out, "completed")]
        .into_iter()
        .flatten()
        .collect();
    let (input, output) = (out.input_tokens, out.answer.tokens());
    response["usage"] = json!({"input_tokens": input, "output_tokens": output,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output});
    response
}

fn envelope(out: &Outgoing<'_>, status: &str) -> Value {
    json!({"id": format!("resp_{}", out.id), "object": "response", "created_at": out.created,
        "status": status, "error": null, "incomplete_details": null, "model": out.talk.model,
        "output": [], "parallel_tool_calls": false, "tool_choice": "auto", "tools": [],
        "usage": null})
}

fn message(out: &Outgoing<'_>, status: &str) -> Option<Value> {
    let text = &out.answer.text;
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    let content = if status == "completed" {
        json!([part])
    } else {
        json!([])
    };
    (!text.is_empty()).then(|| {
        json!({"type": "message", "id": format!("msg_{}", out.id), "status": status,
            "role": "assistant", "content": content})
    })
}

fn call(out: &Outgoing<'_>, status: &str) -> Option<Value> {
    let call = out.answer.call.as_ref()?;
    let arguments = if status == "completed" {
        call.arguments.to_string()
    } else {
        String::new()
    };
    Some(
        json!({"type": "function_call", "id": format!("fc_{}", out.id), "status": status,
        "call_id": format!("call_{}", out.id), "name": call.name, "arguments": arguments}),
    )
}

/// The streamed answer.
pub(crate) fn frames(out: &Outgoing<'_>) -> Vec<Frame> {
    let mut events = Events::default();
    for kind in ["response.created", "response.in_progress"] {
        events.push(
            kind,
            json!({"response": envelope(out, "in_progress")}),
            false,
        );
    }
    if let (Some(opening), Some(done)) = (message(out, "in_progress"), message(out, "completed")) {
        text_events(out, &opening, &done, &mut events);
    }
    if let (Some(opening), Some(done)) = (call(out, "in_progress"), call(out, "completed")) {
        let index = usize::from(!out.answer.text.is_empty());
        call_events(index, &opening, &done, &mut events);
    }
    events.push("response.completed", json!({"response": whole(out)}), false);
    events.frames
}

/// Frames with the running number each event of this protocol carries.
#[derive(Default)]
struct Events {
    frames: Vec<Frame>,
}

impl Events {
    fn push(&mut self, kind: &'static str, mut data: Value, paced: bool) {
        data["type"] = kind.into();
        data["sequence_number"] = self.frames.len().into();
        self.frames.push(Frame::named(kind, &data).paced(paced));
    }
}

fn text_events(out: &Outgoing<'_>, opening: &Value, done: &Value, events: &mut Events) {
    let id = &opening["id"];
    events.push(
        "response.output_item.added",
        json!({"output_index": 0, "item": opening}),
        false,
    );
    let place = |mut data: Value| {
        (data["item_id"], data["output_index"], data["content_index"]) =
            (id.clone(), 0.into(), 0.into());
        data
    };
    let empty = json!({"part": {"type": "output_text", "text": "", "annotations": []}});
    events.push("response.content_part.added", place(empty), false);
    for word in out.answer.words() {
        let delta = place(json!({"delta": word}));
        events.push("response.output_text.delta", delta, out.answer.slow);
    }
    let text = place(json!({"text": out.answer.text}));
    events.push("response.output_text.done", text, false);
    let part = place(json!({"part": done["content"][0]}));
    events.push("response.content_part.done", part, false);
    events.push(
        "response.output_item.done",
        json!({"output_index": 0, "item": done}),
        false,
    );
}

fn call_events(index: usize, opening: &Value, done: &Value, events: &mut Events) {
    let (id, arguments) = (&opening["id"], &done["arguments"]);
    let item = |item: &Value| json!({"output_index": index, "item": item});
    events.push("response.output_item.added", item(opening), false);
    let delta = json!({"item_id": id, "output_index": index, "delta": arguments});
    events.push("response.function_call_arguments.delta", delta, false);
    let whole = json!({"item_id": id, "output_index": index, "arguments": arguments});
    events.push("response.function_call_arguments.done", whole, false);
    events.push("response.output_item.done", item(done), false);
}
