//! A file being written: one stream to the guest, which puts the file in its place when the client closes it.
//!
//! The client writes in order. Parts of the old file that it does not write (it opened without cutting off, or skips
//! ahead) are copied from it. Invariant: only [`Writer::finish`] ends the stream well; else the old file stays.

use bytes::Bytes;
use handler_engine::GuestHandle;
use handler_engine::guest::{GuestCallError, Written};
use russh_sftp::protocol::StatusCode;
use russh_sftp::server::StatusReply;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pieces on their way to the guest.
const ON_THE_WAY: usize = 8;
/// Longest piece of zeros, bytes.
const ZEROS: usize = 64 * 1024;
/// Longest gap that is filled with zeros, bytes.
const LONGEST_GAP: u64 = 1024 * 1024 * 1024;

enum Piece {
    Bytes(Bytes),
    /// All was written.
    Finished,
}

/// A file open for writing.
#[derive(Debug)]
pub(crate) struct Writer {
    guest: GuestHandle,
    pub(crate) path: String,
    pieces: mpsc::Sender<Piece>,
    writing: JoinHandle<Result<Written, GuestCallError>>,
    /// Bytes written so far.
    pub(crate) end: u64,
    /// Size of the old file, when what is not written stays.
    old: u64,
    /// Writes go to the end, wherever the client says.
    appends: bool,
    /// To be set when the file is in its place.
    pub(crate) mode: Option<u32>,
    /// As `mode`: modification time, seconds since the epoch.
    pub(crate) mtime: Option<u32>,
}

impl Writer {
    /// Begins. `old` is the size of a file whose content is to stay where it is not written; 0: none.
    pub(crate) fn begin(
        guest: &GuestHandle,
        path: String,
        mode: Option<u32>,
        old: u64,
        appends: bool,
    ) -> Self {
        let (pieces, receiver) = mpsc::channel(ON_THE_WAY);
        let (writer, target) = (guest.clone(), path.clone());
        // It ends by itself: when the sender goes, or the guest refuses.
        let writing = tokio::spawn(async move {
            let content = futures::stream::unfold(Some(receiver), |receiver| async move {
                let mut receiver = receiver?;
                match receiver.recv().await {
                    Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(receiver))),
                    Some(Piece::Finished) => None,
                    None => Some((Err("given up by the client".to_owned()), None)),
                }
            });
            writer.write_file(&target, mode, false, content).await
        });
        Self {
            guest: guest.clone(),
            path,
            pieces,
            writing,
            end: 0,
            old,
            appends,
            mode: None,
            mtime: None,
        }
    }

    /// How long the file would be now.
    pub(crate) fn size(&self) -> u64 {
        self.end.max(self.old)
    }

    /// Writes at `offset`.
    pub(crate) async fn write(&mut self, offset: u64, data: Vec<u8>) -> Result<(), StatusReply> {
        let offset = if self.appends {
            self.old.max(self.end)
        } else {
            offset
        };
        if offset < self.end {
            return Err(StatusCode::OpUnsupported.with_message("files are written in order only"));
        }
        self.fill(offset).await?;
        let length = data.len() as u64;
        self.send(data.into()).await?;
        self.end += length;
        Ok(())
    }

    async fn send(&mut self, bytes: Bytes) -> Result<(), StatusReply> {
        if bytes.is_empty() || self.pieces.send(Piece::Bytes(bytes)).await.is_ok() {
            return Ok(());
        }
        Err(self.outcome().await.err().unwrap_or_else(|| {
            StatusCode::Failure.with_message("the file was closed before its end")
        }))
    }

    /// Copies the old file up to `to`, then zeros.
    async fn fill(&mut self, to: u64) -> Result<(), StatusReply> {
        let kept = to.min(self.old);
        if self.end < kept {
            let length = kept - self.end;
            let guest = self.guest.clone();
            let read = guest.read_file(&self.path, self.end, Some(length)).await;
            let (_, mut stream) = read.map_err(|e| super::attributes::error(&e))?;
            while let Some(piece) = stream.next().await {
                let piece = piece.map_err(|e| super::attributes::error(&e))?;
                self.end += piece.len() as u64;
                self.send(piece).await?;
            }
        }
        let gap = to.saturating_sub(self.end);
        if gap > LONGEST_GAP {
            return Err(StatusCode::OpUnsupported.with_message("too long a gap before this write"));
        }
        while self.end < to {
            let length = usize::try_from(to - self.end).unwrap_or(ZEROS).min(ZEROS);
            self.send(vec![0; length].into()).await?;
            self.end += length as u64;
        }
        Ok(())
    }

    /// The client closed it: the rest of the old file follows, and it is put in its place.
    pub(crate) async fn finish(mut self) -> Result<(), StatusReply> {
        self.fill(self.old).await?;
        self.pieces.send(Piece::Finished).await.ok();
        self.outcome().await
    }

    async fn outcome(&mut self) -> Result<(), StatusReply> {
        match (&mut self.writing).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(super::attributes::error(&error)),
            Err(_) => Err(StatusCode::Failure.into()),
        }
    }
}
