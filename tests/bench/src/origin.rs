//! What lies behind the relay and the filter: a loopback server that sends, takes or echoes, and the
//! client that measures it. Both on plain blocking sockets, so that they cost as little as can be.
//!
//! A connection begins with one byte (`d`: send, `u`: take, `e`: echo) and a little-endian `u64` amount.

use crate::measure::{mb_per_s, us_since};
use anyhow::ensure;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Bytes written at a time.
const CHUNK: usize = 256 * 1024;
/// Bytes of one echo.
const PING: usize = 64;

/// The server; serves until the process ends.
#[derive(Debug)]
pub(crate) struct Origin {
    port: u16,
}

impl Origin {
    /// Starts it on a free loopback port.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that leaves half-way ends its own connection only.
                std::thread::spawn(move || serve(stream).ok());
            }
        });
        Ok(Self { port })
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let mut left = u64::from_le_bytes(head[1..].try_into().unwrap_or_default());
    let mut buffer = vec![0x5a; CHUNK];
    match head[0] {
        b'd' => {
            while left > 0 {
                let now = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                stream.write_all(&buffer[..now])?;
                left -= now as u64;
            }
        }
        b'u' => {
            while left > 0 {
                let read = stream.read(&mut buffer)?;
                if read == 0 {
                    return Ok(());
                }
                left = left.saturating_sub(read as u64);
            }
            stream.write_all(b"!")?;
        }
        _ => loop {
            stream.read_exact(&mut buffer[..PING])?;
            stream.write_all(&buffer[..PING])?;
        },
    }
    Ok(())
}

/// The client's end of a connection to the origin, whatever lies between.
#[derive(Debug)]
pub(crate) struct Wire<S>(S);

impl<S: Read + Write> Wire<S> {
    /// Over a stream that reaches the origin.
    pub(crate) fn new(stream: S) -> Self {
        Self(stream)
    }

    fn order(&mut self, what: u8, amount: u64) -> std::io::Result<()> {
        let mut head = [what; 9];
        head[1..].copy_from_slice(&amount.to_le_bytes());
        self.0.write_all(&head)
    }

    /// Takes `amount` bytes; 10^6 bytes a second.
    pub(crate) fn download(mut self, amount: u64) -> anyhow::Result<f64> {
        let mut buffer = vec![0; CHUNK];
        let began = Instant::now();
        self.order(b'd', amount)?;
        let mut left = amount;
        while left > 0 {
            let read = self.0.read(&mut buffer)?;
            ensure!(read > 0, "{left} bytes did not come");
            left = left.saturating_sub(read as u64);
        }
        Ok(mb_per_s(amount, began.elapsed()))
    }

    /// Sends `amount` bytes and waits until they have come; 10^6 bytes a second.
    pub(crate) fn upload(mut self, amount: u64) -> anyhow::Result<f64> {
        let buffer = vec![0xa5; CHUNK];
        let began = Instant::now();
        self.order(b'u', amount)?;
        let mut left = amount;
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            self.0.write_all(&buffer[..now])?;
            left -= now as u64;
        }
        self.0.read_exact(&mut [0])?;
        Ok(mb_per_s(amount, began.elapsed()))
    }

    /// Sends and takes back a few bytes `times` times; microseconds each. Can be called again.
    pub(crate) fn echo(&mut self, times: usize) -> anyhow::Result<Vec<f64>> {
        self.order(b'e', 0)?;
        self.echo_again(times)
    }

    /// As [`Wire::echo`] on a wire that echoes already.
    pub(crate) fn echo_again(&mut self, times: usize) -> anyhow::Result<Vec<f64>> {
        let mut samples = Vec::with_capacity(times);
        let mut bytes = [7; PING];
        for _ in 0..times {
            let began = Instant::now();
            self.0.write_all(&bytes)?;
            self.0.read_exact(&mut bytes)?;
            samples.push(us_since(began));
        }
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(origin: &Origin) -> Wire<TcpStream> {
        Wire::new(TcpStream::connect(origin.address()).expect("connect"))
    }

    #[test]
    fn it_sends_takes_and_echoes() {
        let origin = Origin::start().expect("origin");
        assert!(wire(&origin).download(3_000_001).expect("download") > 0.0);
        assert!(wire(&origin).upload(3_000_001).expect("upload") > 0.0);
        let mut echoing = wire(&origin);
        assert_eq!(echoing.echo(2).expect("echo").len(), 2);
        assert_eq!(echoing.echo_again(3).expect("echo").len(), 3);
    }

    #[test]
    fn bytes_that_do_not_come_are_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            stream.read_exact(&mut [0; 9]).expect("order");
        });
        let stream = TcpStream::connect(address).expect("connect");
        assert!(Wire::new(stream).download(10).is_err());
        server.join().expect("server");
    }
}
