//! Keeps a handle's connection: makes it anew when it breaks, and takes every stream and input up where it was.

use super::connection::{Connection, connect};
use super::error::{GuestCallError, LinkError};
use super::handle::{LinkState, Shared};
use super::outbox::lock;
use super::pending::Waiting;
use handler_types::guest::{Op, Reply};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// So many protocol breaches in a row close the handle.
const MOST_BREACHES: u32 = 5;
/// A connection that lived so long clears the count of breaches.
const CALM: Duration = Duration::from_secs(60);

impl Shared {
    /// Keeps a connection until the handle closes.
    pub(super) async fn supervise(&self, mut connection: Arc<Connection>) {
        let mut breaches = 0;
        let reason = loop {
            let since = Instant::now();
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = connection.ended.cancelled() => {}
            }
            if self.stop.is_cancelled() {
                break self.stopped();
            }
            let reason = connection.reason();
            self.state.send_replace(LinkState::Down);
            tracing::debug!(%reason, socket = %self.socket.display(), "the guest link broke");
            if since.elapsed() > CALM {
                breaches = 0;
            }
            breaches += u32::from(reason.is_breach());
            if breaches >= MOST_BREACHES {
                break reason;
            }
            match self.connect_again(&mut breaches).await {
                Ok(next) => connection = next,
                Err(reason) => break reason,
            }
            self.state.send_replace(LinkState::Up(connection.clone()));
        };
        connection.end(reason.clone());
        self.slots.lose_all(&reason.to_string());
        self.state.send_replace(LinkState::Closed(reason));
    }

    fn stopped(&self) -> LinkError {
        let reason = lock(&self.stop_reason).clone();
        LinkError::Closed(reason.unwrap_or_else(|| "the link was closed".to_owned()))
    }

    /// Connects anew and takes everything up where it was.
    async fn connect_again(&self, breaches: &mut u32) -> Result<Arc<Connection>, LinkError> {
        let mut pause = Duration::from_millis(5);
        loop {
            let attempt = tokio::select! {
                () = self.stop.cancelled() => return Err(self.stopped()),
                attempt = self.resume() => attempt,
            };
            let error = match attempt {
                Ok(connection) => return Ok(connection),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => error,
            };
            *breaches += u32::from(error.is_breach());
            if *breaches >= MOST_BREACHES {
                return Err(error);
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(self.stopped()),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(self.timing.longest_backoff);
        }
    }

    /// One new connection on which every stream and input goes on.
    async fn resume(&self) -> Result<Arc<Connection>, LinkError> {
        let greeted = connect(&self.socket, self.timing.greeting).await?;
        if greeted.greeting.boot != self.boot {
            return Err(LinkError::Replaced);
        }
        let connection = greeted.run(self.slots.clone());
        let limit = self.timing.slow_call;
        let resumed = timeout_at(Instant::now() + limit, self.resume_on(&connection))
            .await
            .unwrap_or(Err(GuestCallError::Timeout(limit)));
        match resumed {
            Ok(()) => Ok(connection),
            Err(error) => {
                let reason = match error {
                    GuestCallError::Lost(reason) => reason,
                    other => LinkError::Broken(other.to_string()),
                };
                connection.end(reason.clone());
                Err(reason)
            }
        }
    }

    async fn resume_on(&self, connection: &Arc<Connection>) -> Result<(), GuestCallError> {
        let limit = self.timing.call;
        let deadline = Instant::now() + limit;
        for slot in self.slots.all_outputs() {
            if slot.resume_from().is_none() {
                continue;
            }
            match connection.attach(&slot, deadline, limit).await {
                Ok(_) => {}
                Err(GuestCallError::Refused(error)) => slot.lose(&error.message),
                Err(error) => return Err(error),
            }
        }
        let inputs = self.slots.all_inputs();
        if inputs.is_empty() {
            return Ok(());
        }
        let reply = connection
            .request(Op::Processes, Waiting::Plain, deadline, limit)
            .await?;
        let Reply::Processes { processes, .. } = reply else {
            return Err(connection.unexpected());
        };
        for slot in inputs {
            let known = processes.iter().find(|info| info.process == slot.process);
            let Some(info) = known.filter(|info| info.exit.is_none()) else {
                slot.refuse(super::calls::gone("the process has ended"));
                self.slots.forget_input(slot.process);
                continue;
            };
            if let Err(breach) = slot.resume(info.received) {
                return Err(GuestCallError::Lost(LinkError::Nonsense(breach)));
            }
            super::calls::pump(connection, &slot).await?;
            super::calls::send_close(connection, &slot, deadline, limit).await?;
        }
        Ok(())
    }
}
