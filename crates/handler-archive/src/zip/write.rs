//! A zip archive out of a tar archive, both as they come.
//!
//! Sizes and sums of files follow their content, so that nothing is held but the directory that a zip archive
//! ends with; that is bounded. Names are kept byte by byte; those that are UTF-8 are marked so. Links are kept
//! as links, in the form of Info-ZIP.

use crate::error::ArchiveError;
use crate::stream::{Reader, Sink};
use crate::tar::{Head, kind};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use std::io::Write as _;

/// Most bytes of the directory.
const MOST_DIRECTORY: usize = 128 * 1024 * 1024;
/// Sizes from here on need the wide form; below 4 GiB, as compressing may add a little.
const WIDE: u64 = 0xFFFF_0000;
const MAX_32: u32 = u32::MAX;
/// Version needed for the wide form, and made on Unix.
const VERSION: u16 = 45;
const MADE_BY: u16 = (3 << 8) | VERSION;
/// Flag: sizes follow the content.
const SIZES_FOLLOW: u16 = 1 << 3;
/// Flag: the name is UTF-8.
const UTF_8: u16 = 1 << 11;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// The entry whose content comes.
#[derive(Debug)]
struct Open {
    head: Head,
    offset: u64,
    encoder: DeflateEncoder<Vec<u8>>,
    sum: Crc,
    before: u64,
}

#[derive(Debug, Default)]
struct Archive {
    /// Made and not taken.
    out: Vec<u8>,
    /// Bytes taken before.
    taken: u64,
    directory: Vec<u8>,
    count: u64,
    open: Option<Open>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct FromTar {
    reader: Reader,
    archive: Archive,
}

/// What the directory says of an entry's content.
struct Content {
    method: u16,
    sum: u32,
    compressed: u64,
    size: u64,
}

impl FromTar {
    /// An archive without entries yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes of the tar archive; gives those of the zip archive that are ready.
    ///
    /// # Errors
    /// When it is no tar archive, or has too many entries for this form.
    pub fn add(&mut self, data: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        self.reader.add(data, &mut self.archive)?;
        Ok(self.archive.take())
    }

    /// The tar archive ended; gives the rest.
    ///
    /// # Errors
    /// When it was not whole.
    pub fn finish(mut self) -> Result<Vec<u8>, ArchiveError> {
        self.reader.finish()?;
        self.archive.close();
        Ok(self.archive.take())
    }
}

impl Archive {
    fn take(&mut self) -> Vec<u8> {
        if let Some(open) = &mut self.open {
            let ready = std::mem::take(open.encoder.get_mut());
            self.out.extend_from_slice(&ready);
        }
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    fn offset(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// A folder or link, whose content is known.
    fn small(&mut self, head: &Head, content: &[u8]) -> Result<(), ArchiveError> {
        let offset = self.offset();
        let mut sum = Crc::new();
        sum.update(content);
        let length = content.len() as u64;
        let content_of = Content {
            method: STORED,
            sum: sum.sum(),
            compressed: length,
            size: length,
        };
        local(head, &content_of, false, &mut self.out);
        self.out.extend_from_slice(content);
        self.list(head, &content_of, offset)
    }

    /// Adds an entry to the directory.
    fn list(&mut self, head: &Head, content: &Content, offset: u64) -> Result<(), ArchiveError> {
        central(head, content, offset, &mut self.directory);
        self.count += 1;
        if self.directory.len() > MOST_DIRECTORY {
            let message = "too many entries for a zip archive; ask for tar";
            return Err(ArchiveError::limit(message));
        }
        Ok(())
    }

    /// The directory and the end.
    fn close(&mut self) {
        let offset = self.offset();
        let size = self.directory.len() as u64;
        let mut directory = std::mem::take(&mut self.directory);
        self.out.append(&mut directory);
        let is_wide = self.count >= 0xFFFF || offset >= u64::from(MAX_32);
        if is_wide {
            let at = self.offset();
            put32(&mut self.out, 0x0606_4b50);
            put64(&mut self.out, 44);
            put16(&mut self.out, MADE_BY);
            put16(&mut self.out, VERSION);
            put32(&mut self.out, 0);
            put32(&mut self.out, 0);
            for value in [self.count, self.count, size, offset] {
                put64(&mut self.out, value);
            }
            put32(&mut self.out, 0x0706_4b50);
            put32(&mut self.out, 0);
            put64(&mut self.out, at);
            put32(&mut self.out, 1);
        }
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        put32(&mut self.out, 0x0605_4b50);
        put32(&mut self.out, 0);
        put16(&mut self.out, count);
        put16(&mut self.out, count);
        put32(&mut self.out, narrow(size));
        put32(&mut self.out, narrow(offset));
        put16(&mut self.out, 0);
    }
}

impl Sink for Archive {
    fn entry(&mut self, head: &Head) -> Result<(), ArchiveError> {
        match head.kind {
            kind::FOLDER => {
                let mut head = head.clone();
                if head.name.last() != Some(&b'/') {
                    head.name.push(b'/');
                }
                self.small(&head, b"")
            }
            kind::LINK => self.small(head, &head.target),
            kind::FILE | kind::CONTIGUOUS => {
                let offset = self.offset();
                let content = Content {
                    method: DEFLATED,
                    sum: 0,
                    compressed: 0,
                    size: head.size,
                };
                local(head, &content, true, &mut self.out);
                self.open = Some(Open {
                    head: head.clone(),
                    offset,
                    encoder: DeflateEncoder::new(Vec::new(), Compression::fast()),
                    sum: Crc::new(),
                    before: self.offset(),
                });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn content(&mut self, data: &[u8]) -> Result<(), ArchiveError> {
        if let Some(open) = &mut self.open {
            open.sum.update(data);
            // Writing into memory cannot fail.
            open.encoder.write_all(data).ok();
        }
        Ok(())
    }

    fn end_of_content(&mut self) -> Result<(), ArchiveError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let rest = open.encoder.finish().unwrap_or_default();
        self.out.extend_from_slice(&rest);
        let content = Content {
            method: DEFLATED,
            sum: open.sum.sum(),
            compressed: self.offset() - open.before,
            size: open.head.size,
        };
        put32(&mut self.out, 0x0807_4b50);
        put32(&mut self.out, content.sum);
        if content.size >= WIDE {
            put64(&mut self.out, content.compressed);
            put64(&mut self.out, content.size);
        } else {
            put32(&mut self.out, narrow(content.compressed));
            put32(&mut self.out, narrow(content.size));
        }
        self.list(&open.head, &content, open.offset)
    }
}

fn local(head: &Head, content: &Content, sizes_follow: bool, out: &mut Vec<u8>) {
    let is_wide = content.size >= WIDE;
    put32(out, 0x0403_4b50);
    put16(out, VERSION);
    put16(out, flags(head, sizes_follow));
    put16(out, content.method);
    put32(out, dos_time(head.modified));
    put32(out, content.sum);
    let (compressed, size) = if sizes_follow {
        (0, 0)
    } else {
        (narrow(content.compressed), narrow(content.size))
    };
    put32(out, if is_wide { MAX_32 } else { compressed });
    put32(out, if is_wide { MAX_32 } else { size });
    let name = name(head);
    put16(out, u16::try_from(name.len()).unwrap_or(u16::MAX));
    let mut extra = time_extra(head.modified);
    if is_wide {
        put16(&mut extra, 1);
        put16(&mut extra, 16);
        put64(&mut extra, 0);
        put64(&mut extra, 0);
    }
    put16(out, u16::try_from(extra.len()).unwrap_or(0));
    out.extend_from_slice(name);
    out.extend_from_slice(&extra);
}

fn central(head: &Head, content: &Content, offset: u64, out: &mut Vec<u8>) {
    let is_wide = content.size >= WIDE;
    put32(out, 0x0201_4b50);
    put16(out, MADE_BY);
    put16(out, VERSION);
    put16(out, flags(head, content.method == DEFLATED));
    put16(out, content.method);
    put32(out, dos_time(head.modified));
    put32(out, content.sum);
    put32(
        out,
        if is_wide {
            MAX_32
        } else {
            narrow(content.compressed)
        },
    );
    put32(
        out,
        if is_wide {
            MAX_32
        } else {
            narrow(content.size)
        },
    );
    let name = name(head);
    put16(out, u16::try_from(name.len()).unwrap_or(u16::MAX));
    let mut extra = time_extra(head.modified);
    let is_far = offset >= u64::from(MAX_32);
    if is_wide || is_far {
        put16(&mut extra, 1);
        put16(
            &mut extra,
            if is_wide { 16 } else { 0 } + if is_far { 8 } else { 0 },
        );
        if is_wide {
            put64(&mut extra, content.size);
            put64(&mut extra, content.compressed);
        }
        if is_far {
            put64(&mut extra, offset);
        }
    }
    put16(out, u16::try_from(extra.len()).unwrap_or(0));
    put16(out, 0);
    put16(out, 0);
    put16(out, 0);
    let file_type = match head.kind {
        kind::FOLDER => 0o040_000,
        kind::LINK => 0o120_000,
        _ => 0o100_000,
    };
    let dos_folder = u32::from(head.kind == kind::FOLDER) << 4;
    put32(out, ((file_type | (head.mode & 0o7777)) << 16) | dos_folder);
    put32(out, if is_far { MAX_32 } else { narrow(offset) });
    out.extend_from_slice(name);
    out.extend_from_slice(&extra);
}

/// Longer names than the form can say are cut; no file system has them.
fn name(head: &Head) -> &[u8] {
    &head.name[..head.name.len().min(usize::from(u16::MAX))]
}

fn flags(head: &Head, sizes_follow: bool) -> u16 {
    let is_text = std::str::from_utf8(&head.name).is_ok();
    (if is_text { UTF_8 } else { 0 }) | (if sizes_follow { SIZES_FOLLOW } else { 0 })
}

/// The time in seconds, beside the one of two that the form itself has.
fn time_extra(modified: i64) -> Vec<u8> {
    let mut extra = Vec::new();
    if let Ok(seconds) = i32::try_from(modified) {
        put16(&mut extra, 0x5455);
        put16(&mut extra, 5);
        extra.push(1);
        extra.extend_from_slice(&seconds.to_le_bytes());
    }
    extra
}

/// Time and date as the form has them: from 1980 to 2107, in steps of two seconds.
fn dos_time(modified: i64) -> u32 {
    const EARLIEST: i64 = 315_532_800;
    const LATEST: i64 = 4_354_819_198;
    let seconds = modified.clamp(EARLIEST, LATEST);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to a date, by years that begin in March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let date = ((year - 1980) << 9) | (month << 5) | day;
    let time = ((rest / 3600) << 11) | ((rest / 60 % 60) << 5) | (rest % 60 / 2);
    u32::try_from((date << 16) | time).unwrap_or(0)
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(MAX_32)
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        // 2023-11-14 22:13:20
        let expected = ((43 << 9) | (11 << 5) | 14) << 16 | ((22 << 11) | (13 << 5) | 10);
        assert_eq!(dos_time(1_700_000_000), expected);
        assert_eq!(dos_time(0), ((1 << 5) | 1) << 16);
        // 2024-02-29 00:00:00
        assert_eq!(dos_time(1_709_164_800), ((44 << 9) | (2 << 5) | 29) << 16);
    }
}
