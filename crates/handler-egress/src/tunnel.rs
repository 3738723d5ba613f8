//! Blind tunnels: bytes copied both ways as fast as they come once the client's first ones may pass,
//! half-close kept, idle ones ended.
//!
//! Invariant: an idle tunnel holds no buffer; a busy one at most one per direction, a small one while little comes.

use crate::decide::Reason;
use crate::gate::{Closed, Judge, first_bytes};
use crate::share::Shares;
use crate::traffic::Traffic;
use bytes::Bytes;
use http::Version;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Bytes read at a time: at first, and once that was not enough.
const SMALL: usize = 4 * 1024;
const CHUNK: usize = 64 * 1024;

/// Bytes that went through a tunnel.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    /// From the sandbox.
    pub(crate) out: u64,
    /// To the sandbox.
    pub(crate) back: u64,
}

/// How a tunnel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// What went through.
    pub(crate) moved: Moved,
    /// Set if the client's first bytes must not pass; then none has.
    pub(crate) refused: Option<Reason>,
    /// Set if the client speaks HTTP: its first bytes, of which none has passed. Both ends are as they were.
    pub(crate) http: Option<(Vec<u8>, Version)>,
}

/// A reading half that tells when bytes are there, so that no buffer has to wait for them.
pub(crate) trait Readable {
    async fn readable(&self) -> io::Result<()>;
    fn try_read(&self, buf: &mut Vec<u8>) -> io::Result<usize>;
}

macro_rules! readable {
    ($half:ty) => {
        impl Readable for $half {
            async fn readable(&self) -> io::Result<()> {
                <$half>::readable(self).await
            }
            fn try_read(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
                self.try_read_buf(buf)
            }
        }
    };
}
readable!(tokio::net::unix::ReadHalf<'_>);
readable!(tokio::net::tcp::ReadHalf<'_>);

/// When bytes last came, in milliseconds since the tunnel began.
struct Activity {
    began: Instant,
    last: AtomicU64,
}

impl Activity {
    fn touch(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns when nothing has come for `limit`.
    async fn idle(&self, limit: Duration) {
        loop {
            let end = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed)) + limit;
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// Copies until both directions have ended, one has failed, or nothing comes any more. `early` was read
/// from the client, and counted, before; `judge` is asked about the first bytes, if they matter.
pub(crate) async fn copy(
    client: &mut UnixStream,
    server: &mut TcpStream,
    early: Bytes,
    counters: [&Traffic; 2],
    judge: Option<Judge<'_>>,
    shares: &Shares,
) -> Ended {
    let activity = Activity {
        began: Instant::now(),
        last: AtomicU64::new(0),
    };
    let (out, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let (client_read, mut client_write) = client.split();
    let (mut server_read, mut server_write) = server.split();
    let decided = Notify::new();
    let outward = async {
        let count = |bytes| counters.iter().for_each(|all| all.sent(bytes));
        let first = match judge {
            // Boxed: it is over long before the tunnel is.
            Some(judge) => {
                let (head, openings) = (shares.limits.head, &shares.openings);
                let first = first_bytes(&client_read, early, count, judge, head, openings);
                let first = Bytes::from(Box::pin(first).await?);
                decided.notify_one();
                first
            }
            None => early,
        };
        server_write.write_all(&first).await?;
        out.store(first.len() as u64, Ordering::Relaxed);
        drop(first);
        pump(
            &client_read,
            &mut server_write,
            &out,
            count,
            &activity,
            shares,
        )
        .await
    };
    let count = |bytes| counters.iter().for_each(|all| all.received(bytes));
    let homeward = async {
        if judge.is_some() && begins_http2(&mut server_read).await? {
            decided.notified().await;
        }
        pump(
            &server_read,
            &mut client_write,
            &back,
            count,
            &activity,
            shares,
        )
        .await
    };
    let (mut refused, mut http) = (None, None);
    tokio::select! {
        ended = async { tokio::try_join!(outward, homeward) } => match ended {
            Ok(_) => {}
            Err(Closed::Refused(reason)) => refused = Some(reason),
            // Whoever answers before it is asked does not speak HTTP.
            Err(Closed::Http(..)) if back.load(Ordering::Relaxed) > 0 => refused = Some(Reason::Malformed),
            Err(Closed::Http(bytes, version)) => http = Some((bytes, version)),
            Err(Closed::Io(error)) => tracing::debug!(%error, "tunnel broke"),
        },
        () = activity.idle(shares.limits.idle_tunnel) => tracing::debug!("tunnel was idle"),
    }
    let moved = Moved {
        out: out.load(Ordering::Relaxed),
        back: back.load(Ordering::Relaxed),
    };
    Ended {
        moved,
        refused,
        http,
    }
}

/// Whether the server's first bytes are the settings of HTTP/2 (RFC 9113 §3.4, §6.5). Such a server speaks first and waits
/// for no answer; its bytes stay where they are, for whoever speaks with it.
async fn begins_http2(server: &mut tokio::net::tcp::ReadHalf<'_>) -> io::Result<bool> {
    let mut head = [0; 9];
    let read = server.peek(&mut head).await?;
    // A length below 65 536 that is whole settings of six bytes, the type, no flags, stream 0.
    let [0, high, low, 4, 0, 0, 0, 0, 0] = head else {
        return Ok(false);
    };
    Ok(read == head.len() && u16::from_be_bytes([high, low]) % 6 == 0)
}

/// Copies one direction; its end is passed on as the end of writing.
async fn pump(
    from: &impl Readable,
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
    count: impl Fn(usize),
    activity: &Activity,
    shares: &Shares,
) -> Result<(), Closed> {
    let mut size = SMALL;
    loop {
        from.readable().await?;
        // A large one is part of the sandbox's share; without one it is a small one.
        let part = Some(size)
            .filter(|size| *size > SMALL)
            .map(|_| shares.buffers.try_take(1));
        if matches!(part, Some(Err(_))) {
            size = SMALL;
        }
        // What is given back is wiped, all of it: a large one for a few bytes costs more than they do.
        let mut buf = Vec::with_capacity(size);
        size = SMALL;
        loop {
            match from.try_read(&mut buf) {
                Ok(0) => return Ok(to.shutdown().await?),
                Ok(read) => {
                    // Before a write that may never end: what has been begun has been moved.
                    moved.fetch_add(read as u64, Ordering::Relaxed);
                    to.write_all(&buf).await?;
                    count(read);
                    activity.touch();
                    let full = buf.len() == buf.capacity();
                    buf.clear();
                    size = if read >= SMALL { CHUNK } else { SMALL };
                    if !full {
                        break;
                    }
                    buf.reserve(size);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Fate;
    use crate::limits::Limits;
    use tokio::io::AsyncReadExt as _;

    async fn ends() -> (UnixStream, UnixStream, TcpStream, TcpStream) {
        let (client, near) = UnixStream::pair().expect("pair");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("listener");
        let address = listener.local_addr().expect("address");
        let (far, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client, near, far.expect("far"), accepted.expect("server").0)
    }

    #[tokio::test]
    async fn a_half_closed_tunnel_still_carries_the_other_direction() {
        let (mut client, mut near, far, mut server) = ends().await;
        let copying = tokio::spawn(async move {
            let mut far = far;
            let (all, one) = (Traffic::default(), Traffic::default());
            let ended = copy(
                &mut near,
                &mut far,
                Bytes::from_static(b"early "),
                [&all, &one],
                None,
                &Shares::new(&Limits::default()),
            )
            .await;
            assert_eq!(all.read(), one.read());
            (ended.moved, all.read())
        });
        client.write_all(b"question").await.expect("write");
        client.shutdown().await.expect("half close");
        let mut question = String::new();
        server.read_to_string(&mut question).await.expect("read");
        assert_eq!(question, "early question");
        server.write_all(b"answer").await.expect("write");
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("read");
        assert_eq!(answer, "answer");
        let (moved, seen) = copying.await.expect("task");
        assert_eq!(moved, Moved { out: 14, back: 6 });
        // What was read early has been counted where it was read.
        assert_eq!((seen.out_bytes, seen.in_bytes), (8, 6));
    }

    #[tokio::test]
    async fn a_server_that_has_said_all_is_still_heard_by() {
        let (mut client, mut near, far, mut server) = ends().await;
        let copying = tokio::spawn(async move {
            let (mut far, traffic) = (far, Traffic::default());
            copy(
                &mut near,
                &mut far,
                Bytes::new(),
                [&traffic; 2],
                None,
                &Shares::new(&Limits::default()),
            )
            .await
        });
        server.write_all(b"all").await.expect("write");
        server.shutdown().await.expect("half close");
        let mut all = String::new();
        client.read_to_string(&mut all).await.expect("read");
        assert_eq!(all, "all");
        client.write_all(b"thanks").await.expect("write");
        drop(client);
        let mut thanks = String::new();
        server.read_to_string(&mut thanks).await.expect("read");
        assert_eq!(thanks, "thanks");
        let moved = copying.await.expect("task").moved;
        assert_eq!(moved, Moved { out: 6, back: 3 });
    }

    #[tokio::test]
    async fn a_client_that_begins_and_does_not_go_on_is_let_go() {
        let (mut client, mut near, mut far, mut server) = ends().await;
        let limits = Limits {
            head: Duration::from_millis(20),
            ..Limits::default()
        };
        client.write_all(&[0x16, 3, 1]).await.expect("write");
        let traffic = Traffic::default();
        let judge: Judge<'_> = &|_| Ok(Fate::Copied);
        let ended = copy(
            &mut near,
            &mut far,
            Bytes::new(),
            [&traffic; 2],
            Some(judge),
            &Shares::new(&limits),
        )
        .await;
        drop(far);
        assert_eq!(ended.refused, Some(Reason::Malformed));
        let mut nothing = String::new();
        server.read_to_string(&mut nothing).await.expect("read");
        assert!(nothing.is_empty());
    }

    #[tokio::test]
    async fn an_idle_tunnel_ends() {
        let (_client, mut near, mut far, _server) = ends().await;
        let limits = Limits {
            idle_tunnel: Duration::from_millis(20),
            ..Limits::default()
        };
        let traffic = Traffic::default();
        let judge: Judge<'_> = &|_| Err(Reason::Sni);
        let ended = copy(
            &mut near,
            &mut far,
            Bytes::new(),
            [&traffic; 2],
            Some(judge),
            &Shares::new(&limits),
        )
        .await;
        let moved = Moved::default();
        assert_eq!(
            ended,
            Ended {
                moved,
                refused: None,
                http: None
            }
        );
    }
}
