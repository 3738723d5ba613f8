//! Choosing a tool from the harness's own list, and writing its arguments.
//!
//! Invariant: a chosen tool's schema has a property for everything the plan wants to say, so a
//! call never silently drops a path or a command.

use serde_json::Value;

use crate::plan::{Want, quoted};
use crate::schema::{self, Meaning};

/// A tool as the request offers it.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    /// Name to call it by.
    pub(crate) name: String,
    /// JSON Schema of its arguments.
    pub(crate) schema: Value,
}

/// A call ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolCall {
    /// The offered tool's name.
    pub(crate) name: String,
    /// A JSON object.
    pub(crate) arguments: Value,
}

/// Names for a capability, most telling first, without separators and in lower case.
const WRITE: &[&str] = &[
    "write",
    "writefile",
    "createfile",
    "filewrite",
    "writetofile",
];
const READ: &[&str] = &["read", "readfile", "readtextfile", "viewfile", "view"];
const EDIT: &[&str] = &["edit", "editfile", "replace", "strreplace", "searchreplace"];
const SHELL: &[&str] = &[
    "bash",
    "shell",
    "execcommand",
    "runshellcommand",
    "shellcommand",
    "runcommand",
    "executecommand",
    "runterminalcommand",
    "terminal",
    "exec",
];
const ASK: &[&str] = &[
    "askuserquestion",
    "askuser",
    "requestuserinput",
    "question",
    "askquestion",
    "ask",
];

/// The call that fulfils `want`, or `None` when the list has no tool for it. A file is written or
/// read through the shell where there is no tool of its own.
pub(crate) fn call_for(want: &Want, tools: &[Tool]) -> Option<ToolCall> {
    let (names, known) = needs(want);
    let chosen = by_name(tools, names, &known).or_else(|| by_shape(tools, want, &known));
    if let Some(tool) = chosen {
        let arguments = schema::fill(&tool.schema, &known);
        return Some(ToolCall {
            name: tool.name.clone(),
            arguments,
        });
    }
    through_shell(want).and_then(|shell| call_for(&shell, tools))
}

fn needs(want: &Want) -> (&'static [&'static str], Vec<(Meaning, &str)>) {
    match want {
        Want::Write { path, content } => (
            WRITE,
            vec![(Meaning::Path, path), (Meaning::Content, content)],
        ),
        Want::Read { path } => (READ, vec![(Meaning::Path, path)]),
        Want::Edit { path, old, new } => (
            EDIT,
            vec![
                (Meaning::Path, path),
                (Meaning::Old, old),
                (Meaning::New, new),
            ],
        ),
        Want::Shell { command } => (SHELL, vec![(Meaning::Command, command)]),
        Want::Ask { question } => (ASK, vec![(Meaning::Question, question)]),
    }
}

fn by_name<'t>(tools: &'t [Tool], names: &[&str], known: &[(Meaning, &str)]) -> Option<&'t Tool> {
    let named = |name: &&str| {
        tools
            .iter()
            .find(|tool| schema::squeezed(&tool.name) == **name)
    };
    names
        .iter()
        .filter_map(named)
        .find(|tool| says_everything(tool, known))
}

/// An unknown name is trusted for commands and writes only: their shapes are unmistakable.
fn by_shape<'t>(tools: &'t [Tool], want: &Want, known: &[(Meaning, &str)]) -> Option<&'t Tool> {
    let telling = matches!(want, Want::Shell { .. } | Want::Write { .. });
    let mut fitting = tools.iter().filter(|tool| says_everything(tool, known));
    if telling { fitting.next() } else { None }
}

/// Whether each known value appears somewhere in the filled arguments.
fn says_everything(tool: &Tool, known: &[(Meaning, &str)]) -> bool {
    let marks: Vec<_> = known
        .iter()
        .map(|(meaning, _)| (*meaning, format!("{meaning:?}")))
        .collect();
    let probe: Vec<_> = marks
        .iter()
        .map(|(meaning, mark)| (*meaning, mark.as_str()))
        .collect();
    let filled = schema::fill(&tool.schema, &probe);
    marks.iter().all(|(_, mark)| holds(&filled, mark))
}

fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(other) => other == text,
        Value::Array(items) => items.iter().any(|item| holds(item, text)),
        Value::Object(fields) => fields.values().any(|field| holds(field, text)),
        _ => false,
    }
}

fn through_shell(want: &Want) -> Option<Want> {
    let command = match want {
        Want::Write { path, content } => {
            let (path, content) = (quoted(path), quoted(content));
            format!("mkdir -p -- \"$(dirname -- {path})\" && printf %s {content} > {path}")
        }
        Want::Read { path } => format!("cat -- {}", quoted(path)),
        Want::Edit { .. } | Want::Shell { .. } | Want::Ask { .. } => return None,
    };
    Some(Want::Shell { command })
}
