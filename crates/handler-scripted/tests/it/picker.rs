//! Tools chosen from the lists of real harnesses.

use serde_json::{Value, json};

use crate::decode::plain;
use crate::requests::{Protocol, request};
use crate::tool_lists::{List, claude, codex, gemini, object, opencode, pi, text};
use crate::wire::{model, post};

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
