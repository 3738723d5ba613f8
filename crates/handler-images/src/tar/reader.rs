//! Entries one after the other, from any stream.

use super::header::{self, BLOCK, Block};
use super::{Entry, Kind};
use std::io::{self, Read};

/// Longest name or link target, bytes: what Linux takes.
const MAX_NAME: u64 = 4096;
/// Longest PAX header, bytes.
const MAX_PAX: u64 = 1 << 20;

/// Why an archive could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TarError {
    /// It is no proper archive.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What extended headers said about the next entry.
#[derive(Debug, Default)]
struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Reads an archive. Between two entries, [`Read`] gives the content of the last one.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    input: R,
    /// Content of the present entry not read yet, and the padding after it.
    left: u64,
    padding: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            left: 0,
            padding: 0,
            ended: false,
        }
    }

    /// The next entry; the rest of the present one is skipped. `None`: the archive ends here, properly.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, TarError> {
        let mut extended = Extended::default();
        loop {
            self.skip()?;
            if self.ended {
                return Ok(None);
            }
            let mut block = [0; BLOCK];
            self.input.read_exact(&mut block).map_err(cut_short)?;
            match header::parse(&block).map_err(damaged)? {
                Block::End => {
                    self.ended = true;
                    return Ok(None);
                }
                Block::LongName(size) => extended.path = Some(self.name(size)?),
                Block::LongLink(size) => extended.link = Some(self.name(size)?),
                Block::Pax(size) => self.pax(size, &mut extended)?,
                Block::GlobalPax(size) => self.content(size),
                Block::Entry(entry) => return Ok(Some(self.begin(entry, extended))),
            }
        }
    }

    /// The stream below.
    pub(crate) fn input(&self) -> &R {
        &self.input
    }

    /// What comes after the archive's end, to its last byte; answers how much it was.
    pub(crate) fn drain(mut self) -> io::Result<u64> {
        io::copy(&mut self.input, &mut io::sink())
    }

    fn begin(&mut self, mut entry: Entry, extended: Extended) -> Entry {
        if let Some(path) = extended.path {
            if entry.kind == Kind::File && path.ends_with(b"/") {
                entry.kind = Kind::Folder;
            }
            entry.path = path;
        }
        if let Some(link) = extended.link {
            entry.link = link;
        }
        if let (Some(size), Kind::File | Kind::Other) = (extended.size, entry.kind) {
            entry.size = size;
        }
        self.content(entry.size);
        entry
    }

    /// From here on so many bytes belong to the present entry.
    fn content(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn skip(&mut self) -> Result<(), TarError> {
        let rest = self.left.saturating_add(self.padding);
        if rest == 0 {
            return Ok(());
        }
        let skipped = io::copy(&mut (&mut self.input).take(rest), &mut io::sink())?;
        (self.left, self.padding) = (0, 0);
        if skipped == rest {
            Ok(())
        } else {
            Err(cut_short(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    fn small(&mut self, size: u64, most: u64) -> Result<Vec<u8>, TarError> {
        if size > most {
            return Err(damaged("an extended header that is far too long"));
        }
        self.content(size);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.read_exact(&mut bytes).map_err(cut_short)?;
        Ok(bytes)
    }

    fn name(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        let mut name = self.small(size, MAX_NAME + 1)?;
        let end = name.iter().position(|byte| *byte == 0);
        name.truncate(end.unwrap_or(name.len()));
        Ok(name)
    }

    fn pax(&mut self, size: u64, extended: &mut Extended) -> Result<(), TarError> {
        let bytes = self.small(size, MAX_PAX)?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (key, value, after) =
                record(rest).ok_or_else(|| damaged("a crooked PAX header"))?;
            match key {
                b"path" => extended.path = Some(value.to_vec()),
                b"linkpath" => extended.link = Some(value.to_vec()),
                b"size" => {
                    extended.size = Some(decimal(value).ok_or_else(|| damaged("a crooked size"))?);
                }
                _ if key.starts_with(b"GNU.sparse.") => {
                    return Err(damaged("a sparse file, which is not supported"));
                }
                _ => {}
            }
            rest = after;
        }
        Ok(())
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.input.read(&mut into[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// `LENGTH KEY=VALUE\n`, the length counting all of it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&bytes[..space])?).ok()?;
    let line = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = line.iter().position(|byte| *byte == b'=')?;
    Some((&line[..equals], &line[equals + 1..], &bytes[length..]))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn damaged(what: &str) -> TarError {
    TarError::Damaged(what.to_owned())
}

fn cut_short(error: io::Error) -> TarError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        damaged("it is cut short")
    } else {
        TarError::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tar::Tar;

    fn paths(bytes: &[u8]) -> Result<Vec<String>, TarError> {
        let mut reader = Reader::new(bytes);
        let mut all = Vec::new();
        while let Some(entry) = reader.next()? {
            all.push(String::from_utf8_lossy(&entry.path).into_owned());
        }
        Ok(all)
    }

    #[test]
    fn long_names_of_both_kinds_are_read() {
        let long = "d/".repeat(120) + "x";
        let bytes = Tar::new()
            .gnu_long(&long, b"one")
            .pax("path", &long, b"two")
            .file("plain", b"three")
            .end();
        assert_eq!(paths(&bytes).expect("reads"), [&long, &long, "plain"]);
    }

    #[test]
    fn an_archive_cut_anywhere_is_an_error_and_never_a_panic() {
        let bytes = Tar::new()
            .file("a", &[7; 700])
            .gnu_long(&"n".repeat(300), b"x")
            .end();
        let whole = bytes.len() - 1024;
        for cut in 0..whole {
            assert!(paths(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(paths(&bytes).expect("reads").len(), 2);
    }

    #[test]
    fn headers_that_ask_for_much_memory_are_refused() {
        for kind in [b'L', b'K', b'x'] {
            let bytes = Tar::new().raw("x", kind, 0o644, "", 1 << 40, b"").end();
            assert!(matches!(paths(&bytes), Err(TarError::Damaged(_))), "{kind}");
        }
    }

    #[test]
    fn crooked_pax_records_are_refused() {
        for text in [
            "9",
            "9 ",
            "99 path=x\n",
            "5 a=b",
            "0 a=b\n",
            "18446744073709551616 a=b\n",
            "8 path\n",
        ] {
            let bytes = Tar::new()
                .raw("x", b'x', 0o644, "", text.len() as u64, text.as_bytes())
                .end();
            assert!(paths(&bytes).is_err(), "{text:?}");
        }
    }
}
