//! Gemini `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use super::Outgoing;
use crate::conversation::{Conversation, ReadConversationError, text_of};
use crate::tools::Tool;

/// Reads a `generateContent` body. Model and streaming are in the path, not here.
pub(crate) fn read(body: &Value) -> Result<Conversation, ReadConversationError> {
    let mut talk = Conversation::from_common(body)?;
    let contents = body.get("contents").and_then(Value::as_array);
    for content in contents.ok_or(ReadConversationError::Field("contents"))? {
        if content["role"] != "model" {
            read_parts(&content["parts"], &mut talk);
        }
    }
    let tools = body
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let lists = tools.filter_map(|tool| tool.get("functionDeclarations")?.as_array());
    talk.tools = lists.flatten().filter_map(tool).collect();
    let config = &body["generationConfig"];
    if config["responseMimeType"] == "application/json" {
        let names = ["responseJsonSchema", "responseSchema"];
        let schema = names.iter().find_map(|name| config.get(name));
        talk.json = Some(schema.cloned().unwrap_or(Value::Null));
    }
    Ok(talk)
}

fn read_parts(parts: &Value, talk: &mut Conversation) {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let beside_result = parts
        .iter()
        .any(|part| part.get("functionResponse").is_some());
    for part in parts {
        if let Some(result) = part.get("functionResponse") {
            let failed = result["response"].get("error").is_some();
            talk.tool_result(&result_text(&result["response"]), failed);
        } else if part.get("text").is_some() {
            talk.user_text(&text_of(part), beside_result);
        }
    }
}

fn result_text(response: &Value) -> String {
    let named = ["output", "error", "result"]
        .iter()
        .find_map(|name| response.get(name)?.as_str());
    named.map_or_else(|| response.to_string(), str::to_owned)
}

fn tool(declaration: &Value) -> Option<Tool> {
    let name = declaration.get("name")?.as_str()?.to_owned();
    let schemas = ["parametersJsonSchema", "parameters"];
    let schema = schemas.iter().find_map(|name| declaration.get(name));
    Some(Tool {
        name,
        schema: schema.cloned().unwrap_or(Value::Null),
    })
}

/// The plain answer.
pub(crate) fn whole(out: &Outgoing<'_>) -> Value {
    let text = (!out.answer.text.is_empty()).then(|| json!({"text": out.answer.text}));
    let parts: Vec<_> = [text, call_part(out)].into_iter().flatten().collect();
    let mut whole = chunk(out, parts);
    finish(out, &mut whole);
    whole
}

/// The streamed answer: chunks, and whether each is paced.
pub(crate) fn chunks(out: &Outgoing<'_>) -> Vec<(Value, bool)> {
    let words = out.answer.words().map(|word| vec![json!({"text": word})]);
    let mut chunks: Vec<_> = words
        .map(|parts| (chunk(out, parts), out.answer.slow))
        .collect();
    if let Some(part) = call_part(out) {
        chunks.push((chunk(out, vec![part]), false));
    }
    match chunks.last_mut() {
        Some((last, _)) => finish(out, last),
        None => chunks.push((whole(out), false)),
    }
    chunks
}

fn chunk(out: &Outgoing<'_>, parts: Vec<Value>) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "modelVersion": out.talk.model, "responseId": out.id})
}

fn call_part(out: &Outgoing<'_>) -> Option<Value> {
    let call = out.answer.call.as_ref()?;
    let id = format!("call_{}", out.id);
    Some(json!({"functionCall": {"id": id, "name": call.name, "args": call.arguments}}))
}

fn finish(out: &Outgoing<'_>, last: &mut Value) {
    let (input, output) = (out.input_tokens, out.answer.tokens());
    last["candidates"][0]["finishReason"] = "STOP".into();
    last["usageMetadata"] = json!({"promptTokenCount": input, "candidatesTokenCount": output,
        "totalTokenCount": input + output});
}

/// `:countTokens`.
pub(crate) fn count(tokens: usize) -> Value {
    json!({"totalTokens": tokens})
}

/// An error.
pub(crate) fn error(status: u16, message: &str) -> Value {
    let name = match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    };
    json!({"error": {"code": status, "message": message, "status": name}})
}
