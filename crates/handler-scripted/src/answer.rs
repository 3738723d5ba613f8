//! From a conversation to the one answer its plan and step call for.
//!
//! Invariant: the same conversation always gives the same answer.

use serde_json::{Value, json};

use crate::conversation::{Conversation, ToolResult};
use crate::plan::{self, Act, Want};
use crate::schema;
use crate::tools::{self, ToolCall};

/// Characters of a tool result repeated in an answer.
const QUOTE_LIMIT: usize = 500;

/// What to send back.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    /// A message of the model.
    Answer(Answer),
    /// An HTTP error in the protocol's shape.
    Failure(u16),
}

/// A message of the model.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// A line of thought, for protocols and callers that take one.
    pub(crate) thought: Option<&'static str>,
    /// The text; its words are sent one by one.
    pub(crate) text: String,
    /// Whether to pause before each word.
    pub(crate) slow: bool,
    /// A tool call that follows the text.
    pub(crate) call: Option<ToolCall>,
}

impl Answer {
    /// The text in pieces that join to it again, each a word with the white space after it.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_inclusive(char::is_whitespace)
    }

    /// A rough count of tokens, so that usage figures look alive.
    pub(crate) fn tokens(&self) -> usize {
        let call = self
            .call
            .as_ref()
            .map_or(0, |call| call.arguments.to_string().len() / 4 + 5);
        self.words().count() + call
    }
}

/// Chooses the answer.
pub(crate) fn reply_to(talk: &Conversation) -> Reply {
    if let Some(schema) = &talk.json {
        return Reply::Answer(Answer {
            text: small_json(schema).to_string(),
            ..Answer::default()
        });
    }
    if talk.tools.is_empty() {
        // Titles and summaries quote the human text: its plan is not meant for them.
        return Reply::Answer(Answer {
            text: "Scripted session".to_owned(),
            ..Answer::default()
        });
    }
    let acts = plan::acts(&talk.human);
    let mut answer = Answer::default();
    let mut texts = Vec::new();
    for act in step(&acts, talk.results.len()) {
        match act {
            Act::Fail(status) => return Reply::Failure(*status),
            Act::Say(text) => texts.push(text.clone()),
            Act::Done(text) => texts.push(match talk.results.last() {
                Some(result) if result.failed => quote("It was not done:", Some(result)),
                _ => text.clone(),
            }),
            Act::Quote(intro) => texts.push(quote(intro, talk.results.last())),
            Act::SaySlowly(words) => {
                answer.slow = true;
                texts.push(many_words(*words));
            }
            Act::Call(want) => call(want, talk, &mut answer, &mut texts),
        }
    }
    answer.text = texts.join("\n\n");
    Reply::Answer(answer)
}

/// The acts after the `done`-th call up to and including the next one; the last ones when the
/// history has more results than the plan has calls.
fn step(acts: &[Act], done: usize) -> &[Act] {
    let steps: Vec<_> = acts
        .split_inclusive(|act| matches!(act, Act::Call(_)))
        .collect();
    let last = steps.len().saturating_sub(1);
    steps.get(done.min(last)).copied().unwrap_or(&[])
}

fn call(want: &Want, talk: &Conversation, answer: &mut Answer, texts: &mut Vec<String>) {
    let (thought, intro) = match want {
        Want::Write { .. } => ("I should write the file.", "I will write the file now."),
        Want::Read { .. } => ("I should read the file.", "I will read the file now."),
        Want::Edit { .. } => ("I should edit the file.", "I will edit the file now."),
        Want::Shell { .. } => ("I should run a command.", "I will run the command now."),
        Want::Ask { .. } => ("I should ask.", "I have a question."),
    };
    answer.call = tools::call_for(want, &talk.tools);
    match (&answer.call, want) {
        (Some(_), _) => {
            answer.thought = Some(thought);
            texts.push(intro.to_owned());
        }
        (None, Want::Ask { question }) => texts.push(question.clone()),
        (None, _) => texts.push("I have no tool for this step, so I stop here.".to_owned()),
    }
}

fn quote(intro: &str, result: Option<&ToolResult>) -> String {
    let said: String = result
        .map_or("", |result| result.text.trim())
        .chars()
        .take(QUOTE_LIMIT)
        .collect();
    if said.is_empty() {
        format!("{intro} (nothing)")
    } else {
        format!("{intro} {said}")
    }
}

fn many_words(count: usize) -> String {
    let numbered = (1..=count).map(|nth| format!("word{nth}"));
    numbered.collect::<Vec<_>>().join(" ")
}

fn small_json(schema: &Value) -> Value {
    match schema::fill(schema, &[]) {
        Value::Object(filled) if !filled.is_empty() => Value::Object(filled),
        _ => json!({"title": "Scripted session"}),
    }
}
