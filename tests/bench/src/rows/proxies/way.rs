//! A way to an origin through a proxy.

use anyhow::{Context as _, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest head of an answer.
const MAX_HEAD: usize = 4096;
/// How long a silent wire is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream of either kind.
pub(super) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

#[derive(Debug)]
enum Place {
    Unix(PathBuf),
    Tcp(u16),
}

/// Where the proxy listens, and what it is asked for.
#[derive(Debug)]
pub(super) struct Way {
    place: Place,
    target: String,
}

impl Way {
    pub(super) fn unix(path: PathBuf, target: String) -> Self {
        let place = Place::Unix(path);
        Self { place, target }
    }

    pub(super) fn tcp(port: u16, target: String) -> Self {
        let place = Place::Tcp(port);
        Self { place, target }
    }

    fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        match &self.place {
            Place::Unix(path) => {
                let stream =
                    UnixStream::connect(path).with_context(|| path.display().to_string())?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Place::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
        }
    }

    /// A tunnel that stands.
    pub(super) fn tunnel(&self) -> anyhow::Result<Box<dyn Stream>> {
        let mut stream = self.connect()?;
        let target = &self.target;
        write!(
            stream,
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
        )?;
        head(&mut stream)?;
        Ok(stream)
    }

    /// A kept connection for requests with a key.
    pub(super) fn requests(&self, key: &str) -> anyhow::Result<Requests> {
        Ok(Requests {
            stream: self.connect()?,
            target: self.target.clone(),
            key: key.to_owned(),
        })
    }
}

/// Reads the head of an answer that must be a good one; its `Content-Length`.
fn head(stream: &mut impl Read) -> anyhow::Result<usize> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        ensure!(
            stream.read(&mut byte)? == 1 && head.len() < MAX_HEAD,
            "no answer"
        );
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let first = head.lines().next().unwrap_or_default();
    ensure!(
        first.split(' ').nth(1) == Some("200"),
        "the answer is {first:?}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    Ok(length.map_or(Ok(0), |length| length.trim().parse())?)
}

/// Requests one after the other.
pub(super) struct Requests {
    stream: Box<dyn Stream>,
    target: String,
    key: String,
}

impl Requests {
    /// Asks for so many bytes; how long it took, milliseconds.
    pub(super) fn ask(&mut self, amount: usize) -> anyhow::Result<f64> {
        let (target, key) = (&self.target, &self.key);
        let request = format!(
            "GET http://{target}/{amount} HTTP/1.1\r\nHost: {target}\r\nX-Api-Key: {key}\r\n\r\n"
        );
        let began = Instant::now();
        self.stream.write_all(request.as_bytes())?;
        let length = head(&mut self.stream)?;
        ensure!(length == amount, "{length} bytes are said to come");
        let mut buffer = vec![0; 256 * 1024];
        let mut left = amount;
        while left > 0 {
            let most = buffer.len().min(left);
            let read = self.stream.read(&mut buffer[..most])?;
            ensure!(read > 0, "{left} bytes did not come");
            left -= read;
        }
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }
}
