//! A minimal HTTP client that shows the framing instead of hiding it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use handler_scripted::{ScriptedConfig, ScriptedModel};
use serde_json::Value;

/// A server without a key and with quick words.
pub(crate) fn model() -> ScriptedModel {
    model_with(ScriptedConfig::default())
}

/// A server so configured.
pub(crate) fn model_with(config: ScriptedConfig) -> ScriptedModel {
    let config = ScriptedConfig {
        word_delay: Duration::from_millis(1),
        ..config
    };
    ScriptedModel::start(config).expect("a free port")
}

/// A response as read from the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked")
    }
}

/// Posts JSON.
pub(crate) fn post(model: &ScriptedModel, path: &str, body: &Value) -> Answer {
    send(model, "POST", path, &[], body.to_string().as_bytes())
}

/// One request on a connection of its own.
pub(crate) fn send(
    model: &ScriptedModel,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", model.port())).expect("connected");
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout");
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: model\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).expect("written");
    stream.write_all(body).expect("written");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("read to the end");
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8(bytes.to_vec()).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    let mut answer = Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    };
    if answer.is_chunked() {
        answer.body = dechunked(body);
    }
    answer
}

fn dechunked(mut rest: &str) -> String {
    let mut whole = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").expect("a chunk size");
        let size = usize::from_str_radix(size, 16).expect("a hexadecimal size");
        if size == 0 {
            return whole;
        }
        whole.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").expect("a chunk's end");
    }
}
