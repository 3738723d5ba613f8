//! Anthropic Messages.

use serde_json::{Value, json};

use super::Outgoing;
use crate::conversation::{Conversation, ReadConversationError, text_of};
use crate::sse::Frame;
use crate::tools::Tool;

/// Reads `POST /v1/messages`.
pub(crate) fn read(body: &Value) -> Result<Conversation, ReadConversationError> {
    let mut talk = Conversation::from_common(body)?;
    let messages = body.get("messages").and_then(Value::as_array);
    for message in messages.ok_or(ReadConversationError::Field("messages"))? {
        if message["role"] == "user" {
            read_user(&message["content"], &mut talk);
        }
    }
    let tools = body
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    talk.tools = tools.filter_map(tool).collect();
    let formats = ["/output_config/format", "/output_format"];
    let format = formats.iter().find_map(|path| body.pointer(path));
    talk.json = format.map(|format| format["schema"].clone());
    talk.thinking = matches!(
        body["thinking"]["type"].as_str(),
        Some("enabled" | "adaptive")
    );
    Ok(talk)
}

fn read_user(content: &Value, talk: &mut Conversation) {
    let Some(blocks) = content.as_array() else {
        talk.user_text(&text_of(content), false);
        return;
    };
    let beside_result = blocks.iter().any(|block| block["type"] == "tool_result");
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_result") => {
                let failed = block["is_error"].as_bool().unwrap_or(false);
                talk.tool_result(&text_of(&block["content"]), failed);
            }
            Some("text") => talk.user_text(&text_of(block), beside_result),
            _ => {}
        }
    }
}

/// Tools without a schema are run by the vendor and cannot be called by a script; those that
/// load later are not callable yet.
fn tool(tool: &Value) -> Option<Tool> {
    let schema = tool.get("input_schema")?.clone();
    let deferred = tool["defer_loading"].as_bool().unwrap_or(false);
    let name = tool.get("name")?.as_str()?.to_owned();
    (!deferred).then_some(Tool { name, schema })
}

/// The plain answer.
pub(crate) fn whole(out: &Outgoing<'_>) -> Value {
    let mut message = envelope(out);
    message["content"] = blocks(out).into();
    message["stop_reason"] = stop_reason(out).into();
    message["usage"]["output_tokens"] = out.answer.tokens().into();
    message
}

/// The streamed answer.
pub(crate) fn frames(out: &Outgoing<'_>) -> Vec<Frame> {
    let start = json!({"type": "message_start", "message": envelope(out)});
    let mut frames = vec![Frame::named("message_start", &start)];
    for (index, block) in blocks(out).iter().enumerate() {
        block_frames(index, block, out, &mut frames);
    }
    let delta = json!({"type": "message_delta",
        "delta": {"stop_reason": stop_reason(out), "stop_sequence": null},
        "usage": {"input_tokens": out.input_tokens, "output_tokens": out.answer.tokens()}});
    frames.push(Frame::named("message_delta", &delta));
    frames.push(Frame::named(
        "message_stop",
        &json!({"type": "message_stop"}),
    ));
    frames
}

fn envelope(out: &Outgoing<'_>) -> Value {
    json!({"id": format!("msg_{}", out.id), "type": "message", "role": "assistant",
        "model": out.talk.model, "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": out.input_tokens, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": 1}})
}

fn stop_reason(out: &Outgoing<'_>) -> &'static str {
    if out.answer.call.is_some() {
        "tool_use"
    } else {
        "end_turn"
    }
}

fn blocks(out: &Outgoing<'_>) -> Vec<Value> {
    let mut blocks = Vec::new();
    if let Some(thought) = out.answer.thought.filter(|_| out.talk.thinking) {
        blocks.push(json!({"type": "thinking", "thinking": thought, "signature": "c2NyaXB0ZWQ="}));
    }
    if !out.answer.text.is_empty() {
        blocks.push(json!({"type": "text", "text": out.answer.text}));
    }
    if let Some(call) = &out.answer.call {
        let id = format!("toolu_{}", out.id);
        blocks.push(
            json!({"type": "tool_use", "id": id, "name": call.name, "input": call.arguments}),
        );
    }
    blocks
}

fn block_frames(index: usize, block: &Value, out: &Outgoing<'_>, frames: &mut Vec<Frame>) {
    let delta = |delta: Value| {
        let data = json!({"type": "content_block_delta", "index": index, "delta": delta});
        Frame::named("content_block_delta", &data)
    };
    let mut opening = block.clone();
    let mut deltas = Vec::new();
    match block["type"].as_str() {
        Some("thinking") => {
            (opening["thinking"], opening["signature"]) = ("".into(), "".into());
            deltas.push(delta(
                json!({"type": "thinking_delta", "thinking": block["thinking"]}),
            ));
            deltas.push(delta(
                json!({"type": "signature_delta", "signature": block["signature"]}),
            ));
        }
        Some("tool_use") => {
            opening["input"] = json!({});
            let whole = block["input"].to_string();
            // In two parts, as a real model never sends arguments in one.
            let middle = whole.char_indices().nth(whole.chars().count() / 2);
            let (first, second) = whole.split_at(middle.map_or(0, |(at, _)| at));
            for part in [first, second] {
                deltas.push(delta(
                    json!({"type": "input_json_delta", "partial_json": part}),
                ));
            }
        }
        _ => {
            opening["text"] = "".into();
            let word = |word| delta(json!({"type": "text_delta", "text": word}));
            deltas.extend(
                out.answer
                    .words()
                    .map(|text| word(text).paced(out.answer.slow)),
            );
        }
    }
    let start = json!({"type": "content_block_start", "index": index, "content_block": opening});
    frames.push(Frame::named("content_block_start", &start));
    frames.append(&mut deltas);
    let stop = json!({"type": "content_block_stop", "index": index});
    frames.push(Frame::named("content_block_stop", &stop));
}

/// `POST /v1/messages/count_tokens`.
pub(crate) fn count(tokens: usize) -> Value {
    json!({"input_tokens": tokens})
}

/// An error.
pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}
