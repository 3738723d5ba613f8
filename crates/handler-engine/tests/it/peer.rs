//! A guest played by the test, which may say anything.

use handler_types::frame::{Frame, FrameDecoder, encode, encode_json};
use handler_types::guest::{Message, Op, PROTOCOL, ProcessInfo, Reply, Request};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

/// How long a test waits for what must come.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Peer {
    pub(crate) socket: PathBuf,
    listener: UnixListener,
    _temp: tempfile::TempDir,
}

/// One accepted connection.
pub(crate) struct Line {
    stream: UnixStream,
    decoder: FrameDecoder,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().expect("temp");
        let socket = temp.path().join("guest.sock");
        Self {
            listener: UnixListener::bind(&socket).expect("bind"),
            socket,
            _temp: temp,
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The next connection, not greeted.
    pub(crate) async fn accept(&self) -> Line {
        let accepted = tokio::time::timeout(SOON, self.listener.accept()).await;
        let (stream, _) = accepted.expect("a connection comes").expect("accept");
        Line {
            stream,
            decoder: FrameDecoder::new(),
        }
    }

    /// The next connection, greeted.
    pub(crate) async fn greet(&self, boot: &str) -> Line {
        let mut line = self.accept().await;
        line.say(&Message::Hello {
            protocol: PROTOCOL,
            version: "test".to_owned(),
            boot: boot.to_owned(),
        })
        .await;
        line
    }
}

impl Line {
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        // The other side may have had enough.
        self.stream.write_all(bytes).await.ok();
    }

    pub(crate) async fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        encode_json(message, &mut bytes).expect("short");
        self.raw(&bytes).await;
    }

    pub(crate) async fn frame(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes).expect("short");
        self.raw(&bytes).await;
    }

    pub(crate) async fn reply(&mut self, id: u32, reply: Reply) {
        self.say(&Message::Reply { id, reply }).await;
    }

    /// The next frame, or `None` when the other side closed.
    pub(crate) async fn hear(&mut self) -> Option<Frame> {
        let mut buffer = [0; 8192];
        loop {
            if let Some(frame) = self.decoder.next().expect("the host speaks well") {
                return Some(frame);
            }
            let read = tokio::time::timeout(SOON, self.stream.read(&mut buffer)).await;
            match read.expect("something comes") {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.decoder.push(&buffer[..n]),
            }
        }
    }

    /// The next request that wants an answer.
    pub(crate) async fn request(&mut self) -> Request {
        loop {
            match self.hear().await.expect("the host stays") {
                Frame::Json(document) => {
                    let request: Request = serde_json::from_slice(&document).expect("a request");
                    if request.id != 0 {
                        return request;
                    }
                }
                other => panic!("a request, not {other:?}"),
            }
        }
    }

    /// The next note (a request with id 0).
    pub(crate) async fn note(&mut self) -> Op {
        match self.hear().await.expect("the host stays") {
            Frame::Json(document) => {
                let request: Request = serde_json::from_slice(&document).expect("a request");
                assert_eq!(request.id, 0, "{request:?}");
                request.op
            }
            other => panic!("a note, not {other:?}"),
        }
    }

    /// Waits until the other side closes.
    pub(crate) async fn closed(&mut self) {
        while self.hear().await.is_some() {}
    }
}

pub(crate) fn info(process: u32) -> ProcessInfo {
    ProcessInfo {
        process,
        pid: 7,
        key: "k".to_owned(),
        tag: String::new(),
        argv: vec!["x".to_owned()],
        ..ProcessInfo::default()
    }
}
