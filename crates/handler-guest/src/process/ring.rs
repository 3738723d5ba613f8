//! Output of one process, kept until the host has it.
//!
//! Owns the numbering: the byte offset in the merged output. Invariant: everything from `acked` to
//! `end` is held, nothing else, and the caller stops adding when [`Ring::room`] is 0, so that a host
//! that does not read stalls the producer instead of filling memory.

use handler_types::guest::{MAX_CHUNK, Stream};
use std::collections::VecDeque;

/// Small pieces are gathered into chunks of at most this many bytes.
const GATHER: usize = 32 * 1024;
/// Most chunks held: two streams that take turns byte by byte make many small ones.
const MAX_CHUNKS: usize = 16 * 1024;

#[derive(Debug)]
struct Chunk {
    start: u64,
    stream: Stream,
    data: Vec<u8>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    chunks: VecDeque<Chunk>,
    acked: u64,
    end: u64,
}

impl Ring {
    /// First offset still held.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// Offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes held and not yet acknowledged.
    pub(crate) fn held(&self) -> u64 {
        self.end - self.acked
    }

    /// How many bytes may be added under a window of `window` bytes.
    pub(crate) fn room(&self, window: u64) -> usize {
        if self.chunks.len() >= MAX_CHUNKS {
            return 0;
        }
        usize::try_from(window.saturating_sub(self.held())).unwrap_or(usize::MAX)
    }

    /// Adds output.
    pub(crate) fn push(&mut self, stream: Stream, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        match self.chunks.back_mut() {
            Some(last) if last.stream == stream && last.data.len() + data.len() <= GATHER => {
                last.data.extend_from_slice(data);
            }
            _ => self.chunks.push_back(Chunk {
                start: self.end,
                stream,
                data: data.to_vec(),
            }),
        }
        self.end += data.len() as u64;
    }

    /// Forgets what is below `up_to`; `false` when that was never produced.
    pub(crate) fn ack(&mut self, up_to: u64) -> bool {
        if up_to > self.end {
            return false;
        }
        self.acked = self.acked.max(up_to);
        while self
            .chunks
            .front()
            .is_some_and(|chunk| chunk.end() <= self.acked)
        {
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.chunks.shrink_to(64);
        }
        true
    }

    /// The bytes at `offset`, up to the end of their chunk and [`MAX_CHUNK`]; none at the end.
    pub(crate) fn at(&self, offset: u64) -> Option<(Stream, &[u8])> {
        if offset < self.acked || offset >= self.end {
            return None;
        }
        let index = self.chunks.partition_point(|chunk| chunk.end() <= offset);
        let chunk = self.chunks.get(index)?;
        let skip = usize::try_from(offset - chunk.start).ok()?;
        let rest = chunk.data.get(skip..)?;
        Some((chunk.stream, &rest[..rest.len().min(MAX_CHUNK)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(ring: &Ring, from: u64) -> Vec<(Stream, u8)> {
        let mut at = from;
        let mut out = Vec::new();
        while let Some((stream, data)) = ring.at(at) {
            out.extend(data.iter().map(|byte| (stream, *byte)));
            at += data.len() as u64;
        }
        out
    }

    proptest! {
        #[test]
        fn what_is_held_is_the_tail_of_what_was_produced(
            steps in proptest::collection::vec((any::<bool>(), 0usize..70_000, 0.0f64..1.0), 1..20),
        ) {
            let mut ring = Ring::default();
            let mut model: Vec<(Stream, u8)> = Vec::new();
            let mut acked = 0u64;
            for (index, (first, length, part)) in steps.into_iter().enumerate() {
                let stream = if first { Stream::Stdout } else { Stream::Stderr };
                let data: Vec<u8> = (0..length).map(|at| (at * 7 + index) as u8).collect();
                ring.push(stream, &data);
                model.extend(data.iter().map(|byte| (stream, *byte)));
                let up_to = acked + ((model.len() as u64 - acked) as f64 * part) as u64;
                prop_assert!(ring.ack(up_to));
                acked = acked.max(up_to);
                prop_assert_eq!(ring.acked(), acked);
                prop_assert_eq!(ring.end(), model.len() as u64);
                prop_assert!(read_all(&ring, acked) == model[acked as usize..]);
            }
        }
    }

    #[test]
    fn acknowledging_the_future_is_refused_and_the_past_is_gone() {
        let mut ring = Ring::default();
        ring.push(Stream::Stdout, b"hello");
        assert!(!ring.ack(6));
        assert!(ring.ack(3));
        assert!(ring.at(2).is_none());
        assert_eq!(ring.at(3), Some((Stream::Stdout, &b"lo"[..])));
        assert_eq!(ring.room(3), 1);
        assert_eq!(ring.room(1), 0);
    }

    #[test]
    fn streams_that_take_turns_byte_by_byte_fill_the_ring_too() {
        let mut ring = Ring::default();
        for index in 0..MAX_CHUNKS {
            assert!(ring.room(1 << 20) > 0);
            let stream = if index % 2 == 0 {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            ring.push(stream, b"x");
        }
        assert_eq!(ring.room(1 << 20), 0);
    }
}
