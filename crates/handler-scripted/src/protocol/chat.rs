//! OpenAI Chat Completions.

use serde_json::{Value, json};

use super::Outgoing;
use crate::conversation::{Conversation, ReadConversationError, text_of};
use crate::sse::Frame;
use crate::tools::Tool;

/// Reads `POST /v1/chat/completions`.
pub(crate) fn read(body: &Value) -> Result<Conversation, ReadConversationError> {
    let mut talk = Conversation::from_common(body)?;
    let messages = body.get("messages").and_then(Value::as_array);
    for message in messages.ok_or(ReadConversationError::Field("messages"))? {
        match message["role"].as_str() {
            Some("user") => read_user(&message["content"], &mut talk),
            Some("tool" | "function") => talk.tool_result(&text_of(&message["content"]), false),
            _ => {}
        }
    }
    let tools = body
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    talk.tools = tools
        .filter_map(|tool| function(tool.get("function")?))
        .collect();
    talk.json = match body["response_format"]["type"].as_str() {
        Some("json_schema") => Some(body["response_format"]["json_schema"]["schema"].clone()),
        Some("json_object") => Some(Value::Null),
        _ => None,
    };
    talk.thinking = true;
    talk.stream_usage = body["stream_options"]["include_usage"]
        .as_bool()
        .unwrap_or(false);
    Ok(talk)
}

fn read_user(content: &Value, talk: &mut Conversation) {
    match content.as_array() {
        Some(blocks) => blocks
            .iter()
            .for_each(|block| talk.user_text(&text_of(block), false)),
        None => talk.user_text(&text_of(content), false),
    }
}

/// A `{name, parameters}` object, as Chat nests it and Responses has it flat.
pub(super) fn function(function: &Value) -> Option<Tool> {
    let name = function.get("name")?.as_str()?.to_owned();
    let schema = function.get("parameters").cloned().unwrap_or(Value::Null);
    Some(Tool { name, schema })
}

/// The plain answer.
pub(crate) fn whole(out: &Outgoing<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": out.answer.text});
    if let Some(thought) = out.answer.thought {
        message["reasoning_content"] = thought.into();
    }
    if let Some(call) = &out.answer.call {
        let arguments = call.arguments.to_string();
        message["tool_calls"] = json!([{"id": call_id(out), "type": "function",
            "function": {"name": call.name, "arguments": arguments}}]);
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason(out)});
    let mut whole = envelope(out, "chat.completion");
    whole["choices"] = json!([choice]);
    whole["usage"] = usage(out);
    whole
}

/// The streamed answer.
pub(crate) fn frames(out: &Outgoing<'_>) -> Vec<Frame> {
    let chunk = |delta: Value, finish: Option<&str>| {
        let mut chunk = envelope(out, "chat.completion.chunk");
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        Frame::data(&chunk)
    };
    let mut frames = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    if let Some(thought) = out.answer.thought {
        frames.push(chunk(json!({"reasoning_content": thought}), None));
    }
    let word = |word: &str| chunk(json!({"content": word}), None).paced(out.answer.slow);
    frames.extend(out.answer.words().map(word));
    if let Some(call) = &out.answer.call {
        let opening = json!({"tool_calls": [{"index": 0, "id": call_id(out), "type": "function",
            "function": {"name": call.name, "arguments": ""}}]});
        let arguments = json!({"tool_calls": [{"index": 0,
            "function": {"arguments": call.arguments.to_string()}}]});
        frames.push(chunk(opening, None));
        frames.push(chunk(arguments, None));
    }
    frames.push(chunk(json!({}), Some(finish_reason(out))));
    if out.talk.stream_usage {
        let mut last = envelope(out, "chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = usage(out);
        frames.push(Frame::data(&last));
    }
    frames.push(Frame::literal("[DONE]"));
    frames
}

fn envelope(out: &Outgoing<'_>, object: &str) -> Value {
    json!({"id": format!("chatcmpl-{}", out.id), "object": object, "created": out.created,
        "model": out.talk.model})
}

fn call_id(out: &Outgoing<'_>) -> String {
    format!("call_{}", out.id)
}

fn finish_reason(out: &Outgoing<'_>) -> &'static str {
    if out.answer.call.is_some() {
        "tool_calls"
    } else {
        "stop"
    }
}

fn usage(out: &Outgoing<'_>) -> Value {
    let (input, output) = (out.input_tokens, out.answer.tokens());
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

/// An error; Responses has the same shape.
pub(crate) fn error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", json!("invalid_api_key")),
        404 => ("invalid_request_error", json!("not_found")),
        429 => ("rate_limit_error", json!("rate_limit_exceeded")),
        500.. => ("server_error", Value::Null),
        _ => ("invalid_request_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}
