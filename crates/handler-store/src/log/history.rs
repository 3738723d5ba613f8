//! Reads a log without having it open, also while its session appends: whole lines, from any line's start.

use super::MAX_LINE;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Bytes read at once.
const BUFFER: usize = 256 * 1024;

/// See the module. What is appended meanwhile is read too.
#[derive(Debug)]
pub struct LogHistory {
    file: BufReader<File>,
    line: Vec<u8>,
    offset: u64,
}

impl LogHistory {
    /// Starts at a byte, which must be a line's first one; none when there is no log.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, offset: u64) -> io::Result<Option<Self>> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(offset))?;
        Ok(Some(Self {
            file: BufReader::with_capacity(BUFFER, file),
            line: Vec::new(),
            offset,
        }))
    }

    /// The next whole line without its newline; none at the end, and before a line that is not whole yet.
    /// Blocks the thread while it reads.
    ///
    /// # Errors
    /// The file cannot be read, or has a line that is longer than any log writes.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let most = MAX_LINE as u64 + 1;
        let read = (&mut self.file)
            .take(most)
            .read_until(b'\n', &mut self.line)?;
        if self.line.last() != Some(&b'\n') {
            if read as u64 == most {
                return Err(io::Error::other("a line is too long for a log"));
            }
            return Ok(None);
        }
        self.offset += read as u64;
        self.line.pop();
        Ok(Some(&self.line))
    }

    /// Where the next line starts.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn whole_lines_are_read_from_where_one_left_off() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.ndjson");
        assert!(LogHistory::open(&path, 0).expect("missing").is_none());
        let mut file = File::create(&path).expect("log");
        file.write_all(b"{\"seq\":1}\n{\"seq\":2}\n{\"se")
            .expect("write");
        let mut history = LogHistory::open(&path, 0).expect("open").expect("there");
        assert_eq!(
            history.next_line().expect("line"),
            Some(&b"{\"seq\":1}"[..])
        );
        let second = history.offset();
        assert_eq!(
            history.next_line().expect("line"),
            Some(&b"{\"seq\":2}"[..])
        );
        assert_eq!(history.next_line().expect("half a line"), None);
        file.write_all(b"q\":3}\n").expect("write");
        let mut again = LogHistory::open(&path, second)
            .expect("open")
            .expect("there");
        assert_eq!(again.next_line().expect("line"), Some(&b"{\"seq\":2}"[..]));
        assert_eq!(again.next_line().expect("line"), Some(&b"{\"seq\":3}"[..]));
        assert_eq!(again.next_line().expect("end"), None);
    }
}
