//! Replay: update events of the log as `session/update` notifications, read from disk at the viewer's
//! own pace, without the owner's help.

use crate::acp::{RawObject, build};
use crate::live::ViewerId;
use crate::owner::Command;
use bytes::Bytes;
use handler_store::EventLog;
use tokio::sync::mpsc;

/// Log bytes turned into messages at once.
const BATCH: u64 = 1024 * 1024;

/// One stretch of the log for one viewer.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// The log.
    pub log: EventLog,
    /// The viewer.
    pub viewer: ViewerId,
    /// The session's id for clients.
    pub session: String,
    /// Events after this one …
    pub after: u64,
    /// … up to this one.
    pub until: u64,
}

/// Sends a stretch, then tells the owner how far it came.
pub(crate) async fn run(
    stretch: Stretch,
    lane: mpsc::Sender<Bytes>,
    commands: mpsc::Sender<Command>,
) {
    let viewer = stretch.viewer;
    let outcome = send(stretch, &lane).await;
    let command = match outcome {
        Ok(upto) => Command::Replayed { viewer, upto },
        Err(reason) => Command::ReplayFailed { viewer, reason },
    };
    commands.send(command).await.ok();
}

async fn send(stretch: Stretch, lane: &mpsc::Sender<Bytes>) -> Result<u64, String> {
    let mut after = stretch.after;
    while after < stretch.until {
        let (log, session, until) = (stretch.log.clone(), stretch.session.clone(), stretch.until);
        let batch = tokio::task::spawn_blocking(move || read(&log, &session, after, until)).await;
        let (upto, frames) = batch.map_err(|error| error.to_string())??;
        for frame in frames {
            if lane.send(frame).await.is_err() {
                return Err("the viewer left".to_owned());
            }
        }
        after = upto;
    }
    Ok(after)
}

/// Reads one batch: the number of its last event and the messages made from it.
fn read(
    log: &EventLog,
    session: &str,
    after: u64,
    until: u64,
) -> Result<(u64, Vec<Bytes>), String> {
    let mut frames = Vec::new();
    let mut upto = after;
    for line in log.read_from(after, BATCH) {
        let line = line.map_err(|error| error.to_string())?;
        let event = RawObject::parse(&line).map_err(|error| error.to_string())?;
        let seq: u64 = event.read("seq").ok_or("an event without a number")?;
        if seq > until {
            return Ok((until, frames));
        }
        upto = seq;
        if event.read::<String>("kind").as_deref() == Some("update")
            && let Some(update) = event.get("update")
        {
            frames.push(build::update(session, update, None, Some(seq)).into());
        }
    }
    if upto == after {
        return Err("the log ends before the session's last event".to_owned());
    }
    Ok((upto, frames))
}
