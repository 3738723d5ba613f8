//! Packs: an index of names, and objects as they are or as differences from others. Read at offsets, never mapped: a
//! file that is cut off meanwhile is an error, not a signal.

use super::GitError;
use super::objects::{Kind, Objects};
use crate::open::Root;
use flate2::read::ZlibDecoder;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;

/// Longest chain of differences (Git makes at most 4095).
const MAX_CHAIN: usize = 4096;
/// Most bytes of one chain that are unpacked.
const MAX_CHAIN_BYTES: usize = 256 * 1024 * 1024;

/// A pack by its name.
#[derive(Debug)]
pub(super) struct Pack {
    stem: OsString,
}

/// A place in an opened pack.
#[derive(Debug)]
pub(super) struct Opened {
    index: Index,
    pack: File,
    at: u64,
}

#[derive(Debug)]
struct Index {
    file: File,
    fanout: [u32; 256],
    id_length: usize,
}

fn u32_at(file: &File, at: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u32::from_be_bytes(bytes))
}

impl Index {
    fn open(root: &Root, path: &OsStr, id_length: usize) -> Result<Self, GitError> {
        let (file, _) = root.open_raw(path)?;
        let mut head = [0; 8 + 1024];
        file.read_exact_at(&mut head, 0)?;
        if head[..8] != [0xff, b't', b'O', b'c', 0, 0, 0, 2] {
            return Err(GitError::Malformed(
                "an index of a version that is not read",
            ));
        }
        let mut fanout = [0; 256];
        for (entry, bytes) in fanout.iter_mut().zip(head[8..].chunks_exact(4)) {
            *entry = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(Self {
            file,
            fanout,
            id_length,
        })
    }

    /// Where in the pack an object is.
    fn find(&self, id: &[u8]) -> Result<Option<u64>, GitError> {
        let first = usize::from(id[0]);
        let mut low = first.checked_sub(1).map_or(0, |before| self.fanout[before]);
        let mut high = self.fanout[first];
        let names = 8 + 1024_u64;
        let length = self.id_length as u64;
        while low < high {
            let middle = low + (high - low) / 2;
            let mut found = vec![0; self.id_length];
            self.file
                .read_exact_at(&mut found, names + u64::from(middle) * length)?;
            match found.as_slice().cmp(id) {
                std::cmp::Ordering::Equal => return self.offset(middle).map(Some),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    fn offset(&self, nth: u32) -> Result<u64, GitError> {
        let total = u64::from(self.fanout[255]);
        // After the names stand a checksum of four bytes each, then the offsets, then the large ones.
        let offsets = 8 + 1024 + total * (self.id_length as u64 + 4);
        let short = u32_at(&self.file, offsets + u64::from(nth) * 4)?;
        if short & 0x8000_0000 == 0 {
            return Ok(u64::from(short));
        }
        let at = offsets + total * 4 + u64::from(short & 0x7fff_ffff) * 8;
        let (high, low) = (u32_at(&self.file, at)?, u32_at(&self.file, at + 4)?);
        Ok(u64::from(high) << 32 | u64::from(low))
    }
}

impl Pack {
    pub(super) fn new(stem: &OsStr) -> Self {
        Self { stem: stem.into() }
    }

    fn path(&self, ending: &str) -> OsString {
        let mut path = OsString::from(".git/objects/pack/");
        path.push(&self.stem);
        path.push(ending);
        path
    }

    /// Finds an object in it. A pack that cannot be read has none.
    pub(super) fn find(&self, root: &Root, id: &[u8]) -> Result<Option<Opened>, GitError> {
        let Ok(index) = Index::open(root, &self.path(".idx"), id.len()) else {
            return Ok(None);
        };
        let Some(at) = index.find(id)? else {
            return Ok(None);
        };
        let (pack, _) = root.open_raw(&self.path(".pack"))?;
        Ok(Some(Opened { index, pack, at }))
    }
}

/// What stands at a place of a pack.
enum Stored {
    Whole(Kind, Vec<u8>),
    FromOffset(u64, Vec<u8>),
    FromName(Vec<u8>, Vec<u8>),
}

impl Opened {
    /// The object, at most so large.
    pub(super) fn read(
        self,
        objects: &Objects<'_>,
        most: usize,
    ) -> Result<(Kind, Vec<u8>), GitError> {
        let mut at = self.at;
        let mut deltas = Vec::new();
        let mut budget = MAX_CHAIN_BYTES;
        let (kind, mut content) = loop {
            let stored = self.stored(at, budget)?;
            let (next, delta) = match stored {
                Stored::Whole(kind, content) => break (kind, content),
                Stored::FromOffset(next, delta) => (next, delta),
                Stored::FromName(id, delta) => match self.index.find(&id)? {
                    Some(next) => (next, delta),
                    None => {
                        deltas.push(delta);
                        break objects.base(&id, budget)?;
                    }
                },
            };
            budget = budget.checked_sub(delta.len()).ok_or(GitError::TooLarge)?;
            deltas.push(delta);
            if deltas.len() > MAX_CHAIN {
                return Err(GitError::Malformed("a chain without an end"));
            }
            at = next;
        };
        while let Some(delta) = deltas.pop() {
            content = apply(&content, &delta)?;
            budget = budget
                .checked_sub(content.len())
                .ok_or(GitError::TooLarge)?;
        }
        if content.len() > most {
            return Err(GitError::TooLarge);
        }
        Ok((kind, content))
    }

    fn stored(&self, at: u64, most: usize) -> Result<Stored, GitError> {
        let malformed = || GitError::Malformed("a pack");
        let mut head = Reader::new(&self.pack, at);
        let first = head.byte()?;
        let mut size = u64::from(first & 0x0f);
        let mut shift = 4;
        let mut byte = first;
        while byte & 0x80 != 0 {
            byte = head.byte()?;
            if shift > 56 {
                return Err(malformed());
            }
            size |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        let size = usize::try_from(size).map_err(|_| GitError::TooLarge)?;
        if size > most {
            return Err(GitError::TooLarge);
        }
        match first >> 4 & 7 {
            1 => Ok(Stored::Whole(Kind::Commit, head.unpack(size)?)),
            2 => Ok(Stored::Whole(Kind::Tree, head.unpack(size)?)),
            3 => Ok(Stored::Whole(Kind::Blob, head.unpack(size)?)),
            4 => Ok(Stored::Whole(Kind::Tag, head.unpack(size)?)),
            6 => {
                let back = head.distance()?;
                let next = at.checked_sub(back).filter(|_| back > 0);
                let next = next.ok_or_else(malformed)?;
                Ok(Stored::FromOffset(next, head.unpack(size)?))
            }
            7 => {
                let mut id = vec![0; self.index.id_length];
                head.read_exact(&mut id)?;
                Ok(Stored::FromName(id, head.unpack(size)?))
            }
            _ => Err(malformed()),
        }
    }
}

/// Reads on from a place, in pieces.
struct Reader<'a> {
    file: &'a File,
    at: u64,
}

impl<'a> Reader<'a> {
    fn new(file: &'a File, at: u64) -> Self {
        Self { file, at }
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut one = [0];
        self.read_exact(&mut one)?;
        Ok(one[0])
    }

    /// How far back a base is.
    fn distance(&mut self) -> Result<u64, GitError> {
        let mut byte = self.byte()?;
        let mut back = u64::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            back = back
                .checked_add(1)
                .and_then(|back| back.checked_mul(128))
                .ok_or(GitError::Malformed("a pack"))?
                | u64::from(byte & 0x7f);
        }
        Ok(back)
    }

    fn unpack(self, size: usize) -> Result<Vec<u8>, GitError> {
        let mut content = Vec::new();
        ZlibDecoder::new(self)
            .take(size as u64 + 1)
            .read_to_end(&mut content)?;
        match content.len() == size {
            true => Ok(content),
            false => Err(GitError::Malformed("an object of another size")),
        }
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// What a delta makes of its base.
fn apply(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, GitError> {
    let malformed = || GitError::Malformed("a delta");
    let mut rest = delta;
    let from = size(&mut rest).ok_or_else(malformed)?;
    let to = size(&mut rest).ok_or_else(malformed)?;
    if from != base.len() {
        return Err(malformed());
    }
    if to > MAX_CHAIN_BYTES {
        return Err(GitError::TooLarge);
    }
    let mut content = Vec::new();
    while let Some((&code, after)) = rest.split_first() {
        rest = after;
        let piece = if code & 0x80 == 0 {
            // Bytes that stand here.
            let length = usize::from(code);
            let (piece, after) = rest
                .split_at_checked(length)
                .filter(|_| length > 0)
                .ok_or_else(malformed)?;
            rest = after;
            piece
        } else {
            let (offset, length) = copied(code, &mut rest).ok_or_else(malformed)?;
            let end = offset.checked_add(length).ok_or_else(malformed)?;
            base.get(offset..end).ok_or_else(malformed)?
        };
        if content.len() + piece.len() > to {
            return Err(malformed());
        }
        content.extend_from_slice(piece);
    }
    (content.len() == to)
        .then_some(content)
        .ok_or_else(malformed)
}

fn size(rest: &mut &[u8]) -> Option<usize> {
    let mut size = 0_u64;
    for shift in (0..57).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        size |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(size).ok();
        }
    }
    None
}

fn copied(code: u8, rest: &mut &[u8]) -> Option<(usize, usize)> {
    let mut number = |bits: std::ops::Range<u8>| {
        let mut value = 0;
        for (nth, bit) in bits.enumerate() {
            if code & (1 << bit) != 0 {
                let (&byte, after) = rest.split_first()?;
                *rest = after;
                value |= usize::from(byte) << (8 * nth);
            }
        }
        Some(value)
    };
    let offset = number(0..4)?;
    let length = number(4..7)?;
    Some((offset, if length == 0 { 0x1_0000 } else { length }))
}
