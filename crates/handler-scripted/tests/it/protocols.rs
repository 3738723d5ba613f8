//! What all four protocols must do alike.

use serde_json::{Value, json};

use crate::decode::{Said, gemini_chunks, plain, streamed};
use crate::requests::{ALL, Protocol, request};
use crate::wire::{model, post};

fn tools() -> Vec<(&'static str, Value)> {
    let text = json!({"type": "string"});
    vec![
        (
            "look",
            json!({"type": "object", "properties": {"path": text}, "required": ["path"]}),
        ),
        (
            "write",
            json!({"type": "object", "required": ["path", "content"],
            "properties": {"path": text, "content": text}}),
        ),
        (
            "bash",
            json!({"type": "object", "required": ["command"],
            "properties": {"command": text, "timeout": {"type": "number"}}}),
        ),
    ]
}

/// Asks plainly and streamed, insists that both say the same, and returns it.
fn ask(protocol: Protocol, human: &str, results: &[&str]) -> Said {
    let model = model();
    let (path, body) = request(protocol, human, results, &tools(), false);
    let whole = post(&model, &path, &body);
    assert_eq!(whole.status, 200, "{protocol:?} {}", whole.body);
    let (path, body) = request(protocol, human, results, &tools(), true);
    let stream = post(&model, &path, &body);
    assert_eq!(stream.status, 200, "{protocol:?} {}", stream.body);
    assert!(stream.is_chunked(), "{}", stream.head);
    assert!(stream.head.contains("text/event-stream"), "{}", stream.head);
    let (whole, stream) = (
        plain(protocol, &whole.json()),
        streamed(protocol, &stream.body),
    );
    assert_eq!(
        (&whole.text, &whole.call, &whole.finish),
        (&stream.text, &stream.call, &stream.finish)
    );
    assert!(
        stream.tokens.0 > 0 && stream.tokens.1 > 0,
        "{protocol:?} {stream:?}"
    );
    stream
}

#[test]
fn plain_talk_gets_a_short_text_and_the_turn_ends() {
    for protocol in ALL {
        let said = ask(protocol, "hello", &[]);
        assert!(
            said.text.starts_with("Hello from the scripted model"),
            "{said:?}"
        );
        assert_eq!(said.call, None);
        let finish = match protocol {
            Protocol::Anthropic => "end_turn",
            Protocol::Chat => "stop",
            Protocol::Responses => "completed",
            Protocol::Gemini => "STOP",
        };
        assert_eq!(said.finish, finish);
    }
}

#[test]
fn a_write_plan_calls_the_write_tool_then_reports() {
    for protocol in ALL {
        let said = ask(protocol, "PLAN:write:/w/é.txt|one \"two\"", &[]);
        let expected = json!({"path": "/w/é.txt", "content": "one \"two\""});
        assert_eq!(said.call, Some(("write".into(), expected)), "{protocol:?}");
        match protocol {
            Protocol::Anthropic => assert_eq!(said.finish, "tool_use"),
            Protocol::Chat => assert_eq!(said.finish, "tool_calls"),
            Protocol::Responses | Protocol::Gemini => {}
        }
        let said = ask(protocol, "PLAN:write:/w/é.txt|one", &["written"]);
        assert_eq!(
            (said.text.as_str(), said.call),
            ("Done: /w/é.txt is written.", None)
        );
    }
}

#[test]
fn a_shell_plan_repeats_what_the_command_printed() {
    for protocol in ALL {
        let said = ask(protocol, "PLAN:shell:uname -a", &[]);
        assert_eq!(
            said.call,
            Some(("bash".into(), json!({"command": "uname -a"})))
        );
        let said = ask(protocol, "PLAN:shell:uname -a", &["Linux 6"]);
        assert_eq!(said.text, "The command said: Linux 6");
    }
}

#[test]
fn joined_plans_take_one_tool_call_per_answer() {
    let human = "PLAN:write:a THEN PLAN:shell:ls THEN PLAN:slow:3";
    for protocol in ALL {
        let names = |said: Said| said.call.map(|(name, _)| name);
        assert_eq!(names(ask(protocol, human, &[])).as_deref(), Some("write"));
        let second = ask(protocol, human, &["ok"]);
        assert!(second.text.starts_with("Done: a is written."), "{second:?}");
        assert_eq!(names(second).as_deref(), Some("bash"));
        let last = ask(protocol, human, &["ok", "a"]);
        assert_eq!(last.text, "The command said: a\n\nword1 word2 word3");
        assert_eq!(ask(protocol, human, &["ok", "a", "surplus"]).call, None);
    }
}

#[test]
fn the_demonstration_has_three_calls_and_an_end() {
    for protocol in ALL {
        let results = ["ok", "demo.txt", "403"];
        for done in 0..3 {
            assert!(
                ask(protocol, "PLAN:demo", &results[..done]).call.is_some(),
                "{done}"
            );
        }
        let last = ask(protocol, "PLAN:demo", &results);
        assert!(
            last.call.is_none() && last.text.contains("answered me with: 403"),
            "{last:?}"
        );
    }
}

#[test]
fn an_error_plan_fails_in_the_protocols_own_shape() {
    let model = model();
    for protocol in ALL {
        for stream in [false, true] {
            let (path, body) = request(protocol, "PLAN:error:429", &[], &tools(), stream);
            let answer = post(&model, &path, &body);
            assert_eq!(answer.status, 429);
            assert_shape(protocol, &answer.json(), 429);
        }
    }
}

#[test]
fn malformed_bodies_are_refused_in_the_protocols_own_shape() {
    let model = model();
    let deep = "[".repeat(100_000);
    for protocol in ALL {
        let (path, _) = request(protocol, "", &[], &[], false);
        for body in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            "{\"messages\":1,\"input\":1,\"contents\":{}}",
            &deep,
        ] {
            let answer = crate::wire::send(&model, "POST", &path, &[], body.as_bytes());
            let start: String = body.chars().take(20).collect();
            assert_eq!(answer.status, 400, "{protocol:?} {start}");
            assert_shape(protocol, &answer.json(), 400);
        }
    }
}

#[test]
fn nonsense_inside_well_formed_bodies_is_survived() {
    let model = model();
    let junk = [
        json!(null),
        json!(1),
        json!("x"),
        json!([[], {}]),
        json!({"type": []}),
    ];
    for protocol in ALL {
        for junk in &junk {
            let (path, mut body) = request(protocol, "hi", &["r"], &tools(), true);
            for name in ["messages", "input", "contents"] {
                if let Some(list) = body.get_mut(name).and_then(Value::as_array_mut) {
                    list.push(junk.clone());
                    list.push(json!({"role": "user", "content": junk, "parts": junk}));
                }
            }
            body["tools"] = json!([junk, {"function": junk, "name": junk, "input_schema": junk}]);
            let answer = post(&model, &path, &body);
            assert_eq!(answer.status, 200, "{protocol:?} {junk} {}", answer.body);
        }
    }
}

#[test]
fn a_request_without_tools_gets_no_plan_but_a_title() {
    let model = model();
    for protocol in ALL {
        let (path, body) = request(protocol, "Title this: PLAN:error:500", &[], &[], false);
        let answer = post(&model, &path, &body);
        assert_eq!(answer.status, 200);
        assert_eq!(plain(protocol, &answer.json()).text, "Scripted session");
    }
}

#[test]
fn a_request_for_json_gets_json_after_its_schema() {
    let model = model();
    let schema = json!({"type": "object", "required": ["next_speaker"],
        "properties": {"next_speaker": {"type": "string", "enum": ["user", "model"]}}});
    for protocol in ALL {
        let (path, mut body) = request(protocol, "Who is next?", &[], &[], false);
        let format = json!({"type": "json_schema", "schema": schema});
        match protocol {
            Protocol::Anthropic => body["output_config"] = json!({"format": format}),
            Protocol::Chat => {
                body["response_format"] =
                    json!({"type": "json_schema", "json_schema": {"schema": schema}});
            }
            Protocol::Responses => body["text"] = json!({"format": format}),
            Protocol::Gemini => {
                body["generationConfig"] =
                    json!({"responseMimeType": "application/json", "responseSchema": schema});
            }
        }
        let text = plain(protocol, &post(&model, &path, &body).json()).text;
        assert_eq!(text, "{\"next_speaker\":\"user\"}", "{protocol:?}");
    }
}

#[test]
fn a_refused_write_is_not_reported_as_done() {
    let model = model();
    let (path, mut body) = request(
        Protocol::Anthropic,
        "PLAN:write:a",
        &["no!"],
        &tools(),
        false,
    );
    body["messages"][2]["content"][0]["is_error"] = json!(true);
    let said = plain(Protocol::Anthropic, &post(&model, &path, &body).json());
    assert_eq!(said.text, "It was not done: no!");
}

#[test]
fn thinking_is_only_sent_to_callers_that_asked() {
    let model = model();
    let (path, mut body) = request(Protocol::Anthropic, "PLAN:write", &[], &tools(), true);
    assert!(!post(&model, &path, &body).body.contains("thinking"));
    body["thinking"] = json!({"type": "adaptive"});
    let answer = post(&model, &path, &body);
    assert!(answer.body.contains("thinking_delta") && answer.body.contains("signature_delta"));
}

#[test]
fn tokens_are_counted_and_gemini_streams_a_list_without_sse() {
    let model = model();
    let (_, body) = request(Protocol::Anthropic, "hello", &[], &[], false);
    let count = post(&model, "/v1/messages/count_tokens", &body).json();
    assert!(
        count["input_tokens"]
            .as_u64()
            .is_some_and(|count| count > 10),
        "{count}"
    );
    let (_, body) = request(Protocol::Gemini, "PLAN:write", &[], &tools(), true);
    let count = post(&model, "/v1beta/models/g:countTokens", &body).json();
    assert!(
        count["totalTokens"]
            .as_u64()
            .is_some_and(|count| count > 10),
        "{count}"
    );
    let list = post(&model, "/v1beta/models/g:streamGenerateContent", &body).json();
    let said = gemini_chunks(list.as_array().expect("a list"));
    assert_eq!(said.call.map(|(name, _)| name).as_deref(), Some("write"));
}

fn assert_shape(protocol: Protocol, body: &Value, status: u16) {
    match protocol {
        Protocol::Anthropic => {
            let kind = if status == 429 {
                "rate_limit_error"
            } else {
                "invalid_request_error"
            };
            assert_eq!(
                (&body["type"], &body["error"]["type"]),
                (&json!("error"), &json!(kind))
            );
        }
        Protocol::Chat | Protocol::Responses => {
            assert!(body["error"]["type"].is_string(), "{body}");
        }
        Protocol::Gemini => {
            assert_eq!(body["error"]["code"], status);
            assert!(body["error"]["status"].is_string(), "{body}");
        }
    }
    assert!(body["error"]["message"].is_string(), "{body}");
}
