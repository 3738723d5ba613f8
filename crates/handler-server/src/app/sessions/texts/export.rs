//! A session as one document: Markdown for people, JSON for programs. Made while it is sent, whatever its size.

mod markdown;

use super::super::find;
use super::log;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use bytes::Bytes;
use handler_store::LogHistory;
use handler_types::session::SessionView;
use markdown::Markdown;
use std::io;
use std::path::Path;
use tokio::sync::mpsc;

/// Bytes put together before they are sent.
const PIECE: usize = 64 * 1024;

/// Which document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// To read.
    #[default]
    Markdown,
    /// The session and all its events.
    Json,
}

/// Pieces of the document; one that is an error is the last: the document is not whole then.
pub(crate) type Pieces = mpsc::Receiver<io::Result<Bytes>>;

/// Begins it; the session is as it is now, events that come meanwhile are in it too.
///
/// # Errors
/// 404, a log that cannot be opened.
pub(crate) async fn export(
    app: &App,
    text: &str,
    format: Format,
) -> ApiResult<(SessionView, Pieces)> {
    let view = find(app, text).await?;
    let history = open(&log(app, &view.id))?;
    let (sender, pieces) = mpsc::channel(4);
    let session = view.clone();
    tokio::task::spawn_blocking(move || {
        let mut out = Sink {
            sender,
            piece: Vec::new(),
        };
        let done = match format {
            Format::Markdown => as_markdown(&session, history, &mut out),
            Format::Json => as_json(&session, history, &mut out),
        };
        out.end(done);
    });
    Ok((view, pieces))
}

fn open(path: &Path) -> ApiResult<Option<LogHistory>> {
    LogHistory::open(path, 0).map_err(|error| ApiError::internal("a session's log", &error))
}

struct Sink {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::Error::other("nobody reads the document any more"))
    }

    fn end(mut self, done: io::Result<()>) {
        if let Err(error) = done.and_then(|()| self.flush()) {
            self.sender.blocking_send(Err(error)).ok();
        }
    }
}

fn as_json(session: &SessionView, history: Option<LogHistory>, out: &mut Sink) -> io::Result<()> {
    out.write(b"{\"session\":")?;
    out.write(&serde_json::to_vec(session).map_err(io::Error::other)?)?;
    out.write(b",\"events\":[")?;
    let mut is_first = true;
    if let Some(mut history) = history {
        while let Some(line) = history.next_line()? {
            out.write(if is_first { b"\n" } else { b",\n" })?;
            out.write(line)?;
            is_first = false;
        }
    }
    out.write(b"\n]}\n")
}

fn as_markdown(
    session: &SessionView,
    history: Option<LogHistory>,
    out: &mut Sink,
) -> io::Result<()> {
    let mut markdown = Markdown::default();
    out.write(markdown::head(session).as_bytes())?;
    if let Some(mut history) = history {
        while let Some(line) = history.next_line()? {
            out.write(markdown.take(line).as_bytes())?;
        }
    }
    out.write(markdown.end().as_bytes())
}
