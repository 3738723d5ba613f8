//! HTTP written by hand: what no client of ours would send.

use crate::inside::{LONG, show};
use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// An answer to a request made by hand.
#[derive(Debug)]
pub struct Reply {
    /// The code.
    pub status: u16,
    /// Status line and headers, lower case.
    pub head: String,
    /// What came after the headers.
    pub body: String,
}

/// Sends a request written by hand to the loopback port: first the request line, then its headers.
///
/// # Errors
/// When no whole answer comes.
pub async fn http(port: u16, head: &[&str], body: &str) -> anyhow::Result<Reply> {
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        let length = format!("Content-Length: {}", body.len());
        let lines = [head, &["Connection: close", &length, "", body]].concat();
        stream.write_all(lines.join("\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(LONG, exchange).await??;
    let answer = show(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Reply {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}
