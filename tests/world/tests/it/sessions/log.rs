//! A session's event log as it lies on the disk.

use anyhow::{Context as _, ensure};
use handler_testkit::World;
use serde_json::Value;
use std::path::PathBuf;

/// The events of a session, whose numbers must go up from 1 without a gap.
pub(crate) fn events(world: &World, id: &str) -> anyhow::Result<Vec<Value>> {
    let path = folder(world, id).join("events.ndjson");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut events: Vec<Value> = Vec::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        ensure!(
            event["seq"] == events.len() + 1,
            "{line} at the wrong place"
        );
        events.push(event);
    }
    Ok(events)
}

/// The session's folder.
pub(crate) fn folder(world: &World, id: &str) -> PathBuf {
    world.scratch().folder("state").join("sessions").join(id)
}

/// What one side said according to the log, all chunks joined.
pub(crate) fn text(events: &[Value], kind: &str) -> String {
    events
        .iter()
        .filter(|event| event["kind"] == "update")
        .map(|event| &event["update"])
        .filter(|update| update["sessionUpdate"] == kind)
        .filter_map(|update| update["content"]["text"].as_str())
        .collect()
}

/// How the turns ended, in order; one that is open has no end.
pub(crate) fn turns(events: &[Value]) -> Vec<String> {
    let mut turns = Vec::new();
    for event in events.iter().filter(|event| event["kind"] == "turn") {
        match event["phase"].as_str() {
            Some("start") => turns.push("open".to_owned()),
            Some("end") => {
                let reason = event["stopReason"].as_str().unwrap_or("none").to_owned();
                match turns.last_mut() {
                    Some(open) if open == "open" => *open = reason,
                    _ => turns.push(format!("{reason} without a start")),
                }
            }
            other => turns.push(format!("{other:?}")),
        }
    }
    turns
}

/// Numbers of the events that clients see.
pub(crate) fn numbers(events: &[Value]) -> Vec<u64> {
    events
        .iter()
        .filter(|event| event["kind"] == "update")
        .filter_map(|event| event["seq"].as_u64())
        .collect()
}

/// How a session stopped the last time.
pub(crate) fn how(events: &[Value]) -> Option<String> {
    let stopped = |event: &&Value| event["kind"] == "lifecycle" && event["event"] == "stopped";
    let last = events.iter().rfind(stopped)?;
    last["how"].as_str().map(str::to_owned)
}
