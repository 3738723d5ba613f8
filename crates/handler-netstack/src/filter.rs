//! Talking to the egress filter: one connection for each question, HTTP/1.1 heads only.

use crate::flow::{Refusal, Target};
use crate::limits;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The host of the filter under which it answers about names.
pub(crate) const NAMES_HOST: &str = "names.handler.internal";

/// A tunnel that the filter opened.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) stream: UnixStream,
    /// What came behind the answer already.
    pub(crate) early: Vec<u8>,
}

/// Asks for a tunnel.
pub(crate) async fn connect(socket: &Path, target: &Target) -> Result<Tunnel, Refusal> {
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    match ask(socket, &request, limits::CONNECT).await {
        Ok((200..=299, stream, early)) => Ok(Tunnel { stream, early }),
        // Allowed, but the other end or the way to it does not answer.
        Ok((502..=504, ..)) | Err(_) => Err(Refusal::Unreachable),
        Ok(_) => Err(Refusal::Refused),
    }
}

/// Whether any port of a name may be reached. The name is a host name already.
pub(crate) async fn is_listed(socket: &Path, name: &str) -> io::Result<bool> {
    let request = format!(
        "GET http://{NAMES_HOST}/v1/names/{name} HTTP/1.1\r\nHost: {NAMES_HOST}\r\nConnection: close\r\n\r\n"
    );
    match ask(socket, &request, limits::ASK).await?.0 {
        200..=299 => Ok(true),
        404 => Ok(false),
        status => Err(io::Error::other(format!("the filter answered {status}"))),
    }
}

/// Sends a head and reads one: its status, the stream behind it and what came of it already.
async fn ask(
    socket: &Path,
    request: &str,
    limit: Duration,
) -> io::Result<(u16, UnixStream, Vec<u8>)> {
    let asking = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::with_capacity(512);
        loop {
            if let Some((status, length)) = parse(&head)? {
                return Ok((status, stream, head.split_off(length)));
            }
            if head.len() >= limits::HEAD {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if stream.read_buf(&mut head).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    };
    timeout(limit, asking)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Status and length of a whole head.
fn parse(head: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response
        .parse(head)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let httparse::Status::Complete(length) = parsed else {
        return Ok(None);
    };
    Ok(response.code.map(|code| (code, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let text = b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nearly";
        assert_eq!(parse(text).expect("a head"), Some((200, text.len() - 5)));
        assert_eq!(parse(&text[..20]).expect("a part"), None);
        assert!(parse(b"SSH-2.0-x\r\n").is_err());
    }
}
