//! Events of the filter, over its restarts, at the reader's pace.

use super::keeper::Keeper;
use super::wire::{Connection, parse};
use handler_types::egress::{EGRESS_PROTOCOL, EgressEvent, EgressRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Events read ahead of the reader; more wait in the filter.
const AHEAD: usize = 256;
/// Pause before a new connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts reading; ends when the receiver is dropped or the link ends.
pub(super) fn subscribe(keeper: Arc<Keeper>, after: u64) -> mpsc::Receiver<EgressEvent> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    drop(handler_base::tasks::spawn_named(
        "egress subscription",
        async move {
            tokio::select! {
                () = keeper.ended() => {}
                () = sender.closed() => {}
                () = read(&keeper, after, &sender) => {}
            }
        },
    ));
    receiver
}

async fn read(keeper: &Keeper, mut after: u64, sender: &mpsc::Sender<EgressEvent>) {
    let mut pid = None;
    loop {
        match Connection::open(keeper.socket()).await {
            Ok(Some(connection)) if connection.protocol == EGRESS_PROTOCOL => {
                // Another process counts from 1 again.
                if pid.is_some_and(|pid| pid != connection.pid) {
                    after = 0;
                }
                pid = Some(connection.pid);
                after = read_until_closed(connection, after, sender).await;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "no events for now"),
        }
        if sender.is_closed() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Gives events on until the connection ends; the number of the last one.
async fn read_until_closed(
    mut connection: Connection,
    mut after: u64,
    sender: &mpsc::Sender<EgressEvent>,
) -> u64 {
    let request = EgressRequest::Subscribe { after };
    if connection.send(request).await.is_err() {
        return after;
    }
    while let Ok(Some(line)) = connection.line().await {
        // A kind of event that a newer filter has and we do not know is left out.
        let Some(event) = parse::<EgressEvent>(&line) else {
            continue;
        };
        let seq = event.seq;
        if sender.send(event).await.is_err() {
            return after;
        }
        after = seq;
    }
    after
}
