//! Strict readers of what each protocol answers, plain and streamed.

use serde_json::{Value, json};

use crate::requests::Protocol;

/// What an answer said.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) call: Option<(String, Value)>,
    pub(crate) finish: String,
    pub(crate) tokens: (u64, u64),
}

/// Reads an answer in one piece.
pub(crate) fn plain(protocol: Protocol, body: &Value) -> Said {
    match protocol {
        Protocol::Anthropic => anthropic_message(body),
        Protocol::Chat => {
            let (choice, usage) = (&body["choices"][0], &body["usage"]);
            let function = &choice["message"]["tool_calls"][0]["function"];
            Said {
                text: string(&choice["message"]["content"]),
                call: function["name"]
                    .as_str()
                    .map(|name| (name.into(), parsed(&function["arguments"]))),
                finish: string(&choice["finish_reason"]),
                tokens: (
                    number(&usage["prompt_tokens"]),
                    number(&usage["completion_tokens"]),
                ),
            }
        }
        Protocol::Responses => responses_object(body),
        Protocol::Gemini => gemini_chunks(std::slice::from_ref(body)),
    }
}

fn anthropic_message(body: &Value) -> Said {
    let mut said = Said {
        finish: string(&body["stop_reason"]),
        tokens: (
            number(&body["usage"]["input_tokens"]),
            number(&body["usage"]["output_tokens"]),
        ),
        ..Said::default()
    };
    for block in body["content"].as_array().expect("content") {
        match block["type"].as_str().expect("a type") {
            "text" => said.text.push_str(&string(&block["text"])),
            "tool_use" => said.call = Some((string(&block["name"]), block["input"].clone())),
            other => panic!("unexpected block {other}"),
        }
    }
    said
}

fn responses_object(body: &Value) -> Said {
    let usage = &body["usage"];
    let mut said = Said {
        finish: string(&body["status"]),
        tokens: (
            number(&usage["input_tokens"]),
            number(&usage["output_tokens"]),
        ),
        ..Said::default()
    };
    for item in body["output"].as_array().expect("output") {
        match item["type"].as_str().expect("a type") {
            "message" => said.text.push_str(&string(&item["content"][0]["text"])),
            "function_call" => {
                said.call = Some((string(&item["name"]), parsed(&item["arguments"])));
            }
            other => panic!("unexpected item {other}"),
        }
    }
    said
}

/// Puts the chunks of a Gemini answer together.
pub(crate) fn gemini_chunks(chunks: &[Value]) -> Said {
    let mut said = Said::default();
    for chunk in chunks {
        assert!(said.finish.is_empty(), "a chunk after the finish: {chunk}");
        let candidate = &chunk["candidates"][0];
        for part in candidate["content"]["parts"].as_array().expect("parts") {
            said.text
                .push_str(part["text"].as_str().unwrap_or_default());
            if let Some(call) = part.get("functionCall") {
                said.call = Some((string(&call["name"]), call["args"].clone()));
            }
        }
        if let Some(finish) = candidate["finishReason"].as_str() {
            let usage = &chunk["usageMetadata"];
            said.finish = finish.into();
            said.tokens = (
                number(&usage["promptTokenCount"]),
                number(&usage["candidatesTokenCount"]),
            );
        }
    }
    said
}

/// Reads a streamed answer, insisting on the order of its events.
pub(crate) fn streamed(protocol: Protocol, body: &str) -> Said {
    let events = events(body);
    match protocol {
        Protocol::Anthropic => anthropic_stream(&events),
        Protocol::Chat => chat_stream(&events),
        Protocol::Responses => responses_stream(&events),
        Protocol::Gemini => {
            let chunks: Vec<Value> = events.iter().map(|(_, data)| json_of(data)).collect();
            gemini_chunks(&chunks)
        }
    }
}

/// Name (if any) and data of each event.
pub(crate) fn events(body: &str) -> Vec<(Option<String>, String)> {
    let body = body
        .strip_suffix("\n\n")
        .expect("the last event is complete");
    let event = |block: &str| {
        let (mut name, mut data) = (None, None);
        for line in block.lines() {
            match line.split_once(": ").expect("a field") {
                ("event", value) => name = Some(value.to_owned()),
                ("data", value) => data = Some(value.to_owned()),
                (other, _) => panic!("unexpected field {other}"),
            }
        }
        (name, data.expect("data"))
    };
    body.split("\n\n").map(event).collect()
}

fn anthropic_stream(events: &[(Option<String>, String)]) -> Said {
    let mut message = Value::Null;
    let mut arguments = String::new();
    let mut open = None;
    for (name, data) in events {
        let data = json_of(data);
        assert_eq!(
            name.as_deref(),
            data["type"].as_str(),
            "the event's name is its type"
        );
        let index = data["index"].as_u64().unwrap_or_default() as usize;
        match data["type"].as_str().expect("a type") {
            "message_start" => message = data["message"].clone(),
            "content_block_start" => {
                assert_eq!(
                    (open, index),
                    (None, message["content"].as_array().expect("a list").len())
                );
                open = Some(index);
                message["content"]
                    .as_array_mut()
                    .expect("a list")
                    .push(data["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(open, Some(index));
                let block = &mut message["content"][index];
                match data["delta"]["type"].as_str().expect("a type") {
                    "text_delta" => {
                        block["text"] =
                            (string(&block["text"]) + &string(&data["delta"]["text"])).into();
                    }
                    "input_json_delta" => arguments += &string(&data["delta"]["partial_json"]),
                    other => panic!("unexpected delta {other}"),
                }
            }
            "content_block_stop" => {
                assert_eq!(open.take(), Some(index));
                if message["content"][index]["type"] == "tool_use" {
                    message["content"][index]["input"] = json_of(&arguments);
                }
            }
            "message_delta" => {
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                message["usage"] = data["usage"].clone();
            }
            "message_stop" => return anthropic_message(&message),
            other => panic!("unexpected event {other}"),
        }
    }
    panic!("the stream has no end")
}

fn chat_stream(events: &[(Option<String>, String)]) -> Said {
    let mut said = Said::default();
    let mut call = None;
    let mut arguments = String::new();
    for (name, data) in events {
        assert_eq!(*name, None);
        if data == "[DONE]" {
            said.call = call.map(|name| (name, json_of(&arguments)));
            return said;
        }
        let chunk = json_of(data);
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let choice = &chunk["choices"][0];
        said.text += choice["delta"]["content"].as_str().unwrap_or_default();
        let function = &choice["delta"]["tool_calls"][0]["function"];
        call = call.or_else(|| function["name"].as_str().map(str::to_owned));
        arguments += function["arguments"].as_str().unwrap_or_default();
        said.finish += choice["finish_reason"].as_str().unwrap_or_default();
        if let Some(usage) = chunk.get("usage") {
            said.tokens = (
                number(&usage["prompt_tokens"]),
                number(&usage["completion_tokens"]),
            );
        }
    }
    panic!("the stream has no end")
}

fn responses_stream(events: &[(Option<String>, String)]) -> Said {
    let (mut text, mut arguments, mut items) = (String::new(), String::new(), Vec::new());
    for (nth, (name, data)) in events.iter().enumerate() {
        let data = json_of(data);
        assert_eq!(name.as_deref(), data["type"].as_str());
        assert_eq!(data["sequence_number"], nth);
        match data["type"].as_str().expect("a type") {
            "response.output_text.delta" => text += &string(&data["delta"]),
            "response.output_text.done" => assert_eq!(data["text"], *text),
            "response.function_call_arguments.delta" => arguments += &string(&data["delta"]),
            "response.function_call_arguments.done" => assert_eq!(data["arguments"], *arguments),
            "response.output_item.done" => {
                assert_eq!(data["output_index"], items.len());
                items.push(data["item"].clone());
            }
            "response.completed" => {
                assert_eq!(nth, events.len() - 1);
                assert_eq!(data["response"]["output"], json!(items));
                return responses_object(&data["response"]);
            }
            _ => {}
        }
    }
    panic!("the stream has no end")
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn string(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no string: {value}"))
        .to_owned()
}

fn parsed(value: &Value) -> Value {
    json_of(&string(value))
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}
