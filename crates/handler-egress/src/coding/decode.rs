//! A coding undone in pieces: bytes are put in as they come, text is taken out in bounded pieces.

use super::{Coding, Corrupt};
use crate::scan::wiped;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, HuffmanCode};
use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// Longest text taken out at a time.
const PIECE: usize = 32 * 1024;
/// Largest window of zstd, as a power of two: what content codings may use (RFC 9659).
const ZSTD_WINDOW: u32 = 23;

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// This text; there may be more.
    Text(Bytes),
    /// Nothing, until more bytes are put in or the end is told.
    Hungry,
    /// Everything has come out.
    End,
}

/// Undoes a coding.
pub(crate) struct Decoder {
    coding: Coding,
    feed: Feed,
    reader: Option<Box<dyn Read + Send>>,
    piece: Zeroizing<Vec<u8>>,
    ended: bool,
}

impl Decoder {
    /// Nothing put in yet.
    pub(crate) fn new(coding: Coding) -> Self {
        Self {
            coding,
            feed: Feed::default(),
            reader: None,
            piece: Zeroizing::default(),
            ended: false,
        }
    }

    /// Puts bytes in; only when [`Decoded::Hungry`].
    pub(crate) fn push(&mut self, data: &Bytes) {
        self.feed.push(data);
    }

    /// Tells that no more bytes come.
    pub(crate) fn close(&mut self) {
        self.feed.with(|pond| pond.closed = true);
    }

    /// Whether the coding is known for sure.
    pub(crate) fn has_begun(&self) -> bool {
        self.reader.is_some()
    }

    /// The coding; sure once it has begun.
    pub(crate) fn coding(&self) -> Coding {
        self.coding
    }

    /// Takes text out.
    pub(crate) fn step(&mut self) -> Result<Decoded, Corrupt> {
        let (waiting, closed) = self.feed.with(|pond| (pond.data.len(), pond.closed));
        if self.ended || (self.reader.is_none() && waiting == 0) {
            // Bytes behind the end are no part of the text, and nobody would have looked at them.
            return match (waiting, closed) {
                (1.., _) => Err(Corrupt),
                (0, true) => Ok(Decoded::End),
                (0, false) => Ok(Decoded::Hungry),
            };
        }
        if self.reader.is_none() && !self.open(waiting, closed)? {
            return Ok(Decoded::Hungry);
        }
        self.read()
    }

    /// Whether there is a reader now.
    fn open(&mut self, waiting: usize, closed: bool) -> Result<bool, Corrupt> {
        // Two bytes tell zlib's frame.
        if waiting < 2 && !closed {
            return Ok(false);
        }
        let feed = self.feed.clone();
        if self.coding == Coding::Deflate && !feed.with(|pond| has_zlib_frame(&pond.data)) {
            self.coding = Coding::BareDeflate;
        }
        self.piece = Zeroizing::new(vec![0; PIECE]);
        self.reader = Some(match self.coding {
            Coding::Gzip => Box::new(flate2::read::MultiGzDecoder::new(feed)),
            Coding::Deflate => Box::new(Inflate::new(feed, true)),
            Coding::BareDeflate => Box::new(Inflate::new(feed, false)),
            Coding::Brotli => Box::new(Unbrotli::new(feed)),
            Coding::Zstd => {
                let mut reader = zstd::stream::read::Decoder::new(feed).map_err(|_| Corrupt)?;
                reader.window_log_max(ZSTD_WINDOW).map_err(|_| Corrupt)?;
                Box::new(reader)
            }
        });
        Ok(true)
    }

    fn read(&mut self) -> Result<Decoded, Corrupt> {
        let Some(reader) = &mut self.reader else {
            return Err(Corrupt);
        };
        match reader.read(&mut self.piece) {
            Ok(0) => {
                self.ended = true;
                self.step()
            }
            Ok(length) => {
                let text = Zeroizing::new(self.piece[..length].to_vec());
                Ok(Decoded::Text(wiped(text)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Decoded::Hungry),
            Err(_) => Err(Corrupt),
        }
    }
}

/// Whether these first bytes begin a zlib stream; else they are taken for a bare one.
fn has_zlib_frame(first: &[u8]) -> bool {
    match first {
        [method, flags, ..] => {
            method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0
        }
        _ => false,
    }
}

/// What was put in and not yet read, shared with the reader.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<Pond>>);

#[derive(Default)]
struct Pond {
    data: Bytes,
    closed: bool,
}

impl Feed {
    fn with<T>(&self, work: impl FnOnce(&mut Pond) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, data: &Bytes) {
        self.with(|pond| {
            pond.data = match pond.data.len() {
                0 => data.clone(),
                _ => [&pond.data[..], data].concat().into(),
            };
        });
    }
}

impl Read for Feed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.with(|pond| match pond.data.len().min(buf.len()) {
            0 if pond.closed || buf.is_empty() => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            length => {
                pond.data.copy_to_slice(&mut buf[..length]);
                Ok(length)
            }
        })
    }
}

/// `deflate`, which must come to its proper end.
struct Inflate {
    feed: Feed,
    state: Decompress,
    ended: bool,
}

impl Inflate {
    fn new(feed: Feed, zlib: bool) -> Self {
        let (state, ended) = (Decompress::new(zlib), false);
        Self { feed, state, ended }
    }
}

impl Read for Inflate {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let (state, ended) = (&mut self.state, &mut self.ended);
        self.feed.with(|pond| {
            let (taken, given) = (state.total_in(), state.total_out());
            let status = state.decompress(&pond.data, buf, FlushDecompress::None)?;
            let taken = usize::try_from(state.total_in() - taken).unwrap_or(usize::MAX);
            pond.data.advance(taken.min(pond.data.len()));
            let given = usize::try_from(state.total_out() - given).unwrap_or(usize::MAX);
            *ended = status == Status::StreamEnd;
            match given {
                0 if *ended => Ok(0),
                0 if pond.closed => Err(io::ErrorKind::UnexpectedEof.into()),
                0 => Err(io::ErrorKind::WouldBlock.into()),
                given => Ok(given),
            }
        })
    }
}

type Heap<T> = brotli::HeapAlloc<T>;

/// `br`, taking no byte behind its end: the library's own reader takes some with it, and nobody would know.
struct Unbrotli {
    feed: Feed,
    state: BrotliState<Heap<u8>, Heap<u32>, Heap<HuffmanCode>>,
    ended: bool,
}

impl Unbrotli {
    fn new(feed: Feed) -> Self {
        let codes = Heap::new(HuffmanCode::default());
        let state = BrotliState::new(Heap::new(0), Heap::new(0), codes);
        let ended = false;
        Self { feed, state, ended }
    }
}

impl Read for Unbrotli {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let (state, ended) = (&mut self.state, &mut self.ended);
        self.feed.with(|pond| {
            let (mut left, mut taken) = (pond.data.len(), 0);
            let (mut room, mut given, mut total) = (buf.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut left, &mut taken, &pond.data, &mut room, &mut given, buf, &mut total, state,
            );
            pond.data.advance(taken.min(pond.data.len()));
            *ended = matches!(result, BrotliResult::ResultSuccess);
            match result {
                BrotliResult::ResultFailure => Err(io::ErrorKind::InvalidData.into()),
                _ if *ended || given > 0 => Ok(given),
                _ if pond.closed => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        })
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("coding", &self.coding)
            .finish_non_exhaustive()
    }
}
