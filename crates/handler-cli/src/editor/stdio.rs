//! The editor's two pipes: one JSON document a line each way.

use super::rpc::{Message, RpcError};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Stdin, Stdout,
};
use tokio::sync::{Mutex, mpsc};

/// Longest line, bytes (contract C.1: messages of 16 MiB, plus what goes round them).
const LONGEST: u64 = 17 * 1024 * 1024;

/// What the editor says.
pub(super) struct Lines {
    lines: mpsc::Receiver<io::Result<Vec<u8>>>,
}

impl Lines {
    /// Reads in a task of its own, so that waiting for a line can be given up without losing part of it.
    pub(super) fn new() -> Self {
        let (sender, lines) = mpsc::channel(16);
        handler_base::tasks::spawn_named("what the editor says", async move {
            let mut input = BufReader::new(tokio::io::stdin());
            while let Some(line) = read(&mut input).await.transpose() {
                let is_last = line.is_err();
                if sender.send(line).await.is_err() || is_last {
                    return;
                }
            }
        });
        Self { lines }
    }

    /// The next line; none at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        self.lines.recv().await
    }
}

async fn read(input: &mut BufReader<Stdin>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = input.take(LONGEST).read_until(b'\n', &mut line).await?;
    match read {
        0 => Ok(None),
        _ if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST => {
            Err(io::Error::other("a message of more than 17 MiB"))
        }
        _ => Ok(Some(line)),
    }
}

/// What the editor is told, from any task.
#[derive(Clone)]
pub(super) struct Out {
    output: Arc<Mutex<Stdout>>,
}

impl Out {
    pub(super) fn new() -> Self {
        Self {
            output: Arc::new(Mutex::new(tokio::io::stdout())),
        }
    }

    /// Sends a message. An editor that is gone ends its own input too: nothing is done about it here.
    pub(super) async fn send(&self, message: &Message) {
        self.line(message.to_line()).await;
    }

    /// Answers a request.
    pub(super) async fn result(&self, id: &Value, result: Value) {
        self.line(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
            .await;
    }

    /// Refuses a request.
    pub(super) async fn error(&self, id: &Value, error: &RpcError) {
        let error = error.to_value();
        self.line(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
            .await;
    }

    /// Tells something.
    pub(super) async fn notify(&self, method: &str, params: Value) {
        self.line(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
            .await;
    }

    async fn line(&self, mut line: String) {
        line.push('\n');
        let mut output = self.output.lock().await;
        let written = async {
            output.write_all(line.as_bytes()).await?;
            output.flush().await
        };
        written.await.ok();
    }
}
