//! New tokens of logins, taken from the filter one at a time.
//!
//! Invariant: the filter is told that one is kept only after whoever took it said so.

use super::keeper::Keeper;
use super::wire::{Connection, parse};
use handler_types::egress::{EGRESS_PROTOCOL, EgressRequest, LoginKept, LoginRenewal};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use zeroize::Zeroizing;

/// Pause before a new connection.
const PAUSE: Duration = Duration::from_millis(100);

/// One, and where its outcome goes: whether it is kept and the sandbox has stand-ins for it.
#[derive(Debug)]
pub struct Renewal {
    /// What was renewed.
    pub renewal: LoginRenewal,
    /// Dropped: not kept.
    pub kept: oneshot::Sender<bool>,
}

/// Starts taking them; ends when the receiver is dropped or the link ends.
pub(super) fn renewals(keeper: Arc<Keeper>) -> mpsc::Receiver<Renewal> {
    let (sender, receiver) = mpsc::channel(1);
    drop(handler_base::tasks::spawn_named(
        "login renewals",
        async move {
            tokio::select! {
                () = keeper.ended() => {}
                () = sender.closed() => {}
                () = take(&keeper, &sender) => {}
            }
        },
    ));
    receiver
}

async fn take(keeper: &Keeper, sender: &mpsc::Sender<Renewal>) {
    loop {
        match Connection::open(keeper.socket()).await {
            Ok(Some(connection)) if connection.protocol == EGRESS_PROTOCOL => {
                take_until_closed(connection, sender).await;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "no renewals of logins for now"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn take_until_closed(mut connection: Connection, sender: &mpsc::Sender<Renewal>) {
    if connection.send(EgressRequest::Logins).await.is_err() {
        return;
    }
    while let Ok(Some(line)) = connection.line().await {
        let line = Zeroizing::new(line);
        let Some(renewal) = parse::<LoginRenewal>(&line) else {
            tracing::error!("the egress filter told of a login in a form that is not understood");
            return;
        };
        let seq = renewal.seq;
        let (kept, outcome) = oneshot::channel();
        if sender.send(Renewal { renewal, kept }).await.is_err() {
            return;
        }
        let kept = outcome.await.unwrap_or(false);
        if connection.tell(&LoginKept { seq, kept }).await.is_err() {
            return;
        }
    }
}
