//! Recorded traffic of real agents, when a folder of it is named by `HANDLER_ACP_TRAFFIC`: lines of
//! `{"dir":"c>a"|"a>c","m":…}`. Every update must reach the log and a viewer as it was.

use crate::support::{SCOPE, config, log, until};
use handler_session::testing::{AgentOut, FakeGuest, TestViewer};
use handler_session::{SessionCore, StartKind};
use serde_json::{Value, json};
use std::path::Path;

/// The turns of one recording: what the agent said to each request.
struct Recording {
    steps: Vec<(String, Vec<Value>)>,
    next: usize,
}

impl Recording {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a recording");
        let mut steps: Vec<(String, Vec<Value>)> = Vec::new();
        for line in text.lines() {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            let message = entry["m"].clone();
            match (entry["dir"].as_str(), message["method"].as_str()) {
                (Some("c>a"), Some(method)) => steps.push((method.to_owned(), Vec::new())),
                (Some("a>c"), _) => {
                    if let Some((_, said)) = steps.last_mut() {
                        said.push(message);
                    }
                }
                _ => {}
            }
        }
        Self { steps, next: 0 }
    }

    fn prompts(&self) -> usize {
        self.first_process()
            .filter(|(method, _)| method == "session/prompt")
            .count()
    }

    /// Recordings go on with a second process, which another test is about.
    fn first_process(&self) -> impl Iterator<Item = &(String, Vec<Value>)> {
        let end = self
            .steps
            .iter()
            .skip(1)
            .position(|(method, _)| method == "initialize");
        self.steps
            .iter()
            .take(end.map_or(self.steps.len(), |at| at + 1))
    }

    fn on_line(&mut self, line: &Value, out: &mut AgentOut) {
        let Some(method) = line["method"].as_str() else {
            return;
        };
        let Some(at) = self.steps[self.next..]
            .iter()
            .position(|(name, _)| name == method)
        else {
            return;
        };
        self.next += at + 1;
        let mut is_answered = false;
        // What follows until the next prompt belongs to this one (cancels and settings in between).
        let rest = self.steps[self.next - 1..].iter();
        let last = rest
            .clone()
            .skip(1)
            .position(|(name, _)| name == "session/prompt" || method != "session/prompt");
        for (_, said) in rest.take(last.map_or(usize::MAX, |at| at + 1)) {
            for message in said {
                let mut message = message.clone();
                if message.get("method").is_none() {
                    if std::mem::replace(&mut is_answered, true) {
                        continue;
                    }
                    message["id"] = line["id"].clone();
                }
                out.send(&message);
            }
        }
        if !is_answered {
            out.send(
                &json!({"jsonrpc": "2.0", "id": line["id"], "result": {"stopReason": "end_turn"}}),
            );
        }
    }
}

fn updates(messages: impl Iterator<Item = Value>) -> Vec<Value> {
    messages
        .filter(|update| update["sessionUpdate"] != "user_message_chunk")
        .collect()
}

#[tokio::test]
async fn updates_of_real_agents_arrive_as_they_were() {
    let Some(folder) = std::env::var_os("HANDLER_ACP_TRAFFIC") else {
        let mut out = std::io::stderr();
        std::io::Write::write_all(&mut out, b"SKIP updates_of_real_agents_arrive_as_they_were: HANDLER_ACP_TRAFFIC names no folder\n").ok();
        return;
    };
    let mut played = 0;
    for entry in std::fs::read_dir(folder).expect("the folder").flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_none_or(|extension| extension != "ndjson")
        {
            continue;
        }
        let recording = Recording::read(&path);
        let prompts = recording.prompts();
        let dir = tempfile::tempdir().expect("temp folder");
        let mut agent = Recording::read(&path);
        let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = std::sync::Arc::clone(&sent);
        let guest = FakeGuest::new(move |line: &Value, out: &mut AgentOut| {
            agent.on_line(line, out);
            if let Ok(mut seen) = seen.lock() {
                seen.extend(
                    out.sent()
                        .filter(|m| m["method"] == "session/update")
                        .map(|m| m["params"]["update"].clone()),
                );
            }
        })
        .with_chunks(997);
        let session = SessionCore::start(config(dir.path()), guest.attach(), StartKind::New)
            .await
            .expect("start");
        session
            .ready()
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for turn in 0..prompts {
            session
                .prompt(&format!("turn {turn}"))
                .await
                .expect("prompt");
            until(&session, "the turn's end", |f| !f.busy).await;
        }
        let viewer = TestViewer::load(&session, SCOPE, 0).await;
        let shown = updates(
            viewer
                .seen
                .iter()
                .filter(|m| m["method"] == "session/update")
                .map(|m| m["params"]["update"].clone()),
        );
        let logged = updates(
            log(dir.path())
                .into_iter()
                .filter(|e| e["kind"] == "update")
                .map(|e| e["update"].clone()),
        );
        let expected = updates(sent.lock().expect("no panic").clone().into_iter());
        assert!(!expected.is_empty(), "{}", path.display());
        assert_eq!(logged, expected, "{}", path.display());
        assert_eq!(shown, expected, "{}", path.display());
        played += 1;
    }
    assert!(played > 0, "the folder has no recordings");
}
