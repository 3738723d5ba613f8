//! Streams by their first bytes: gzip, zstd or plain. What a name or a registry says of them does not count.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use tokio_util::sync::CancellationToken;

/// Largest window of a zstd stream: 2^27 bytes, what its own program takes.
const ZSTD_WINDOW: u32 = 27;

/// How a stream is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// How this file is packed; it is rewound.
pub(crate) fn packing_of(file: &mut File) -> io::Result<Packing> {
    let mut first = Vec::new();
    file.rewind()?;
    Read::by_ref(file).take(4).read_to_end(&mut first)?;
    file.rewind()?;
    Ok(Packing::of(&first))
}

impl Packing {
    /// By the first bytes of a stream.
    pub(crate) fn of(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// The plain stream.
pub(crate) fn plain<'r>(
    packed: impl Read + 'r,
    packing: Packing,
) -> io::Result<Box<dyn Read + 'r>> {
    Ok(match packing {
        Packing::Plain => Box::new(BufReader::with_capacity(128 * 1024, packed)),
        Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(
            128 * 1024,
            packed,
        ))),
        Packing::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(packed)?;
            decoder.window_log_max(ZSTD_WINDOW)?;
            Box::new(decoder)
        }
    })
}

/// A stream that ends with an error when it is cancelled.
pub(crate) struct Cancellable<R> {
    inner: R,
    cancel: CancellationToken,
}

impl<R> Cancellable<R> {
    pub(crate) fn new(inner: R, cancel: &CancellationToken) -> Self {
        Self {
            inner,
            cancel: cancel.clone(),
        }
    }
}

impl<R: Read> Read for Cancellable<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            // Not `Interrupted`: that one is tried again.
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.inner.read(into)
    }
}
