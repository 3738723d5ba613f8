//! A web server that answers `/N` with so many bytes, if the request has the value that it must have.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

/// Starts it; its port. Serves until the process ends.
pub(super) fn start(value: &'static str) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&stream, value).ok());
        }
    });
    Ok(port)
}

fn serve(stream: &TcpStream, value: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream);
    let mut out = stream;
    let body = vec![b'x'; 64 * 1024];
    loop {
        let (mut amount, mut has_value) = (0_usize, false);
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(path) = line.split(' ').nth(1) {
            amount = path
                .rsplit('/')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0);
        }
        while line.trim_end() != "" {
            line.clear();
            lines.read_line(&mut line)?;
            has_value |= line.contains(value);
        }
        let status = if has_value {
            "200 OK"
        } else {
            "401 Unauthorized"
        };
        write!(out, "HTTP/1.1 {status}\r\nContent-Length: {amount}\r\n\r\n")?;
        while amount > 0 {
            let now = amount.min(body.len());
            out.write_all(&body[..now])?;
            amount -= now;
        }
    }
}
