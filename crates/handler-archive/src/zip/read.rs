//! A tar archive out of a zip archive in a file. The zip archive is not trusted: what is read of it is bounded by
//! the limits, and whether its names may be unpacked is for the one who unpacks the tar archive to say.

use crate::error::ArchiveError;
use crate::tar::{BLOCK, Head, kind, padding, write_head};
use crate::unpack::Limits;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Most bytes of a zip archive's directory.
const MOST_DIRECTORY: u64 = 256 * 1024 * 1024;
/// Longest target of a link.
const LONGEST_TARGET: u64 = 4096;
/// Bytes of contents given at once.
const PIECE: usize = 64 * 1024;
/// Where the end of the directory may be, from the end of the file.
const TAIL: u64 = 64 * 1024 + 22 + 20 + 56;

/// Gives the archive as tar, piece by piece; stops when `give` says `false`. Blocks.
///
/// # Errors
/// When it is no zip archive, is encrypted or broken, or goes beyond the limits.
pub fn to_tar(
    mut file: File,
    limits: Limits,
    mut give: impl FnMut(Vec<u8>) -> bool,
) -> Result<(), ArchiveError> {
    check_directory(&mut file, limits)?;
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(|e| broken(&e))?;
    let mut left = limits.bytes;
    let mut out = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|e| broken(&e))?;
        let mut head = head_of(&entry);
        if head.kind == kind::LINK {
            let target = (&mut entry).take(LONGEST_TARGET + 1);
            read_all(target, &mut head.target)?;
            if head.target.len() as u64 > LONGEST_TARGET {
                return Err(ArchiveError::invalid("a link in the archive is too long"));
            }
            write_head(&head, &mut out);
            continue;
        }
        left = left
            .checked_sub(head.size)
            .ok_or_else(|| ArchiveError::limit(format!("more than {} bytes", limits.bytes)))?;
        write_head(&head, &mut out);
        let mut rest = head.size;
        while rest > 0 {
            let start = out.len();
            let most = usize::try_from(rest).map_or(PIECE, |rest| rest.min(PIECE));
            out.resize(start + most, 0);
            let count = entry.read(&mut out[start..]).map_err(|e| broken(&e))?;
            out.truncate(start + count);
            if count == 0 {
                return Err(ArchiveError::invalid(
                    "a file in the archive is shorter than it says",
                ));
            }
            rest -= count as u64;
            if out.len() >= PIECE && !give(std::mem::take(&mut out)) {
                return Ok(());
            }
        }
        // The sum is checked at the end of the content; more than was said is no right archive either.
        if entry.read(&mut [0]).map_err(|e| broken(&e))? != 0 {
            return Err(ArchiveError::invalid(
                "a file in the archive is longer than it says",
            ));
        }
        let fill = usize::try_from(padding(head.size)).unwrap_or(0);
        out.resize(out.len() + fill, 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    give(out);
    Ok(())
}

fn broken(error: &dyn std::error::Error) -> ArchiveError {
    ArchiveError::invalid(format!("the zip archive cannot be read: {error}"))
}

fn read_all(mut from: impl Read, into: &mut Vec<u8>) -> Result<(), ArchiveError> {
    from.read_to_end(into).map(|_| ()).map_err(|e| broken(&e))
}

fn head_of<R: Read + ?Sized>(entry: &zip::read::ZipFile<'_, R>) -> Head {
    let name = entry.name_raw().to_vec();
    let mode = entry.unix_mode();
    let file_type = mode.map_or(0, |mode| mode & 0o170_000);
    let kind = match file_type {
        0o120_000 => kind::LINK,
        0o040_000 => kind::FOLDER,
        // Pipes, sockets and devices: told as what they are, with no content.
        0o010_000 | 0o140_000 | 0o020_000 | 0o060_000 => b'6',
        _ if name.last() == Some(&b'/') => kind::FOLDER,
        _ => kind::FILE,
    };
    let usual = if kind == kind::FOLDER { 0o755 } else { 0o644 };
    let bits = mode.map_or(0, |mode| mode & 0o777);
    Head {
        size: if kind == kind::FILE { entry.size() } else { 0 },
        kind,
        mode: if bits == 0 { usual } else { bits },
        modified: modified(entry),
        name,
        ..Head::default()
    }
}

/// The time in seconds, or else what the form itself has, taken as UTC.
fn modified<R: Read + ?Sized>(entry: &zip::read::ZipFile<'_, R>) -> i64 {
    let fields = entry.extra_data();
    let mut extra: &[u8] = fields.as_deref().unwrap_or_default();
    while let [a, b, c, d, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*c, *d]));
        let Some((field, next)) = rest.split_at_checked(length) else {
            break;
        };
        if u16::from_le_bytes([*a, *b]) == 0x5455
            && let [flags, e, f, g, h, ..] = field
            && flags & 1 == 1
        {
            return i64::from(i32::from_le_bytes([*e, *f, *g, *h]));
        }
        extra = next;
    }
    entry.last_modified().map_or(0, |at| {
        days(
            i64::from(at.year()),
            i64::from(at.month()),
            i64::from(at.day()),
        ) * 86_400
            + i64::from(at.hour()) * 3600
            + i64::from(at.minute()) * 60
            + i64::from(at.second())
    })
}

/// Days from the epoch to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Looks at the end of the archive before the directory is read into memory.
fn check_directory(file: &mut File, limits: Limits) -> Result<(), ArchiveError> {
    let unreadable = |e: std::io::Error| broken(&e);
    let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let start = length.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
    let mut tail = Vec::new();
    read_all((&mut *file).take(TAIL), &mut tail)?;
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let find = |mark: &[u8; 4]| tail.windows(4).rposition(|window| window == mark);
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = tail.get(at..at + size)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
        )
    };
    let Some(end) = find(b"PK\x05\x06") else {
        return Err(ArchiveError::invalid("this is no zip archive"));
    };
    let (mut count, mut size) = (number(end + 10, 2), number(end + 12, 4));
    if let Some(wide) = find(b"PK\x06\x06") {
        (count, size) = (number(wide + 32, 8), number(wide + 40, 8));
    }
    if count.is_some_and(|count| count > limits.entries) {
        return Err(ArchiveError::limit(format!(
            "more than {} entries",
            limits.entries
        )));
    }
    if size.is_some_and(|size| size > MOST_DIRECTORY) {
        return Err(ArchiveError::limit(
            "the zip archive's directory is too large",
        ));
    }
    Ok(())
}
