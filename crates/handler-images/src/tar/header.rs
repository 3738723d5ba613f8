//! One 512-byte header block.

use super::{Entry, Kind};

pub(super) const BLOCK: usize = 512;

/// What a header block says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// A zero block: the archive ends.
    End,
    /// A file, folder or link.
    Entry(Entry),
    /// Name of the next entry (GNU `L`), link target of the next entry (`K`), PAX records for the next (`x`)
    /// or all next (`g`) entries; so many bytes follow.
    LongName(u64),
    LongLink(u64),
    Pax(u64),
    GlobalPax(u64),
}

/// Reads a block.
pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Block, &'static str> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(Block::End);
    }
    if number(&block[148..156]) != Some(checksum(block)) {
        return Err("a header with a wrong checksum");
    }
    let size = number(&block[124..136]).ok_or("a header without a size")?;
    let kind = match block[156] {
        b'0' | 0 | b'7' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Link,
        b'5' => Kind::Folder,
        b'L' => return Ok(Block::LongName(size)),
        b'K' => return Ok(Block::LongLink(size)),
        b'x' => return Ok(Block::Pax(size)),
        b'g' => return Ok(Block::GlobalPax(size)),
        b'S' => return Err("a sparse file, which is not supported"),
        _ => Kind::Other,
    };
    let path = path(block);
    // Old archives mark folders by a slash only.
    let kind = if kind == Kind::File && path.ends_with(b"/") {
        Kind::Folder
    } else {
        kind
    };
    let mode = number(&block[100..108]).unwrap_or(0o644);
    Ok(Block::Entry(Entry {
        path,
        kind,
        link: text(&block[157..257]).to_vec(),
        size: if kind == Kind::File || kind == Kind::Other {
            size
        } else {
            0
        },
        mode: u32::try_from(mode & 0o7777).unwrap_or(0o644),
        mtime: i64::try_from(number(&block[136..148]).unwrap_or(0)).unwrap_or(0),
    }))
}

fn path(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(&block[..100]);
    let prefix = text(&block[345..500]);
    // GNU archives use the place of the prefix for times.
    let is_ustar = &block[257..263] == b"ustar\0";
    if !is_ustar || prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, name].join(&b'/')
}

/// Up to the first zero byte.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// Octal digits, or base 256 when the first bit is set. Negative numbers count as none.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first & 0x80 != 0 {
        if *first & 0x40 != 0 {
            return None;
        }
        let start = u64::from(*first & 0x3f);
        return rest.iter().try_fold(start, |sum, byte| {
            sum.checked_mul(256)?.checked_add(u64::from(*byte))
        });
    }
    let digits = field
        .iter()
        .skip_while(|byte| **byte == b' ' || **byte == 0)
        .take_while(|byte| (b'0'..=b'7').contains(*byte));
    digits.into_iter().try_fold(0u64, |sum, digit| {
        sum.checked_mul(8)?.checked_add(u64::from(digit - b'0'))
    })
}

fn checksum(block: &[u8; BLOCK]) -> u64 {
    let all: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    let own: u64 = block[148..156].iter().map(|byte| u64::from(*byte)).sum();
    all - own + 8 * u64::from(b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256_and_never_overflow() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   12 \0\0"), Some(0o12));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]), Some(258));
        assert_eq!(number(&[0xff; 12]), None);
        let mut most = [0xff; 12];
        most[0] = 0xbf;
        assert_eq!(number(&most), None);
        assert_eq!(number(b"\0\0\0\0"), Some(0));
    }
}
