//! A file being read: one stream from the guest, opened anew only when the client jumps.

use bytes::{Buf as _, Bytes};
use handler_engine::GuestHandle;
use handler_engine::guest::{FileStream, GuestCallError};

/// Longest answer, bytes.
const LONGEST: usize = 256 * 1024;

/// A file open for reading.
#[derive(Debug)]
pub(crate) struct Reader {
    path: String,
    size: u64,
    /// The stream, and the offset of the next byte from it.
    stream: Option<(u64, FileStream)>,
    rest: Bytes,
}

impl Reader {
    /// Opens it; the stream begins at its start.
    pub(crate) async fn open(guest: &GuestHandle, path: String) -> Result<Self, GuestCallError> {
        let (meta, stream) = guest.read_file(&path, 0, None).await?;
        Ok(Self {
            path,
            size: meta.size,
            stream: Some((0, stream)),
            rest: Bytes::new(),
        })
    }

    /// Its path, as the guest writes it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// At most `length` bytes from `offset`; none at the end.
    pub(crate) async fn read(
        &mut self,
        guest: &GuestHandle,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, GuestCallError> {
        let wanted = (length as usize).min(LONGEST);
        self.seek(guest, offset).await?;
        let Some((next, stream)) = &mut self.stream else {
            return Ok(Vec::new());
        };
        let mut data = Vec::with_capacity(wanted);
        while data.len() < wanted {
            if self.rest.is_empty() {
                match stream.next().await {
                    Some(piece) => self.rest = piece?,
                    None => break,
                }
            }
            let take = self.rest.len().min(wanted - data.len());
            data.extend_from_slice(&self.rest[..take]);
            self.rest.advance(take);
        }
        *next += data.len() as u64;
        Ok(data)
    }

    async fn seek(&mut self, guest: &GuestHandle, offset: u64) -> Result<(), GuestCallError> {
        if self
            .stream
            .as_ref()
            .is_some_and(|(next, _)| *next == offset)
        {
            return Ok(());
        }
        // Clients ask ahead, beyond the end too; files that do not know their size are read all the same.
        if self.size > 0 && offset >= self.size {
            let now = guest.stat(&self.path).await?.size;
            self.size = now.max(1);
            if offset >= now {
                self.stream = None;
                return Ok(());
            }
        }
        self.rest = Bytes::new();
        let (_, stream) = guest.read_file(&self.path, offset, None).await?;
        self.stream = Some((offset, stream));
        Ok(())
    }
}
