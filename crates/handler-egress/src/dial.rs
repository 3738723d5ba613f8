//! Opening the connection outward: to checked addresses only, one after the other with a short
//! head start each, or through the upstream proxy.

use crate::chain::ChainError;
use crate::resolve::{Candidates, ResolveError};
use crate::sandbox::Sandbox;
use crate::settings::Rules;
use crate::share::Busy;
use crate::target::Target;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::TcpStream;

/// Head start of one address over the next.
const STAGGER: Duration = Duration::from_millis(250);
/// How long connecting may take, all addresses together.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(15);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// A connection to a destination.
#[derive(Debug)]
pub(crate) struct Dialled {
    /// The bytes.
    pub(crate) stream: TcpStream,
    /// Where it leads; absent when the upstream proxy knows.
    pub(crate) address: Option<SocketAddr>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum DialError {
    /// It must not be dialled.
    Address,
    /// The name has no address.
    Resolve,
    /// Nothing answered; a sentence for people.
    Unreachable(String),
    /// The sandbox has too many names looked up at a time.
    Busy(Busy),
}

/// Connects to a destination that the policy allows.
pub(crate) async fn dial(
    sandbox: &Sandbox,
    rules: &Rules,
    target: &Target,
) -> Result<Dialled, DialError> {
    let shared = &sandbox.shared;
    let look_ups = &sandbox.shares.look_ups;
    let candidates = shared
        .resolver
        .candidates(&rules.policy, target, look_ups)
        .await;
    let proxy = shared
        .proxy
        .as_ref()
        .filter(|proxy| proxy.applies_to(target));
    match (candidates, proxy) {
        (Err(ResolveError::Address), _) => Err(DialError::Address),
        (Err(ResolveError::Busy(busy)), _) => Err(DialError::Busy(busy)),
        (Ok(found), Some(_)) if found.local => direct(found).await,
        // A name that only the proxy can resolve is checked by the proxy alone.
        (Ok(_) | Err(ResolveError::Unknown), Some(proxy)) => {
            let stream = limited(proxy.connect(target)).await?;
            prepare(&stream);
            Ok(Dialled {
                stream,
                address: None,
            })
        }
        (Ok(found), None) => direct(found).await,
        (Err(ResolveError::Unknown), None) => Err(DialError::Resolve),
    }
}

async fn limited(
    connecting: impl Future<Output = Result<TcpStream, ChainError>>,
) -> Result<TcpStream, DialError> {
    match tokio::time::timeout(CONNECT_LIMIT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(DialError::Unreachable(error.to_string())),
        Err(_) => Err(DialError::Unreachable(
            "the upstream proxy did not answer in time".to_owned(),
        )),
    }
}

async fn direct(candidates: Candidates) -> Result<Dialled, DialError> {
    match tokio::time::timeout(CONNECT_LIMIT, race(&candidates.addresses)).await {
        Ok(Ok((stream, address))) => {
            prepare(&stream);
            Ok(Dialled {
                stream,
                address: Some(address),
            })
        }
        Ok(Err(error)) => Err(DialError::Unreachable(error.to_string())),
        Err(_) => Err(DialError::Unreachable("no answer in time".to_owned())),
    }
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send>>;

/// The first connection that stands; each address gets a head start, a failure ends it at once.
async fn race(addresses: &[SocketAddr]) -> io::Result<(TcpStream, SocketAddr)> {
    let mut waiting = addresses.iter().copied();
    let mut running: FuturesUnordered<Attempt> = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        let next = waiting.next();
        let more = next.is_some();
        if let Some(address) = next {
            running.push(Box::pin(async move {
                let stream = TcpStream::connect(address).await?;
                Ok((stream, address))
            }));
        }
        tokio::select! {
            Some(done) = running.next() => match done {
                Ok(won) => return Ok(won),
                Err(error) => {
                    last = error;
                    if running.is_empty() && waiting.len() == 0 {
                        return Err(last);
                    }
                }
            },
            () = tokio::time::sleep(STAGGER), if more && waiting.len() > 0 => {}
            else => return Err(last),
        }
    }
}

/// Small writes go out at once; a dead peer is noticed.
fn prepare(stream: &TcpStream) {
    let result = stream.set_nodelay(true).and_then(|()| {
        rustix::net::sockopt::set_socket_keepalive(stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
        Ok(())
    });
    if let Err(error) = result {
        tracing::debug!(%error, "socket options");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_address_is_tried_when_one_fails() {
        let open = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("listener");
        let closed = {
            let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("listener");
            gone.local_addr().expect("address")
        };
        let good = open.local_addr().expect("address");
        let (_, address) = race(&[closed, good]).await.expect("second address");
        assert_eq!(address, good);
        race(&[closed]).await.expect_err("nobody listens");
        race(&[]).await.expect_err("nothing to try");
    }
}
