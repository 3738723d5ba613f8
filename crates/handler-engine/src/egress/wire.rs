//! One connection to the control socket: a line out, a line back, each within a time.

use super::EgressLinkError;
use handler_types::egress::{EGRESS_PROTOCOL, EgressAnswer, EgressRequest};
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use zeroize::{Zeroize as _, Zeroizing};

/// Longest line taken from the filter.
const LONGEST_LINE: u64 = 16 * 1024 * 1024;
/// How long an answer may take. Removing waits for connections to end, and for that 5 s at most.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
const HELLO_LIMIT: Duration = Duration::from_secs(15);

/// A connection that has been greeted.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    /// Process at the other end.
    pub(super) pid: u32,
    /// Version of the protocol it speaks.
    pub(super) protocol: u32,
}

impl Connection {
    /// Connects and greets; `None` if nobody listens there.
    pub(super) async fn open(socket: &Path) -> Result<Option<Self>, EgressLinkError> {
        let stream = match UnixStream::connect(socket).await {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let mut connection = Self {
            stream: BufReader::new(stream),
            pid: 0,
            protocol: 0,
        };
        let hello = EgressRequest::Hello {
            protocol: EGRESS_PROTOCOL,
        };
        match tokio::time::timeout(HELLO_LIMIT, connection.exchange(hello)).await {
            Ok(Ok(EgressAnswer::Hello { protocol, pid, .. })) => {
                connection.pid = pid;
                connection.protocol = protocol;
                Ok(Some(connection))
            }
            Ok(Ok(_)) => Err(EgressLinkError::Protocol),
            // It was just ending.
            Ok(Err(EgressLinkError::Broken(_))) => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(EgressLinkError::Silent(socket.to_owned())),
        }
    }

    /// Asks and waits for the answer; a failure the filter reports is an error.
    pub(super) async fn ask(
        &mut self,
        request: EgressRequest,
    ) -> Result<EgressAnswer, EgressLinkError> {
        let answer = tokio::time::timeout(ANSWER_LIMIT, self.exchange(request)).await;
        match answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            EgressAnswer::Failed { message } => Err(EgressLinkError::Refused(message)),
            answer => Ok(answer),
        }
    }

    async fn exchange(&mut self, request: EgressRequest) -> Result<EgressAnswer, EgressLinkError> {
        self.send(request).await?;
        let line = self.line().await?.ok_or_else(ended)?;
        parse(&line).ok_or(EgressLinkError::Protocol)
    }

    /// Sends a request, wiping what it held.
    pub(super) async fn send(&mut self, mut request: EgressRequest) -> Result<(), EgressLinkError> {
        let line = encode(&request);
        if let EgressRequest::Put { settings, .. } = &mut request {
            for injection in &mut settings.injections {
                injection.value.zeroize();
            }
        }
        self.stream.write_all(&line?).await?;
        Ok(())
    }

    /// Sends a line that is no request.
    pub(super) async fn tell(
        &mut self,
        what: &impl serde::Serialize,
    ) -> Result<(), EgressLinkError> {
        let mut line = serde_json::to_vec(what).map_err(io::Error::from)?;
        line.push(b'\n');
        self.stream.write_all(&line).await?;
        Ok(())
    }

    /// The next line; `None` at the end.
    pub(super) async fn line(&mut self) -> Result<Option<Vec<u8>>, EgressLinkError> {
        let mut line = Vec::new();
        let read = (&mut self.stream)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .await?;
        match read {
            0 => Ok(None),
            _ if line.ends_with(b"\n") => Ok(Some(line)),
            _ => Err(EgressLinkError::Protocol),
        }
    }

    /// Waits until the other end closes.
    pub(super) async fn closed(&mut self) {
        while let Ok(Some(_)) = self.line().await {}
    }
}

fn ended() -> EgressLinkError {
    EgressLinkError::Broken(io::ErrorKind::UnexpectedEof.into())
}

fn encode(request: &EgressRequest) -> io::Result<Zeroizing<Vec<u8>>> {
    // Room at once: a buffer that grows leaves copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(64 * 1024));
    serde_json::to_writer(&mut *line, request)?;
    line.push(b'\n');
    Ok(line)
}

/// A line as JSON.
pub(super) fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}
