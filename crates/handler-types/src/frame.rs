//! Frames of the guest link: bytes to frames and back, without any I/O.
//!
//! Owns the outer shape described in [`crate::guest`]. Invariant: whatever bytes are pushed, the
//! decoder never panics and never holds more than one longest frame beyond the last push; after an
//! error the stream has lost its place and the link must be closed.

use crate::guest::{
    KIND_FILE, KIND_INPUT, KIND_JSON, KIND_OUTPUT, MAX_CHUNK, MAX_FRAME, ProcessNumber, Stream,
};
use serde::Serialize;

/// Bytes of the length field.
const LENGTH: usize = 4;
/// Bytes before the content of an output frame, kind byte included.
const OUTPUT_HEAD: usize = 1 + 4 + 8 + 1;
/// Bytes before the content of an input frame, kind byte included.
const INPUT_HEAD: usize = 1 + 4 + 8;
/// Bytes before the content of a file frame, kind byte included.
const FILE_HEAD: usize = 1 + 4;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A JSON document, not yet read.
    Json(Vec<u8>),
    /// Output of a process.
    Output {
        /// The process.
        process: ProcessNumber,
        /// Offset of the first byte in the merged output.
        offset: u64,
        /// Which stream it came from.
        stream: Stream,
        /// At most [`MAX_CHUNK`] bytes.
        data: Vec<u8>,
    },
    /// Input for a process.
    Input {
        /// The process.
        process: ProcessNumber,
        /// Offset of the first byte in the input.
        offset: u64,
        /// At most [`MAX_CHUNK`] bytes.
        data: Vec<u8>,
    },
    /// Part of a file.
    File {
        /// The request it belongs to.
        request: u32,
        /// At most [`MAX_CHUNK`] bytes; none ends the file.
        data: Vec<u8>,
    },
}

/// Why bytes are no frame, or a frame cannot be put into bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is 0.
    #[error("a frame of length 0")]
    Empty,
    /// The length is above [`MAX_FRAME`].
    #[error("a frame of {0} bytes; at most {MAX_FRAME} are allowed")]
    TooLong(usize),
    /// The kind byte is none of this version.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// The frame is shorter than its fixed part.
    #[error("a frame of kind {0} is shorter than its head")]
    ShortHead(u8),
    /// The stream byte of an output frame is unknown.
    #[error("unknown output stream {0}")]
    UnknownStream(u8),
    /// Content above [`MAX_CHUNK`].
    #[error("a chunk of {0} bytes; at most {MAX_CHUNK} are allowed")]
    ChunkTooLong(usize),
    /// A value that JSON cannot express; only when encoding.
    #[error("a message could not be written as JSON")]
    Json,
}

/// Turns bytes, cut anywhere, into frames.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Bytes before it are used up.
    start: usize,
    /// The error the stream ended with; said again by every later call.
    broken: Option<FrameError>,
}

impl FrameDecoder {
    /// An empty decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes as they came. Call [`Self::next`] until it gives `None` before pushing more, so
    /// that the buffer stays small.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// When the bytes are no frame; every later call gives the same error.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not go on after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        self.cut().inspect_err(|error| {
            self.broken = Some(*error);
            self.buffer = Vec::new();
            self.start = 0;
        })
    }

    /// Whether bytes of an unfinished frame are held: the stream must not end here.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        self.start < self.buffer.len()
    }

    fn cut(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some((head, rest)) = rest.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length == 0 {
            return Err(FrameError::Empty);
        }
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = rest.get(..length) else {
            // A wrong kind is known before the whole frame is here.
            if let Some(kind) = rest.first() {
                check_kind(*kind)?;
            }
            return Ok(None);
        };
        let frame = parse(body)?;
        self.start += LENGTH + length;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        Ok(Some(frame))
    }
}

fn check_kind(kind: u8) -> Result<(), FrameError> {
    match kind {
        KIND_JSON | KIND_OUTPUT | KIND_INPUT | KIND_FILE => Ok(()),
        other => Err(FrameError::UnknownKind(other)),
    }
}

/// Reads a frame's bytes after the length; `body` is not empty.
fn parse(body: &[u8]) -> Result<Frame, FrameError> {
    let (kind, rest) = body.split_first().ok_or(FrameError::Empty)?;
    let short = FrameError::ShortHead(*kind);
    match *kind {
        KIND_JSON => Ok(Frame::Json(rest.to_vec())),
        KIND_OUTPUT => {
            let (process, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
            let (offset, rest) = rest.split_first_chunk::<8>().ok_or(short)?;
            let (stream, data) = rest.split_first().ok_or(short)?;
            Ok(Frame::Output {
                process: u32::from_be_bytes(*process),
                offset: u64::from_be_bytes(*offset),
                stream: Stream::from_byte(*stream).ok_or(FrameError::UnknownStream(*stream))?,
                data: chunk(data)?,
            })
        }
        KIND_INPUT => {
            let (process, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
            let (offset, data) = rest.split_first_chunk::<8>().ok_or(short)?;
            Ok(Frame::Input {
                process: u32::from_be_bytes(*process),
                offset: u64::from_be_bytes(*offset),
                data: chunk(data)?,
            })
        }
        KIND_FILE => {
            let (request, data) = rest.split_first_chunk::<4>().ok_or(short)?;
            Ok(Frame::File {
                request: u32::from_be_bytes(*request),
                data: chunk(data)?,
            })
        }
        other => Err(FrameError::UnknownKind(other)),
    }
}

fn chunk(data: &[u8]) -> Result<Vec<u8>, FrameError> {
    check_chunk(data)?;
    Ok(data.to_vec())
}

fn check_chunk(data: &[u8]) -> Result<(), FrameError> {
    if data.len() > MAX_CHUNK {
        return Err(FrameError::ChunkTooLong(data.len()));
    }
    Ok(())
}

/// Appends a frame to `out`.
///
/// # Errors
/// When it is longer than the protocol allows; `out` is then unchanged.
pub fn encode(frame: &Frame, out: &mut Vec<u8>) -> Result<(), FrameError> {
    match frame {
        Frame::Json(document) => encode_document(document, out),
        Frame::Output {
            process,
            offset,
            stream,
            data,
        } => encode_output(*process, *offset, *stream, data, out),
        Frame::Input {
            process,
            offset,
            data,
        } => encode_input(*process, *offset, data, out),
        Frame::File { request, data } => encode_file(*request, data, out),
    }
}

/// Appends a JSON frame with `value` (a [`crate::guest::Request`] or [`crate::guest::Message`]).
///
/// # Errors
/// When it is longer than [`MAX_FRAME`] or no JSON; `out` is then unchanged.
pub fn encode_json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let before = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    out.push(KIND_JSON);
    let written = serde_json::to_writer(&mut *out, value);
    let length = out.len() - before - LENGTH;
    let problem = match written {
        Err(_) => Some(FrameError::Json),
        Ok(()) if length > MAX_FRAME => Some(FrameError::TooLong(length)),
        Ok(()) => None,
    };
    if let Some(problem) = problem {
        out.truncate(before);
        return Err(problem);
    }
    out[before..before + LENGTH].copy_from_slice(&length_bytes(length));
    Ok(())
}

/// Appends an output frame.
///
/// # Errors
/// When `data` is longer than [`MAX_CHUNK`]; `out` is then unchanged.
pub fn encode_output(
    process: ProcessNumber,
    offset: u64,
    stream: Stream,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    check_chunk(data)?;
    out.extend_from_slice(&length_bytes(OUTPUT_HEAD + data.len()));
    out.push(KIND_OUTPUT);
    out.extend_from_slice(&process.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.push(stream as u8);
    out.extend_from_slice(data);
    Ok(())
}

/// Appends an input frame.
///
/// # Errors
/// When `data` is longer than [`MAX_CHUNK`]; `out` is then unchanged.
pub fn encode_input(
    process: ProcessNumber,
    offset: u64,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    check_chunk(data)?;
    out.extend_from_slice(&length_bytes(INPUT_HEAD + data.len()));
    out.push(KIND_INPUT);
    out.extend_from_slice(&process.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(data);
    Ok(())
}

/// Appends a file frame; empty `data` ends the file.
///
/// # Errors
/// When `data` is longer than [`MAX_CHUNK`]; `out` is then unchanged.
pub fn encode_file(request: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    check_chunk(data)?;
    out.extend_from_slice(&length_bytes(FILE_HEAD + data.len()));
    out.push(KIND_FILE);
    out.extend_from_slice(&request.to_be_bytes());
    out.extend_from_slice(data);
    Ok(())
}

fn encode_document(document: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let length = 1 + document.len();
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length));
    }
    out.extend_from_slice(&length_bytes(length));
    out.push(KIND_JSON);
    out.extend_from_slice(document);
    Ok(())
}

/// The length field; `length` is at most [`MAX_FRAME`].
fn length_bytes(length: usize) -> [u8; LENGTH] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let data = || proptest::collection::vec(any::<u8>(), 0..200);
        let stream = prop_oneof![
            Just(Stream::Stdout),
            Just(Stream::Stderr),
            Just(Stream::Pty)
        ];
        prop_oneof![
            data().prop_map(Frame::Json),
            (any::<u32>(), any::<u64>(), stream, data()).prop_map(
                |(process, offset, stream, data)| Frame::Output {
                    process,
                    offset,
                    stream,
                    data
                }
            ),
            (any::<u32>(), any::<u64>(), data()).prop_map(|(process, offset, data)| {
                Frame::Input {
                    process,
                    offset,
                    data,
                }
            }),
            (any::<u32>(), data()).prop_map(|(request, data)| Frame::File { request, data }),
        ]
    }

    fn drain(decoder: &mut FrameDecoder, into: &mut Vec<Frame>) -> Result<(), FrameError> {
        while let Some(frame) = decoder.next()? {
            into.push(frame);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn frames_survive_the_wire_however_it_is_cut(
            frames in proptest::collection::vec(any_frame(), 0..8),
            cut in 1usize..97,
        ) {
            let mut bytes = Vec::new();
            for frame in &frames {
                encode(frame, &mut bytes).expect("short enough");
            }
            let mut decoder = FrameDecoder::new();
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                drain(&mut decoder, &mut got).expect("what was encoded decodes");
            }
            prop_assert_eq!(got, frames);
            prop_assert!(!decoder.is_mid_frame());
        }

        #[test]
        fn any_bytes_give_frames_or_one_lasting_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            small_lengths in any::<bool>(),
            cut in 1usize..50,
        ) {
            let mut bytes = bytes;
            if small_lengths {
                // Random lengths are nearly always too long; short ones reach the parser.
                for at in (0..bytes.len()).step_by(24) {
                    let end = bytes.len().min(at + 3);
                    bytes[at..end].fill(0);
                }
            }
            let mut decoder = FrameDecoder::new();
            let mut got = Vec::new();
            let mut first = None;
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                let result = drain(&mut decoder, &mut got);
                if let Some(error) = first {
                    prop_assert_eq!(result, Err(error));
                } else if let Err(error) = result {
                    first = Some(error);
                }
            }
            // What was taken is what would be written again.
            let mut again = Vec::new();
            for frame in &got {
                encode(frame, &mut again).expect("a decoded frame can be encoded");
            }
            prop_assert!(bytes.starts_with(&again));
        }
    }

    #[test]
    fn too_long_frames_are_refused_before_their_bytes_come() {
        let mut decoder = FrameDecoder::new();
        decoder.push(&u32::MAX.to_be_bytes());
        assert_eq!(decoder.next(), Err(FrameError::TooLong(u32::MAX as usize)));
        let mut decoder = FrameDecoder::new();
        decoder.push(&[0, 0, 0, 0]);
        assert_eq!(decoder.next(), Err(FrameError::Empty));
        let mut decoder = FrameDecoder::new();
        decoder.push(&[0, 0, 0, 9, 200]);
        assert_eq!(decoder.next(), Err(FrameError::UnknownKind(200)));
    }

    #[test]
    fn chunks_above_the_limit_are_refused_on_both_sides() {
        let data = vec![0; MAX_CHUNK + 1];
        let mut out = Vec::new();
        assert!(encode_file(1, &data, &mut out).is_err());
        assert!(out.is_empty());
        let mut raw = length_bytes(FILE_HEAD + data.len()).to_vec();
        raw.push(KIND_FILE);
        raw.extend_from_slice(&[0; 4]);
        raw.extend_from_slice(&data);
        let mut decoder = FrameDecoder::new();
        decoder.push(&raw);
        assert_eq!(decoder.next(), Err(FrameError::ChunkTooLong(data.len())));
    }

    #[test]
    fn a_json_value_too_long_leaves_the_output_as_it_was() {
        let mut out = vec![7];
        let long = "x".repeat(MAX_FRAME);
        assert!(matches!(
            encode_json(&long, &mut out),
            Err(FrameError::TooLong(_))
        ));
        assert_eq!(out, vec![7]);
        encode_json("hi", &mut out).expect("short");
        assert_eq!(out, [&[7, 0, 0, 0, 5, KIND_JSON][..], b"\"hi\""].concat());
    }
}
