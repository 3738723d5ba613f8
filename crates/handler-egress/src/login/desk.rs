//! Where new tokens wait for the daemon: bounded, in order, for as long as it takes.

use handler_types::egress::{LoginRenewal, RenewedToken, Renews};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Most answers that wait. While so many do, requests towards hosts of logins are refused: what they would
/// bring could not be kept.
const MOST: usize = 64;

/// The desk, one for all sandboxes: a login may be in several.
#[derive(Debug)]
pub(crate) struct Desk {
    held: Mutex<Held>,
    /// Counts up with every change.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Held {
    /// Number of the last one handed in.
    last: u64,
    /// Number of the connection that the daemon takes them over.
    courier: u64,
    waiting: VecDeque<LoginRenewal>,
}

/// No room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Desk {
    /// Nothing waits.
    pub(crate) fn new() -> Self {
        Self {
            held: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Held) -> T) -> T {
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, work: impl FnOnce(&mut Held) -> T) -> T {
        let outcome = self.with(work);
        self.changed.send_modify(|count| *count += 1);
        outcome
    }

    /// Hands tokens in; their number.
    pub(crate) fn hand_in(
        &self,
        sandbox: &str,
        renews: Renews,
        tokens: Vec<RenewedToken>,
        expires_in: Option<u64>,
    ) -> Result<u64, Full> {
        self.change(|held| {
            if held.waiting.len() >= MOST {
                return Err(Full);
            }
            held.last += 1;
            held.waiting.push_back(LoginRenewal {
                seq: held.last,
                sandbox: sandbox.to_owned(),
                renews,
                tokens,
                expires_in,
            });
            Ok(held.last)
        })
    }

    /// Waits until the daemon keeps this one; whether it does within the time.
    pub(crate) async fn kept(&self, seq: u64, limit: Duration) -> bool {
        let gone = |held: &Held| held.waiting.iter().all(|waiting| waiting.seq != seq);
        self.until(limit, gone).await
    }

    /// Waits until nothing of this login waits and there is room; whether that is so within the time.
    pub(crate) async fn settled(&self, login: &str, limit: Duration) -> bool {
        let settled = |held: &Held| {
            let mut waiting = held.waiting.iter();
            held.waiting.len() < MOST && !waiting.any(|waiting| waiting.renews.login == login)
        };
        self.until(limit, settled).await
    }

    async fn until(&self, limit: Duration, holds: impl Fn(&Held) -> bool) -> bool {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !self.with(|held| holds(held)) {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, wait).await.is_ok()
    }

    /// Another connection of the daemon takes what waits from now on; the one before gets nothing more.
    pub(crate) fn courier(&self) -> Courier<'_> {
        let number = self.change(|held| {
            held.courier += 1;
            held.courier
        });
        Courier { desk: self, number }
    }
}

/// The way to the daemon.
#[derive(Debug)]
pub(crate) struct Courier<'a> {
    desk: &'a Desk,
    number: u64,
}

impl Courier<'_> {
    /// The oldest that waits, once there is one; `None` when another connection has taken over.
    pub(crate) async fn next(&self) -> Option<LoginRenewal> {
        let mut changed = self.desk.changed.subscribe();
        loop {
            let (replaced, oldest) = self
                .desk
                .with(|held| (held.courier != self.number, held.waiting.front().cloned()));
            if replaced {
                return None;
            }
            if oldest.is_some() {
                return oldest;
            }
            changed.changed().await.ok()?;
        }
    }

    /// The daemon keeps it.
    pub(crate) fn kept(&self, seq: u64) {
        self.desk
            .change(|held| held.waiting.retain(|waiting| waiting.seq != seq));
    }

    /// The daemon does not; others go first next time.
    pub(crate) fn later(&self, seq: u64) {
        self.desk.change(|held| {
            if let Some(at) = held.waiting.iter().position(|waiting| waiting.seq == seq)
                && let Some(one) = held.waiting.remove(at)
            {
                held.waiting.push_back(one);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn renews(login: &str) -> Renews {
        Renews {
            login: login.to_owned(),
            field: "/refresh_token".to_owned(),
        }
    }

    #[tokio::test]
    async fn what_is_handed_in_waits_until_it_is_kept_and_then_the_login_is_settled() {
        let desk = Desk::new();
        assert!(desk.settled("a", Duration::ZERO).await);
        let one = desk.hand_in("s", renews("a"), vec![], None).expect("room");
        let two = desk.hand_in("s", renews("b"), vec![], None).expect("room");
        assert!(!desk.settled("a", Duration::ZERO).await);
        assert!(desk.settled("c", Duration::ZERO).await);
        let old = desk.courier();
        assert_eq!(old.next().await.map(|next| next.seq), Some(one));
        let new = desk.courier();
        assert!(old.next().await.is_none(), "another has taken over");
        new.later(one);
        assert_eq!(new.next().await.map(|next| next.seq), Some(two));
        let (kept, ()) = tokio::join!(desk.kept(one, SOON), async { new.kept(one) });
        assert!(kept && desk.settled("a", Duration::ZERO).await);
        assert!(!desk.settled("b", Duration::ZERO).await);
    }

    #[tokio::test]
    async fn a_full_desk_takes_nothing_and_settles_nothing() {
        let desk = Desk::new();
        for _ in 0..MOST {
            desk.hand_in("s", renews("a"), vec![], None).expect("room");
        }
        assert_eq!(desk.hand_in("s", renews("a"), vec![], None), Err(Full));
        assert!(!desk.settled("other", Duration::ZERO).await);
        let courier = desk.courier();
        let first = courier.next().await.expect("one");
        courier.kept(first.seq);
        assert!(desk.settled("other", SOON).await);
    }
}
