//! The frames of a WebSocket carried both ways. What must not pass, or is no frame, ends both ways with a
//! close frame, wherever one can be understood.

use crate::report::RequestReport;
use crate::websocket::{Broken, Frames, Sender, close_frame};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;
/// How long a peer may take for the frame that ends its connection.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
const PROTOCOL_ERROR: u16 = 1002;
const POLICY_VIOLATION: u16 = 1008;

/// One direction under way.
struct Lane<'a> {
    frames: Frames,
    watch: &'a RequestReport,
    /// Whether everything written so far is whole frames.
    whole: bool,
}

impl<'a> Lane<'a> {
    fn new(frames: Frames, watch: &'a RequestReport) -> Self {
        Self {
            frames,
            watch,
            whole: true,
        }
    }
}

/// Why a direction ends before its end.
enum Stop {
    Broken(Broken),
    Peer(io::Error),
}

/// Carries frames both ways; gives why, if it had to break off.
pub(crate) async fn frames<C, S>(
    client: C,
    server: S,
    outward: Frames,
    inward: Frames,
    watch: &RequestReport,
) -> Option<Broken>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut outward, mut inward) = (Lane::new(outward, watch), Lane::new(inward, watch));
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let ended = tokio::try_join!(
        pump(&mut from_client, &mut to_server, &mut outward),
        pump(&mut from_server, &mut to_client, &mut inward),
    );
    let broken = match ended {
        Err(Stop::Broken(broken)) => broken,
        Err(Stop::Peer(error)) => {
            tracing::debug!(%error, "a peer of a WebSocket broke off");
            return None;
        }
        Ok(_) => return None,
    };
    let code = match broken {
        Broken::Leak(_) => POLICY_VIOLATION,
        Broken::Malformed => PROTOCOL_ERROR,
    };
    let ends = async {
        tokio::join!(
            end(&mut to_server, &outward, Sender::Client, code),
            end(&mut to_client, &inward, Sender::Server, code),
        )
    };
    let _ = tokio::time::timeout(CLOSE_LIMIT, ends).await;
    Some(broken)
}

/// Copies one direction; its end is passed on as the end of writing.
async fn pump<R, W>(from: &mut R, to: &mut W, lane: &mut Lane<'_>) -> Result<(), Stop>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut chunk = Zeroizing::new(vec![0; CHUNK]);
    loop {
        let read = from.read(&mut chunk).await.map_err(Stop::Peer)?;
        if read == 0 {
            return to.shutdown().await.map_err(Stop::Peer);
        }
        let mut out = Zeroizing::new(Vec::with_capacity(read));
        let mut found = Vec::new();
        lane.frames
            .push(&chunk[..read], &mut out, &mut found)
            .map_err(Stop::Broken)?;
        lane.watch.given(&found);
        if out.is_empty() {
            continue;
        }
        lane.whole = false;
        to.write_all(&out).await.map_err(Stop::Peer)?;
        to.flush().await.map_err(Stop::Peer)?;
        lane.whole = lane.frames.is_between();
    }
}

/// Ends a direction with a close frame, unless that would be read as part of another frame.
async fn end<W: AsyncWrite + Unpin>(to: &mut W, lane: &Lane<'_>, sender: Sender, code: u16) {
    if lane.whole {
        let _ = to.write_all(&close_frame(sender, code)).await;
    }
    let _ = to.shutdown().await;
}
