//! Tool lists as real harnesses send them (names and schemas, descriptions left out).

use serde_json::{Value, json};

/// Names and schemas.
pub(crate) type List = Vec<(&'static str, Value)>;

pub(crate) fn object(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required,
        "additionalProperties": false})
}

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

pub(crate) fn claude() -> List {
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

pub(crate) fn pi() -> List {
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

pub(crate) fn codex() -> List {
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

pub(crate) fn gemini() -> List {
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

pub(crate) fn opencode() -> List {
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
