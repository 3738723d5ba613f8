//! The tar format: heads of entries to bytes and back. No files are touched here.
//!
//! Written is the GNU form (long names in entries of their own, big numbers in base 256), which every reader
//! knows and which holds names of any bytes. Read are ustar, GNU and pax.

/// Bytes of a block: heads are one, contents are filled up to a multiple.
pub const BLOCK: usize = 512;
/// Longest name or pax head taken, bytes.
pub const LONGEST_META: u64 = 256 * 1024;

/// Kinds of entries, as written in a head.
pub mod kind {
    /// A file.
    pub const FILE: u8 = b'0';
    /// Another name of a file.
    pub const HARD_LINK: u8 = b'1';
    /// A symbolic link.
    pub const LINK: u8 = b'2';
    /// A folder.
    pub const FOLDER: u8 = b'5';
    /// A file, as some old systems say it.
    pub const CONTIGUOUS: u8 = b'7';
    /// The name of the next entry.
    pub const LONG_NAME: u8 = b'L';
    /// The link target of the next entry.
    pub const LONG_LINK: u8 = b'K';
    /// Records for the next entry.
    pub const PAX: u8 = b'x';
    /// Records for all entries.
    pub const PAX_GLOBAL: u8 = b'g';
}

/// What one head says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// Its name, as it is.
    pub name: Vec<u8>,
    /// What it is; see [`kind`].
    pub kind: u8,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Bytes of content that follow.
    pub size: u64,
    /// Seconds since the epoch.
    pub modified: i64,
    /// Where a link points.
    pub target: Vec<u8>,
}

/// Bytes that fill a content of `size` bytes up to whole blocks.
#[must_use]
pub fn padding(size: u64) -> u64 {
    let over = size % BLOCK as u64;
    if over == 0 { 0 } else { BLOCK as u64 - over }
}

/// Appends an entry's head, with the entries for long names before it.
pub fn write_head(head: &Head, out: &mut Vec<u8>) {
    for (kind, text) in [
        (kind::LONG_NAME, &head.name),
        (kind::LONG_LINK, &head.target),
    ] {
        if text.len() > 100 {
            let long = Head {
                name: b"././@LongLink".to_vec(),
                kind,
                size: text.len() as u64 + 1,
                ..Head::default()
            };
            write_block(&long, out);
            out.extend_from_slice(text);
            // The name ends with a NUL, then the block is filled.
            let fill = 1 + padding(text.len() as u64 + 1);
            out.resize(out.len() + usize::try_from(fill).unwrap_or(1), 0);
        }
    }
    write_block(head, out);
}

fn write_block(head: &Head, out: &mut Vec<u8>) {
    let mut block = [0_u8; BLOCK];
    put(&mut block[..100], &head.name);
    put_number(&mut block[100..108], u64::from(head.mode));
    put_number(&mut block[108..116], head.uid);
    put_number(&mut block[116..124], head.gid);
    put_number(&mut block[124..136], head.size);
    // Times before the epoch are told as the epoch.
    put_number(
        &mut block[136..148],
        u64::try_from(head.modified).unwrap_or(0),
    );
    block[156] = head.kind;
    put(&mut block[157..257], &head.target);
    block[257..265].copy_from_slice(b"ustar  \0");
    let sum = format!("{:06o}\0 ", checksum(&block).0);
    block[148..156].copy_from_slice(sum.as_bytes());
    out.extend_from_slice(&block);
}

fn put(field: &mut [u8], text: &[u8]) {
    let count = text.len().min(field.len());
    field[..count].copy_from_slice(&text[..count]);
}

/// Octal with a NUL behind it, or base 256 when that is too long.
fn put_number(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    let text = format!("{value:0digits$o}");
    if text.len() == digits {
        field[..digits].copy_from_slice(text.as_bytes());
        return;
    }
    let bytes = value.to_be_bytes();
    let count = field.len().min(bytes.len());
    let start = field.len() - count;
    field[start..].copy_from_slice(&bytes[bytes.len() - count..]);
    field[0] = 0x80;
}

/// The sum with its own field as blanks, of unsigned and of signed bytes: both were once written.
fn checksum(block: &[u8; BLOCK]) -> (i64, i64) {
    let (mut unsigned, mut signed) = (0, 0);
    for (at, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) {
            b' '
        } else {
            *byte
        };
        unsigned += i64::from(byte);
        signed += i64::from(byte.cast_signed());
    }
    (unsigned, signed)
}

/// Reads a head. `Some(None)`: a block of zeros, as at the end. `None`: no head.
#[must_use]
pub fn read_head(block: &[u8; BLOCK]) -> Option<Option<Head>> {
    if block.iter().all(|byte| *byte == 0) {
        return Some(None);
    }
    let sum = i64::try_from(number(&block[148..156])?).ok()?;
    let (unsigned, signed) = checksum(block);
    if sum != unsigned && sum != signed {
        return None;
    }
    let mut name = text(&block[..100]).to_vec();
    // Only the POSIX form has a prefix; GNU keeps times there.
    if &block[257..263] == b"ustar\0" {
        let prefix = text(&block[345..500]);
        if !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
    }
    let kind = if block[156] == 0 {
        kind::FILE
    } else {
        block[156]
    };
    // Old archives say a folder by its name only.
    let is_folder = kind == kind::FILE && name.last() == Some(&b'/');
    Some(Some(Head {
        kind: if is_folder { kind::FOLDER } else { kind },
        mode: u32::try_from(number(&block[100..108]).unwrap_or(0o644) & 0o7777).unwrap_or(0o644),
        uid: number(&block[108..116]).unwrap_or(0),
        gid: number(&block[116..124]).unwrap_or(0),
        size: number(&block[124..136])?,
        modified: number(&block[136..148])
            .and_then(|n| i64::try_from(n).ok())
            .unwrap_or(0),
        target: text(&block[157..257]).to_vec(),
        name,
    }))
}

/// A field up to its first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal, or base 256 when the highest bit is set; negative ones are none.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first & 0x80 != 0 {
        if *first != 0x80 {
            return None;
        }
        return rest.iter().try_fold(0_u64, |sum, byte| {
            sum.checked_mul(256)?.checked_add(u64::from(*byte))
        });
    }
    let digits = std::str::from_utf8(text(field)).ok()?.trim_matches(' ');
    if digits.is_empty() {
        return Some(0);
    }
    u64::from_str_radix(digits, 8).ok()
}

/// What the pax records that come before an entry change in its head.
///
/// # Errors
/// What is wrong with them; or that the entry is in a form that is not read.
pub fn apply_pax(mut records: &[u8], head: &mut Head) -> Result<(), &'static str> {
    const BROKEN: &str = "a broken pax record";
    while !records.is_empty() && records != [0] {
        let space = records
            .iter()
            .position(|byte| *byte == b' ')
            .ok_or(BROKEN)?;
        let digits = std::str::from_utf8(&records[..space]).map_err(|_| BROKEN)?;
        let length: usize = digits.parse().map_err(|_| BROKEN)?;
        let record = records.get(space + 1..length).ok_or(BROKEN)?;
        let record = record.strip_suffix(b"\n").ok_or(BROKEN)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(BROKEN)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let digits = || std::str::from_utf8(value).map_err(|_| BROKEN);
        match key {
            b"path" => head.name = value.to_vec(),
            b"linkpath" => head.target = value.to_vec(),
            b"size" => head.size = digits()?.parse().map_err(|_| BROKEN)?,
            b"mtime" => {
                let whole = digits()?.split('.').next().unwrap_or_default();
                head.modified = whole.parse().unwrap_or(0);
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err("a sparse file in GNU's form; make the archive without --sparse");
            }
            _ => {}
        }
        records = &records[length..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(bytes: &[u8]) -> &[u8; BLOCK] {
        bytes.first_chunk().expect("a whole block")
    }

    proptest! {
        #[test]
        fn heads_survive(
            name in proptest::collection::vec(1u8..=255, 1..100),
            target in proptest::collection::vec(1u8..=255, 0..100),
            mode in 0u32..0o10000, size in any::<u64>(), uid in any::<u32>(), modified in 0i64..i64::MAX,
        ) {
            prop_assume!(name.last() != Some(&b'/'));
            let head = Head { name, kind: kind::FILE, mode, uid: uid.into(), gid: 7, size, modified, target };
            let mut out = Vec::new();
            write_head(&head, &mut out);
            prop_assert_eq!(out.len(), BLOCK);
            prop_assert_eq!(read_head(block(&out)), Some(Some(head)));
        }

        #[test]
        fn any_bytes_are_a_head_or_none(bytes in proptest::collection::vec(any::<u8>(), BLOCK), sum in any::<bool>()) {
            let mut bytes = bytes;
            if sum {
                let right = format!("{:06o}\0 ", checksum(block(&bytes)).0);
                bytes[148..156].copy_from_slice(right.as_bytes());
            }
            let _ = read_head(block(&bytes));
            let _ = apply_pax(&bytes, &mut Head::default());
        }
    }

    #[test]
    fn records_change_the_head_and_broken_ones_are_told() {
        let mut head = Head::default();
        apply_pax(
            b"11 path=ab\n12 size=123\n22 mtime=1700000000.5\n",
            &mut head,
        )
        .expect("right");
        assert_eq!((head.name.as_slice(), head.size), (&b"ab"[..], 123));
        assert_eq!(head.modified, 1_700_000_000);
        for broken in [
            &b"x"[..],
            b"99 path=a\n",
            b"5 a=b",
            b"0 a=b\n",
            b"3 a=b\n",
            b"12 size=12x\n",
        ] {
            assert!(apply_pax(broken, &mut head).is_err(), "{broken:?}");
        }
    }
}
