//! Archives nobody trusts.

use crate::cut;
use handler_archive::stream::{Reader, Sink};
use handler_archive::tar::Head;
use handler_archive::zip::{FromTar, to_tar};
use handler_archive::{ArchiveError, Limits, Unpacking};
use std::io::{Seek as _, Write as _};
use std::path::Path;

/// What may be made of one input.
const LIMITS: Limits = Limits {
    bytes: 256 * 1024,
    entries: 64,
    depth: 8,
};

/// What a reader told, in order.
#[derive(Debug, Default, PartialEq)]
struct Told(Vec<String>, Vec<u8>);

impl Sink for Told {
    fn entry(&mut self, head: &Head) -> Result<(), ArchiveError> {
        if self.0.len() >= 1000 {
            return Err(ArchiveError::limit("enough"));
        }
        self.0.push(format!("{head:?} at {}", self.1.len()));
        Ok(())
    }

    fn content(&mut self, data: &[u8]) -> Result<(), ArchiveError> {
        self.1.extend_from_slice(data);
        Ok(())
    }

    fn end_of_content(&mut self) -> Result<(), ArchiveError> {
        self.0.push(format!("to {}", self.1.len()));
        Ok(())
    }
}

/// Whether it came to a proper end, and what was told until then.
fn told<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (bool, Told) {
    let (mut reader, mut told) = (Reader::default(), Told::default());
    for piece in pieces {
        if reader.add(piece, &mut told).is_err() {
            return (false, told);
        }
    }
    (reader.finish().is_ok(), told)
}

/// The entries do not depend on the cuts; unpacked, nothing is made outside the folder; zipped, it comes back.
pub(crate) fn tar(data: &[u8]) {
    let (bytes, pieces) = cut(data);
    let (whole, entries) = told([bytes].into_iter());
    assert_eq!(told(pieces), (whole, entries));
    unpack(bytes);
    let mut zipping = FromTar::new();
    let Ok(mut zipped) = zipping.add(bytes) else {
        return;
    };
    let Ok(end) = zipping.finish() else { return };
    zipped.extend_from_slice(&end);
    to_tar(file_of(&zipped), LIMITS, |_| true).ok();
}

/// What a zip archive gives is a tar archive that can be read to its end, within the limits.
pub(crate) fn zip(data: &[u8]) {
    let mut tar = Vec::new();
    let given = to_tar(file_of(data), LIMITS, |piece| {
        tar.extend_from_slice(&piece);
        true
    });
    assert!(tar.len() < 2 * 1024 * 1024, "{} bytes", tar.len());
    if given.is_ok() {
        let (whole, _) = told([&*tar].into_iter());
        assert!(whole, "what was made of it is no tar archive");
        unpack(&tar);
    }
}

/// Unpacks beneath a folder of its own and looks that nothing is beside it.
fn unpack(bytes: &[u8]) {
    let outer = tempfile::tempdir().expect("a temporary folder");
    let inner = outer.path().join("inner");
    std::fs::create_dir(&inner).expect("a folder");
    let mut unpacking = Unpacking::open(&inner, LIMITS).expect("the folder");
    let added = unpacking.add(bytes);
    if added.is_ok() {
        let done = unpacking.finish();
        if let Ok(summary) = done {
            assert!(summary.bytes <= LIMITS.bytes && summary.files <= LIMITS.entries);
        }
    }
    assert_eq!(names(outer.path()), ["inner"]);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        entry.file_name().to_string_lossy().into_owned()
    };
    entries.map(name).collect()
}

/// A file without a name.
fn file_of(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("its content");
    file.rewind().expect("its start");
    file
}
