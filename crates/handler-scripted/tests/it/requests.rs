//! The same conversation as a request of each protocol.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Protocol {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

pub(crate) const ALL: [Protocol; 4] = [
    Protocol::Anthropic,
    Protocol::Chat,
    Protocol::Responses,
    Protocol::Gemini,
];

/// A tool list in neutral form: name and schema.
pub(crate) type Tools = [(&'static str, Value)];

/// Path and body of a request whose history is one human text and these tool results.
pub(crate) fn request(
    protocol: Protocol,
    human: &str,
    results: &[&str],
    tools: &Tools,
    stream: bool,
) -> (String, Value) {
    match protocol {
        Protocol::Anthropic => (
            "/v1/messages?beta=true".into(),
            anthropic(human, results, tools, stream),
        ),
        Protocol::Chat => (
            "/v1/chat/completions".into(),
            chat(human, results, tools, stream),
        ),
        Protocol::Responses => (
            "/v1/responses".into(),
            responses(human, results, tools, stream),
        ),
        Protocol::Gemini => {
            let verb = if stream {
                "streamGenerateContent?alt=sse"
            } else {
                "generateContent"
            };
            (
                format!("/v1beta/models/m-1:{verb}"),
                gemini(human, results, tools),
            )
        }
    }
}

fn anthropic(human: &str, results: &[&str], tools: &Tools, stream: bool) -> Value {
    let reminder = "<system-reminder>PLAN:error:418</system-reminder>";
    let mut messages = vec![json!({"role": "user", "content": [
        {"type": "text", "text": reminder}, {"type": "text", "text": human}]})];
    for (nth, result) in results.iter().enumerate() {
        let id = format!("toolu_{nth}");
        messages.push(json!({"role": "assistant",
            "content": [{"type": "tool_use", "id": id, "name": "x", "input": {}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": result}]},
            {"type": "text", "text": reminder}]}));
    }
    let tools: Vec<_> = tools
        .iter()
        .map(|(n, s)| json!({"name": n, "input_schema": s}))
        .collect();
    json!({"model": "m-1", "max_tokens": 9, "messages": messages, "tools": tools, "stream": stream})
}

fn chat(human: &str, results: &[&str], tools: &Tools, stream: bool) -> Value {
    let mut messages = vec![
        json!({"role": "system", "content": "PLAN:error:418 is not for you"}),
        json!({"role": "user", "content": [{"type": "text", "text": human}]}),
    ];
    for result in results {
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": []}));
        messages.push(json!({"role": "tool", "tool_call_id": "c", "content": result}));
    }
    let function = |(name, schema): &(&str, Value)| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let tools: Vec<_> = tools.iter().map(function).collect();
    json!({"model": "m-1", "messages": messages, "tools": tools, "stream": stream,
        "stream_options": {"include_usage": true}})
}

fn responses(human: &str, results: &[&str], tools: &Tools, stream: bool) -> Value {
    let text = |text: &str| json!([{"type": "input_text", "text": text}]);
    let mut input = vec![
        json!({"type": "message", "role": "developer", "content": text("PLAN:error:418")}),
        json!({"type": "message", "role": "user", "content": text(human)}),
    ];
    for result in results {
        input
            .push(json!({"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}));
        input.push(json!({"type": "function_call_output", "call_id": "c", "output": result}));
    }
    let function = |(name, schema): &(&str, Value)| json!({"type": "function", "name": name, "parameters": schema});
    let tools: Vec<_> = tools.iter().map(function).collect();
    json!({"model": "m-1", "input": input, "tools": tools, "stream": stream})
}

fn gemini(human: &str, results: &[&str], tools: &Tools) -> Value {
    let mut contents = vec![json!({"role": "user", "parts": [{"text": human}]})];
    for result in results {
        contents
            .push(json!({"role": "model", "parts": [{"functionCall": {"name": "x", "args": {}}}]}));
        contents.push(json!({"role": "user", "parts": [
            {"functionResponse": {"name": "x", "response": {"output": result}}}]}));
    }
    let declare =
        |(name, schema): &(&str, Value)| json!({"name": name, "parametersJsonSchema": schema});
    let declarations: Vec<_> = tools.iter().map(declare).collect();
    json!({"contents": contents, "tools": [{"functionDeclarations": declarations}]})
}
