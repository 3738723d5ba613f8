//! The beginning of a blind tunnel: the client's first bytes wait here until it is known that they
//! name the tunnel's host. The other direction flows meanwhile, for servers that speak first. Bytes that are HTTP end the
//! copying here: they are served request by request.

use crate::decide::Reason;
use crate::opening::{Opened, Opening};
use crate::refuse::Refusal;
use crate::share::Share;
use crate::target::Target;
use crate::tunnel::Readable;
use bytes::Bytes;
use http::Version;
use std::io;
use std::time::Duration;

/// Bytes read at a time.
const CHUNK: usize = 8 * 1024;
/// Alert "unrecognized name", fatal.
pub(crate) const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 112];

/// Why nothing passes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Closed {
    /// A connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The first bytes must not pass.
    #[error("the first bytes do not name the tunnel's host")]
    Refused(Reason),
    /// The client speaks HTTP; these are its first bytes.
    #[error("the tunnel is to be served as HTTP")]
    Http(Vec<u8>, Version),
}

/// Whether what follows is copied unseen, or served as HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Copied.
    Copied,
    /// Served.
    Served(Version),
}

/// What judges first bytes.
pub(crate) type Judge<'a> = &'a (dyn Fn(Opened) -> Result<Fate, Reason> + Sync);

/// Waits for the client's first bytes until they may pass, and gives them. A client that says nothing
/// is waited for without end; one that began must be clear within `limit`, when it has its turn.
pub(crate) async fn first_bytes(
    from: &impl Readable,
    early: Bytes,
    count: impl Fn(usize),
    judge: Judge<'_>,
    limit: Duration,
    openings: &Share,
) -> Result<Vec<u8>, Closed> {
    if early.is_empty() {
        from.readable().await?;
    }
    let part = openings.take().await;
    let _part = part.map_err(|_| Closed::Refused(Reason::Malformed))?;
    let reading = read_opening(from, &early, count, judge);
    tokio::time::timeout(limit, reading)
        .await
        .unwrap_or(Err(Closed::Refused(Reason::Malformed)))
}

async fn read_opening(
    from: &impl Readable,
    early: &[u8],
    count: impl Fn(usize),
    judge: Judge<'_>,
) -> Result<Vec<u8>, Closed> {
    let mut opening = Opening::default();
    let mut opened = opening.push(early);
    while opened.is_none() {
        from.readable().await?;
        let mut buf = Vec::with_capacity(CHUNK);
        match from.try_read(&mut buf) {
            Ok(0) => opened = Some(opening.end()),
            Ok(read) => {
                count(read);
                opened = opening.push(&buf);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    let fate = judge(opened.unwrap_or(Opened::Malformed)).map_err(Closed::Refused)?;
    let bytes = opening.into_bytes();
    match fate {
        Fate::Copied => Ok(bytes),
        Fate::Served(version) => Err(Closed::Http(bytes, version)),
    }
}

/// What the client is told, in the language it spoke, as the last bytes of its tunnel.
pub(crate) fn farewell(target: &Target, reason: Reason) -> Vec<u8> {
    match reason {
        Reason::Sni => UNRECOGNIZED_NAME.to_vec(),
        Reason::Host => Refusal::denied(target, reason).into_wire(),
        _ => Vec::new(),
    }
}
