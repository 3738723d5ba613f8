//! A coding done in pieces. Favours speed: the other end asked for a coding, not for the best one.

use super::{Coding, Corrupt};
use crate::scan::wiped;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use std::fmt;
use std::io::{self, Write};
use zeroize::Zeroizing;

/// Buffer, quality and window of brotli.
const BROTLI: (usize, u32, u32) = (8 * 1024, 3, 18);
const ZSTD_LEVEL: i32 = 1;

/// Does a coding.
pub(crate) struct Encoder {
    writer: Writer,
    /// Whether text waits inside for more.
    waiting: bool,
}

enum Writer {
    Gzip(GzEncoder<Vec<u8>>),
    Zlib(ZlibEncoder<Vec<u8>>),
    Bare(DeflateEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Nothing put in yet.
    pub(crate) fn new(coding: Coding) -> Result<Self, Corrupt> {
        let (out, level) = (Vec::new(), Compression::fast());
        let writer = match coding {
            Coding::Gzip => Writer::Gzip(GzEncoder::new(out, level)),
            Coding::Deflate => Writer::Zlib(ZlibEncoder::new(out, level)),
            Coding::BareDeflate => Writer::Bare(DeflateEncoder::new(out, level)),
            Coding::Brotli => {
                let (buffer, quality, window) = BROTLI;
                let writer = brotli::CompressorWriter::new(out, buffer, quality, window);
                Writer::Brotli(Box::new(writer))
            }
            Coding::Zstd => {
                let writer = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL);
                Writer::Zstd(writer.map_err(|_| Corrupt)?)
            }
        };
        let waiting = false;
        Ok(Self { writer, waiting })
    }

    /// Puts text in; gives what comes out, which may be nothing.
    pub(crate) fn push(&mut self, text: &[u8]) -> Result<Bytes, Corrupt> {
        self.waiting |= !text.is_empty();
        self.writer.inner().write_all(text).map_err(|_| Corrupt)?;
        Ok(self.writer.take())
    }

    /// Gives everything that waits, so that the receiver can read it now.
    pub(crate) fn flush(&mut self) -> Result<Bytes, Corrupt> {
        if !std::mem::take(&mut self.waiting) {
            return Ok(Bytes::new());
        }
        self.writer.inner().flush().map_err(|_| Corrupt)?;
        Ok(self.writer.take())
    }

    /// Gives the end.
    pub(crate) fn finish(self) -> Result<Bytes, Corrupt> {
        let out = self.writer.finish().map_err(|_| Corrupt)?;
        Ok(wiped(Zeroizing::new(out)))
    }
}

impl Writer {
    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Self::Gzip(writer) => writer,
            Self::Zlib(writer) => writer,
            Self::Bare(writer) => writer,
            Self::Brotli(writer) => writer,
            Self::Zstd(writer) => writer,
        }
    }

    fn take(&mut self) -> Bytes {
        let out = match self {
            Self::Gzip(writer) => writer.get_mut(),
            Self::Zlib(writer) => writer.get_mut(),
            Self::Bare(writer) => writer.get_mut(),
            Self::Brotli(writer) => writer.get_mut(),
            Self::Zstd(writer) => writer.get_mut(),
        };
        wiped(Zeroizing::new(std::mem::take(out)))
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(writer) => writer.finish(),
            Self::Zlib(writer) => writer.finish(),
            Self::Bare(writer) => writer.finish(),
            Self::Brotli(writer) => Ok(writer.into_inner()),
            Self::Zstd(writer) => writer.finish(),
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}
