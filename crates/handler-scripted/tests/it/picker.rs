//! Tools chosen from lists as real harnesses send them (names and schemas, descriptions left out).

use serde_json::{Value, json};

use crate::decode::{Protocol, plain, request};
use crate::wire::{model, post};

type List = Vec<(&'static str, Value)>;

fn object(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required,
        "additionalProperties": false})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn claude() -> List {
    let option = object(
        &["label", "description"],
        &json!({"label": text(), "description": text()}),
    );
    let question = object(
        &["question", "header", "options", "multiSelect"],
        &json!({"question": text(), "header": text(), "multiSelect": {"type": "boolean", "default": false},
            "options": {"type": "array", "minItems": 2, "maxItems": 4, "items": option}}),
    );
    let questions = json!({"questions": {"type": "array", "minItems": 1, "items": question},
        "answers": {"type": "object", "additionalProperties": text()}});
    vec![
        (
            "Agent",
            object(
                &["description", "prompt"],
                &json!({"description": text(), "prompt": text()}),
            ),
        ),
        ("AskUserQuestion", object(&["questions"], &questions)),
        (
            "Bash",
            object(
                &["command"],
                &json!({"command": text(), "timeout": {"type": "number"},
            "description": text(), "run_in_background": {"type": "boolean"}}),
            ),
        ),
        (
            "Edit",
            object(
                &["file_path", "old_string", "new_string"],
                &json!({"file_path": text(),
            "old_string": text(), "new_string": text(),
            "replace_all": {"type": "boolean", "default": false}}),
            ),
        ),
        (
            "Read",
            object(
                &["file_path"],
                &json!({"file_path": text(), "offset": {"type": "integer"},
            "limit": {"type": "integer"}, "pages": text()}),
            ),
        ),
        (
            "Write",
            object(
                &["file_path", "content"],
                &json!({"file_path": text(), "content": text()}),
            ),
        ),
    ]
}

fn pi() -> List {
    let edit = object(
        &["oldText", "newText"],
        &json!({"oldText": text(), "newText": text()}),
    );
    vec![
        (
            "read",
            object(
                &["path"],
                &json!({"path": text(), "offset": {"type": "number"}}),
            ),
        ),
        (
            "bash",
            object(
                &["command"],
                &json!({"command": text(), "timeout": {"type": "number"}}),
            ),
        ),
        (
            "edit",
            object(
                &["path", "edits"],
                &json!({"path": text(),
            "edits": {"type": "array", "items": edit}}),
            ),
        ),
        (
            "write",
            object(
                &["path", "content"],
                &json!({"path": text(), "content": text()}),
            ),
        ),
    ]
}

fn codex() -> List {
    vec![
        (
            "exec_command",
            object(
                &["cmd"],
                &json!({"cmd": text(), "workdir": text(), "tty": {"type": "boolean"},
            "yield_time_ms": {"type": "number"}, "sandbox_permissions": text()}),
            ),
        ),
        (
            "write_stdin",
            object(
                &["session_id"],
                &json!({"session_id": {"type": "number"}, "chars": text()}),
            ),
        ),
        (
            "update_plan",
            object(
                &["plan"],
                &json!({"explanation": text(), "plan": {"type": "array",
            "items": object(&["step", "status"], &json!({"step": text(), "status": text()}))}}),
            ),
        ),
        ("view_image", object(&["path"], &json!({"path": text()}))),
    ]
}

fn gemini() -> List {
    vec![
        (
            "read_file",
            object(
                &["file_path"],
                &json!({"file_path": text(), "start_line": {"type": "number"}}),
            ),
        ),
        (
            "write_file",
            object(
                &["file_path", "content"],
                &json!({"file_path": text(), "content": text()}),
            ),
        ),
        (
            "replace",
            object(
                &["file_path", "instruction", "old_string", "new_string"],
                &json!({
            "file_path": text(), "instruction": text(), "old_string": text(), "new_string": text(),
            "allow_multiple": {"type": "boolean"}}),
            ),
        ),
        (
            "run_shell_command",
            object(
                &["command"],
                &json!({"command": text(), "description": text(),
            "dir_path": text(), "is_background": {"type": "boolean"}}),
            ),
        ),
        (
            "google_web_search",
            object(&["query"], &json!({"query": text()})),
        ),
    ]
}

fn opencode() -> List {
    let option = object(
        &["label", "description"],
        &json!({"label": text(), "description": text()}),
    );
    let question = object(
        &["question", "header", "options"],
        &json!({"question": text(),
        "header": {"type": "string", "maxLength": 12}, "options": {"type": "array", "items": option},
        "multiple": {"type": "boolean"}}),
    );
    vec![
        (
            "question",
            object(
                &["questions"],
                &json!({"questions": {"type": "array", "items": question}}),
            ),
        ),
        (
            "bash",
            object(
                &["command", "description"],
                &json!({"command": text(),
            "timeout": {"type": "integer"}, "workdir": text(), "description": text()}),
            ),
        ),
        (
            "read",
            object(
                &["filePath"],
                &json!({"filePath": text(), "offset": {"type": "integer"}}),
            ),
        ),
        (
            "edit",
            object(
                &["filePath", "oldString", "newString"],
                &json!({"filePath": text(),
            "oldString": text(), "newString": text(), "replaceAll": {"type": "boolean"}}),
            ),
        ),
        (
            "write",
            object(
                &["content", "filePath"],
                &json!({"content": text(), "filePath": text()}),
            ),
        ),
    ]
}

/// The call a plan leads to in its `step`-th answer.
fn call(protocol: Protocol, tools: &List, human: &str, step: usize) -> Option<(String, Value)> {
    let (path, body) = request(protocol, human, &vec!["ok"; step], tools, false);
    let answer = post(&model(), &path, &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    plain(protocol, &answer.json()).call
}

fn expect(
    protocol: Protocol,
    tools: &List,
    human: &str,
    step: usize,
    name: &str,
    arguments: Value,
) {
    let expected = Some((name.to_owned(), arguments));
    assert_eq!(call(protocol, tools, human, step), expected, "{human}");
}

#[test]
fn claude_tools_are_called_with_their_arguments() {
    let (p, tools) = (Protocol::Anthropic, claude());
    expect(
        p,
        &tools,
        "PLAN:write:a|b",
        0,
        "Write",
        json!({"file_path": "a", "content": "b"}),
    );
    expect(
        p,
        &tools,
        "PLAN:shell:ls",
        0,
        "Bash",
        json!({"command": "ls"}),
    );
    expect(
        p,
        &tools,
        "PLAN:read:a",
        0,
        "Read",
        json!({"file_path": "a"}),
    );
    expect(
        p,
        &tools,
        "PLAN:edit:a|x|y",
        0,
        "Read",
        json!({"file_path": "a"}),
    );
    let edit = json!({"file_path": "a", "old_string": "x", "new_string": "y"});
    expect(p, &tools, "PLAN:edit:a|x|y", 1, "Edit", edit);
}

#[test]
fn claude_questions_have_distinct_choices() {
    let (name, arguments) =
        call(Protocol::Anthropic, &claude(), "PLAN:ask:Which?", 0).expect("a question");
    let question = &arguments["questions"][0];
    assert_eq!(
        (name.as_str(), &question["question"]),
        ("AskUserQuestion", &json!("Which?"))
    );
    assert_eq!(question["multiSelect"], false);
    assert_ne!(
        question["options"][0]["label"],
        question["options"][1]["label"]
    );
    assert_eq!(question["options"].as_array().map(Vec::len), Some(2));
    assert_eq!(arguments.get("answers"), None, "optional fields stay out");
}

#[test]
fn pi_tools_are_called_with_their_arguments() {
    let (p, tools) = (Protocol::Chat, pi());
    expect(
        p,
        &tools,
        "PLAN:write:a|b",
        0,
        "write",
        json!({"path": "a", "content": "b"}),
    );
    expect(
        p,
        &tools,
        "PLAN:shell:ls",
        0,
        "bash",
        json!({"command": "ls"}),
    );
    let edit = json!({"path": "a", "edits": [{"oldText": "x", "newText": "y"}]});
    expect(p, &tools, "PLAN:edit:a|x|y", 1, "edit", edit);
    assert_eq!(
        call(p, &tools, "PLAN:ask", 0),
        None,
        "pi has no question tool"
    );
}

#[test]
fn codex_writes_and_reads_through_its_shell() {
    let (p, tools) = (Protocol::Responses, codex());
    expect(
        p,
        &tools,
        "PLAN:shell:ls",
        0,
        "exec_command",
        json!({"cmd": "ls"}),
    );
    expect(
        p,
        &tools,
        "PLAN:read:it's",
        0,
        "exec_command",
        json!({"cmd": "cat -- 'it'\\''s'"}),
    );
    let (name, arguments) = call(p, &tools, "PLAN:write:d/a|$b", 0).expect("a call");
    assert_eq!(name, "exec_command");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let command = arguments["cmd"].as_str().expect("a command");
    let status = std::process::Command::new("sh")
        .args(["-c", command])
        .current_dir(folder.path())
        .status()
        .expect("a shell");
    assert!(status.success());
    let written = std::fs::read_to_string(folder.path().join("d/a")).expect("the file");
    assert_eq!(written, "$b");
}

#[test]
fn gemini_tools_are_called_with_their_arguments() {
    let (p, tools) = (Protocol::Gemini, gemini());
    expect(
        p,
        &tools,
        "PLAN:write:a|b",
        0,
        "write_file",
        json!({"file_path": "a", "content": "b"}),
    );
    expect(
        p,
        &tools,
        "PLAN:shell:ls",
        0,
        "run_shell_command",
        json!({"command": "ls"}),
    );
    let edit = json!({"file_path": "a", "instruction": "Asked for by the script",
        "old_string": "x", "new_string": "y"});
    expect(p, &tools, "PLAN:edit:a|x|y", 1, "replace", edit);
}

#[test]
fn opencode_tools_are_called_with_their_arguments() {
    let (p, tools) = (Protocol::Chat, opencode());
    expect(
        p,
        &tools,
        "PLAN:write:a|b",
        0,
        "write",
        json!({"content": "b", "filePath": "a"}),
    );
    let shell = json!({"command": "ls", "description": "Asked for by the script"});
    expect(p, &tools, "PLAN:shell:ls", 0, "bash", shell);
    let (_, arguments) = call(p, &tools, "PLAN:ask:Which?", 0).expect("a question");
    let options = &arguments["questions"][0]["options"];
    assert_eq!(
        options.as_array().map(Vec::len),
        Some(2),
        "a choice needs alternatives"
    );
}

#[test]
fn a_tool_with_the_right_name_but_the_wrong_shape_is_passed_over() {
    let tools = vec![
        ("write", object(&["note"], &json!({"note": text()}))),
        (
            "save_document",
            object(
                &["filename", "contents"],
                &json!({"filename": text(), "contents": text()}),
            ),
        ),
    ];
    let expected = json!({"filename": "a", "contents": "b"});
    expect(
        Protocol::Chat,
        &tools,
        "PLAN:write:a|b",
        0,
        "save_document",
        expected,
    );
    assert_eq!(call(Protocol::Chat, &tools, "PLAN:shell:ls", 0), None);
}

#[test]
fn a_command_list_is_filled_as_a_list() {
    let list = json!({"type": "array", "items": text()});
    let tools = vec![("shell", object(&["command"], &json!({"command": list})))];
    let expected = json!({"command": ["sh", "-c", "ls"]});
    expect(
        Protocol::Responses,
        &tools,
        "PLAN:shell:ls",
        0,
        "shell",
        expected,
    );
}
