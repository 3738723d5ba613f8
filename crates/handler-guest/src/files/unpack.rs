//! Unpacking a tar archive beneath a folder. The archive is not trusted.
//!
//! Invariant: nothing outside the folder is touched. Names that are absolute or hold `..` end the unpacking;
//! every folder on the way to an entry is opened from the one above it without following a link; a file is
//! written under a name of its own and renamed, so a link at its place is replaced and never written through.
//! Links that lead out of the folder, device nodes and the like are not made and told. Nothing is set-uid.

use super::tar::{BLOCK, Head, LONGEST_META, apply_pax, kind, padding, read_head};
use super::{folder, path};
use crate::fail;
use crate::failure::{from_errno, from_io};
use handler_types::guest::{GuestError, GuestErrorCode, Reply, UnpackLimits, Unpacked};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, ftruncate, futimens,
    linkat, mkdirat, openat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Most refused entries told.
const MOST_TOLD: usize = 100;
/// Most folders whose bits keep even their owner out; others stay open to the owner.
const MOST_CLOSED: usize = 10_000;
/// Zeros of this length and more become holes.
const HOLE: usize = 4096;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What the next bytes are.
#[derive(Debug)]
enum Next {
    /// A head, as far as it is here.
    Head(Vec<u8>),
    /// A long name or pax records.
    Meta { kind: u8, left: u64, data: Vec<u8> },
    /// A file's content.
    File { target: Box<Target>, left: u64 },
    /// Bytes of no interest.
    Skip(u64),
    /// After the end of the archive.
    Over,
}

/// A file being written under a name of its own.
#[derive(Debug)]
struct Target {
    folder: OwnedFd,
    temporary: String,
    name: Vec<u8>,
    file: OwnedFd,
    at: u64,
    mode: u32,
    modified: i64,
    is_placed: bool,
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Unpacking {
    root: OwnedFd,
    limits: UnpackLimits,
    next: Next,
    /// Bytes that fill up the content under way.
    fill: u64,
    /// Said by entries of their own for the next one.
    long_name: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
    pax: Vec<u8>,
    /// Folders that get their bits at the end, as they would keep us out.
    closed_folders: Vec<(Vec<Vec<u8>>, u32)>,
    done: Unpacked,
    entries: u64,
    was_any: bool,
}

impl Unpacking {
    /// Opens the folder, or makes it.
    pub(super) fn open(text: &str, limits: UnpackLimits) -> Result<Self, GuestError> {
        let full = path::decode_absolute(text)?;
        folder::make(text, true, None)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, OsStr::from_bytes(&full), flags, Mode::empty())
            .map_err(|errno| from_errno(text, errno))?;
        Ok(Self {
            root,
            limits,
            next: Next::Head(Vec::new()),
            fill: 0,
            long_name: None,
            long_target: None,
            pax: Vec::new(),
            closed_folders: Vec::new(),
            done: Unpacked::default(),
            entries: 0,
            was_any: false,
        })
    }

    /// Takes the next bytes of the archive. An error says what was written until then.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<(), GuestError> {
        self.take(data).map_err(|error| self.explain(error))
    }

    /// The archive ended.
    pub(super) fn finish(mut self) -> Result<Reply, GuestError> {
        let is_whole = match &self.next {
            Next::Head(head) => head.is_empty() && self.was_any,
            Next::Over => self.was_any,
            _ => false,
        };
        if !is_whole {
            let what = if self.was_any {
                "the archive ends in the middle"
            } else {
                "the archive is empty or no tar archive"
            };
            return Err(self.explain(fail(GuestErrorCode::Invalid, what)));
        }
        for (parts, mode) in std::mem::take(&mut self.closed_folders).into_iter().rev() {
            if let Ok(folder) = self.reach(&parts, false) {
                let _ = fchmod(&folder, Mode::from_raw_mode(mode));
            }
        }
        let unpacked = std::mem::take(&mut self.done);
        Ok(Reply::Unpacked { unpacked })
    }

    fn explain(&self, error: GuestError) -> GuestError {
        let Unpacked { files, bytes, .. } = self.done;
        let message = format!(
            "{} ({files} entries with {bytes} bytes were unpacked and stay)",
            error.message
        );
        fail(error.code, message)
    }

    fn take(&mut self, mut data: &[u8]) -> Result<(), GuestError> {
        while !data.is_empty() {
            match &mut self.next {
                Next::Head(head) => {
                    let count = data.len().min(BLOCK - head.len());
                    head.extend_from_slice(&data[..count]);
                    data = &data[count..];
                    if let Some(block) = head.first_chunk::<BLOCK>() {
                        let block = *block;
                        self.head(&block)?;
                    }
                }
                Next::Meta {
                    left, data: all, ..
                } => {
                    let count = cut(*left, data);
                    all.extend_from_slice(&data[..count]);
                    *left -= count as u64;
                    data = &data[count..];
                    if *left == 0 {
                        self.meta();
                    }
                }
                Next::File { target, left } => {
                    let count = cut(*left, data);
                    target
                        .write(&data[..count])
                        .map_err(|errno| target.failed(errno))?;
                    *left -= count as u64;
                    self.done.bytes += count as u64;
                    data = &data[count..];
                    if *left == 0 {
                        self.file_end()?;
                    }
                }
                Next::Skip(left) => {
                    let count = cut(*left, data);
                    *left -= count as u64;
                    data = &data[count..];
                    if *left == 0 {
                        self.next = Next::Head(Vec::new());
                    }
                }
                Next::Over => return Ok(()),
            }
        }
        Ok(())
    }

    /// A whole head is here.
    fn head(&mut self, block: &[u8; BLOCK]) -> Result<(), GuestError> {
        let invalid = |what: &str| fail(GuestErrorCode::Invalid, what);
        let head =
            read_head(block).map_err(|()| invalid("this is no tar archive, or a broken one"))?;
        self.was_any = true;
        let Some(mut head) = head else {
            self.next = Next::Over;
            return Ok(());
        };
        match head.kind {
            kind::LONG_NAME | kind::LONG_LINK | kind::PAX | kind::PAX_GLOBAL => {
                if head.size > LONGEST_META {
                    return Err(invalid("a name or record in the archive is too long"));
                }
                self.fill = padding(head.size);
                self.next = Next::Meta {
                    kind: head.kind,
                    left: head.size,
                    data: Vec::new(),
                };
                if head.size == 0 {
                    self.meta();
                }
                return Ok(());
            }
            _ => {}
        }
        if let Some(name) = self.long_name.take() {
            head.name = name;
        }
        if let Some(target) = self.long_target.take() {
            head.target = target;
        }
        apply_pax(&std::mem::take(&mut self.pax), &mut head).map_err(invalid)?;
        self.entry(&head)
    }

    fn meta(&mut self) {
        let Next::Meta { kind, data, .. } =
            std::mem::replace(&mut self.next, Next::Head(Vec::new()))
        else {
            return;
        };
        let text = |data: &[u8]| {
            data.split(|byte| *byte == 0)
                .next()
                .unwrap_or_default()
                .to_vec()
        };
        match kind {
            kind::LONG_NAME => self.long_name = Some(text(&data)),
            kind::LONG_LINK => self.long_target = Some(text(&data)),
            kind::PAX => self.pax = data,
            // What is said for all entries (a comment, a charset) changes nothing here.
            _ => {}
        }
        self.skip(self.fill);
    }

    fn skip(&mut self, count: u64) {
        self.next = if count == 0 {
            Next::Head(Vec::new())
        } else {
            Next::Skip(count)
        };
    }

    /// Makes one entry, or begins a file.
    fn entry(&mut self, head: &Head) -> Result<(), GuestError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            let message = format!("more than {} entries", self.limits.entries);
            return Err(fail(GuestErrorCode::Limit, message));
        }
        let told = path::encode(&head.name);
        let parts = parts(&head.name)
            .map_err(|why| fail(GuestErrorCode::Invalid, format!("entry `{told}` {why}")))?;
        if parts.len() > self.limits.depth as usize {
            let message = format!(
                "entry `{told}` is below more than {} folders",
                self.limits.depth
            );
            return Err(fail(GuestErrorCode::Limit, message));
        }
        let has_content = matches!(head.kind, kind::FILE | kind::CONTIGUOUS);
        if has_content && head.size > self.limits.bytes.saturating_sub(self.done.bytes) {
            let message = format!("entry `{told}`: more than {} bytes", self.limits.bytes);
            return Err(fail(GuestErrorCode::Limit, message));
        }
        let Some((name, above)) = parts.split_last() else {
            // The folder itself.
            self.skip_content(head);
            return Ok(());
        };
        let failed = |errno| from_errno(&told, errno);
        let result = match head.kind {
            kind::FILE | kind::CONTIGUOUS => return self.begin_file(head, name, above, &told),
            kind::FOLDER => self.make_folder(&parts, head.mode).map_err(failed),
            kind::LINK => self.make_link(head, name, above).map_err(failed),
            kind::HARD_LINK => self.make_hard_link(head, name, above).map_err(failed),
            _ => Ok(Some("is neither a file, a folder nor a link")),
        };
        match result? {
            None => self.done.files += 1,
            Some(why) => self.refuse(format!("`{told}` {why}")),
        }
        self.skip_content(head);
        Ok(())
    }

    /// Some writers give links a size without content: only kinds that have one are skipped over.
    fn skip_content(&mut self, head: &Head) {
        let bare = matches!(head.kind, kind::FOLDER | kind::LINK | kind::HARD_LINK);
        let size = if bare { 0 } else { head.size };
        self.skip(size.saturating_add(padding(size.min(u64::MAX - BLOCK as u64))));
    }

    fn refuse(&mut self, what: String) {
        self.done.refused_count += 1;
        if self.done.refused.len() < MOST_TOLD {
            self.done.refused.push(what);
        }
    }

    /// Opens the folder of these names, made where it is missing.
    fn reach(&self, parts: &[Vec<u8>], makes: bool) -> rustix::io::Result<OwnedFd> {
        let mut at = openat(&self.root, c".", FOLDER, Mode::empty())?;
        for part in parts {
            let name = OsStr::from_bytes(part);
            at = match openat(&at, name, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) if makes => {
                    match mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    openat(&at, name, FOLDER, Mode::empty())?
                }
                opened => opened?,
            };
        }
        Ok(at)
    }

    fn make_folder(
        &mut self,
        parts: &[Vec<u8>],
        mode: u32,
    ) -> rustix::io::Result<Option<&'static str>> {
        let folder = self.reach(parts, true)?;
        let mode = mode & 0o777;
        if mode & 0o700 == 0o700 || self.closed_folders.len() >= MOST_CLOSED {
            fchmod(&folder, Mode::from_raw_mode(mode | 0o700))?;
        } else {
            self.closed_folders.push((parts.to_vec(), mode));
        }
        Ok(None)
    }

    fn begin_file(
        &mut self,
        head: &Head,
        name: &[u8],
        above: &[Vec<u8>],
        told: &str,
    ) -> Result<(), GuestError> {
        let failed = |errno| from_errno(told, errno);
        let folder = self.reach(above, true).map_err(failed)?;
        let temporary = temporary().map_err(|error| from_io(told, &error))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&folder, &temporary, flags, mode).map_err(failed)?;
        self.fill = padding(head.size);
        self.next = Next::File {
            left: head.size,
            target: Box::new(Target {
                folder,
                temporary,
                name: name.to_vec(),
                file,
                at: 0,
                mode: head.mode & 0o777,
                modified: head.modified,
                is_placed: false,
            }),
        };
        if head.size == 0 {
            self.file_end()?;
        }
        Ok(())
    }

    fn file_end(&mut self) -> Result<(), GuestError> {
        let next = std::mem::replace(&mut self.next, Next::Head(Vec::new()));
        if let Next::File { mut target, .. } = next {
            target.place().map_err(|errno| target.failed(errno))?;
            self.done.files += 1;
        }
        self.skip(self.fill);
        Ok(())
    }

    /// Makes a link as it is said; one that leads out of the folder is not made.
    fn make_link(
        &self,
        head: &Head,
        name: &[u8],
        above: &[Vec<u8>],
    ) -> rustix::io::Result<Option<&'static str>> {
        if !stays_inside(above.len(), &head.target) {
            return Ok(Some("is a link that leads out of the folder"));
        }
        let folder = self.reach(above, true)?;
        let temporary = temporary().map_err(|_| Errno::IO)?;
        symlinkat(OsStr::from_bytes(&head.target), &folder, &temporary)?;
        place(&folder, &temporary, name).map(|()| None)
    }

    /// Makes another name of a file that is beneath the folder, reached without a link.
    fn make_hard_link(
        &self,
        head: &Head,
        name: &[u8],
        above: &[Vec<u8>],
    ) -> rustix::io::Result<Option<&'static str>> {
        const OUTSIDE: Option<&str> = Some("is a hard link to something outside or not there");
        let Ok(target) = parts(&head.target) else {
            return Ok(OUTSIDE);
        };
        let Some((target_name, target_above)) = target.split_last() else {
            return Ok(OUTSIDE);
        };
        let Ok(from) = self.reach(target_above, false) else {
            return Ok(OUTSIDE);
        };
        let target_name = OsStr::from_bytes(target_name);
        let is_file = statat(&from, target_name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if !is_file {
            return Ok(OUTSIDE);
        }
        let folder = self.reach(above, true)?;
        let temporary = temporary().map_err(|_| Errno::IO)?;
        // Never through a link, even when the name was exchanged for one since.
        linkat(&from, target_name, &folder, &temporary, AtFlags::empty())?;
        let placed = place(&folder, &temporary, name);
        // A rename onto another name of the same file does nothing.
        let _ = unlinkat(&folder, &temporary, AtFlags::empty());
        placed.map(|()| None)
    }
}

impl Target {
    fn failed(&self, errno: Errno) -> GuestError {
        from_errno(&path::encode(&self.name), errno)
    }

    fn write(&mut self, mut data: &[u8]) -> rustix::io::Result<()> {
        if data.len() >= HOLE && data.iter().all(|byte| *byte == 0) {
            self.at += data.len() as u64;
            return Ok(());
        }
        while !data.is_empty() {
            match rustix::io::pwrite(&self.file, data, self.at) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(Errno::IO),
                Ok(count) => {
                    self.at += count as u64;
                    data = &data[count..];
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Gives it its bits, time and name.
    fn place(&mut self) -> rustix::io::Result<()> {
        ftruncate(&self.file, self.at)?;
        fchmod(&self.file, Mode::from_raw_mode(self.mode))?;
        let time = Timespec {
            tv_sec: self.modified,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        // A time that the file system cannot keep is no reason to fail.
        let _ = futimens(&self.file, &times);
        place(&self.folder, &self.temporary, &self.name)?;
        self.is_placed = true;
        Ok(())
    }
}

/// Renames to the wanted name; the temporary one is gone in any case.
fn place(folder: &OwnedFd, temporary: &str, name: &[u8]) -> rustix::io::Result<()> {
    renameat(folder, temporary, folder, OsStr::from_bytes(name)).inspect_err(|_| {
        let _ = unlinkat(folder, temporary, AtFlags::empty());
    })
}

fn temporary() -> std::io::Result<String> {
    Ok(format!(".handler-{}.tmp", crate::sys::random_hex::<8>()?))
}

fn cut(left: u64, data: &[u8]) -> usize {
    usize::try_from(left).map_or(data.len(), |left| left.min(data.len()))
}

/// The names of a path in an archive; none for the folder itself.
fn parts(name: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    if name.first() == Some(&b'/') {
        return Err("has an absolute name");
    }
    if name.contains(&0) {
        return Err("has a NUL byte in its name");
    }
    let mut parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err("leads out of the folder (`..`)"),
            part => parts.push(part.to_vec()),
        }
    }
    Ok(parts)
}

/// Whether a link's target, read from a folder `depth` below the root, stays beneath the root.
fn stays_inside(depth: usize, target: &[u8]) -> bool {
    if target.is_empty() || target[0] == b'/' || target.contains(&0) {
        return false;
    }
    let mut depth = depth;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return false,
            },
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_are_told_from_those_that_do_not() {
        assert_eq!(
            parts(b"./a//b/").expect("fine"),
            [b"a".to_vec(), b"b".to_vec()]
        );
        assert!(parts(b"./").expect("the folder").is_empty());
        for bad in [&b"/a"[..], b"../a", b"a/../b", b"a/..", b"a\0b"] {
            assert!(parts(bad).is_err(), "{bad:?}");
        }
        assert!(stays_inside(1, b"../a"));
        assert!(stays_inside(0, b"a/../b"));
        for bad in [&b"../a"[..], b"/etc", b"a/../../b", b""] {
            assert!(!stays_inside(0, bad), "{bad:?}");
        }
    }
}
