//! The requests of an SFTP client.

use super::attributes::{error, of_entry};
use super::names;
use super::read::Reader;
use super::tools;
use super::write::Writer;
use crate::Target;
use handler_engine::GuestHandle;
use handler_types::guest::{FileEntry, FileKind};
use russh_sftp::protocol::{
    Attrs, Data, File, FileAttributes, Handle, Name, OpenFlags, Packet, Status, StatusCode, Version,
};
use russh_sftp::server::StatusReply;
use std::collections::{HashMap, VecDeque};

/// Most files and folders open at a time.
const MOST_OPEN: usize = 256;
/// Names given in one answer.
const NAMES_AT_ONCE: usize = 100;
/// Links followed one after another.
const MOST_LINKS: usize = 16;

/// Something a client opened.
enum Open {
    Reader(Reader),
    Writer(Box<Writer>),
    /// A file open both ways: read as it was when opened.
    Both(Reader, Box<Writer>),
    Folder(VecDeque<File>),
}

/// One client's files.
pub(crate) struct Files {
    target: Target,
    open: HashMap<String, Open>,
    next: u64,
}

type Answer<T> = Result<T, StatusReply>;

fn done(id: u32) -> Status {
    Status {
        id,
        status_code: StatusCode::Ok,
        error_message: "Ok".to_owned(),
        language_tag: "en".to_owned(),
    }
}

fn wrong_handle() -> StatusReply {
    StatusCode::Failure.with_message("no such handle")
}

impl Files {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            open: HashMap::new(),
            next: 0,
        }
    }

    fn guest(&self) -> &GuestHandle {
        &self.target.guest
    }

    /// A client's path, absolute, as the client writes it.
    fn absolute(&self, path: &str) -> Answer<String> {
        if path.contains('\0') {
            return Err(StatusCode::NoSuchFile.with_message("a path cannot hold NUL"));
        }
        let Target { workdir, home, .. } = &self.target;
        Ok(names::absolute(path, workdir, home))
    }

    /// A client's path as the guest writes it.
    fn path(&self, path: &str) -> Answer<String> {
        Ok(names::to_guest(&self.absolute(path)?))
    }

    fn keep(&mut self, id: u32, open: Open) -> Answer<Handle> {
        if self.open.len() >= MOST_OPEN {
            return Err(StatusCode::Failure.with_message("too many open files"));
        }
        self.next += 1;
        let handle = self.next.to_string();
        self.open.insert(handle.clone(), open);
        Ok(Handle { id, handle })
    }

    /// Describes a path (the guest's writing) with links followed.
    async fn follow(&self, path: &str) -> Answer<FileEntry> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let entry = self.guest().stat(&path).await.map_err(|e| error(&e))?;
            match &entry.target {
                Some(target) if entry.kind == FileKind::Link => {
                    // Both are in the guest's writing, and so is what comes out.
                    path = names::absolute(target, names::parent(&path), "/");
                }
                _ => return Ok(entry),
            }
        }
        Err(StatusCode::Failure.with_message("too many links"))
    }

    async fn begin_write(
        &self,
        path: String,
        flags: OpenFlags,
        attrs: &FileAttributes,
    ) -> Answer<Writer> {
        let there = self.follow(&path).await;
        let old = match &there {
            Ok(entry) if entry.kind == FileKind::Folder => {
                return Err(StatusCode::Failure.with_message("it is a folder"));
            }
            Ok(_) if flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUDE) => {
                return Err(StatusCode::Failure.with_message("it exists already"));
            }
            Ok(_) if flags.contains(OpenFlags::TRUNCATE) => 0,
            Ok(entry) => entry.size,
            Err(refused) if refused.status_code != StatusCode::NoSuchFile => {
                return Err(refused.clone());
            }
            Err(refused) if !flags.contains(OpenFlags::CREATE) => return Err(refused.clone()),
            Err(_) => {
                // Told now rather than when all was sent.
                self.follow(names::parent(&path)).await?;
                0
            }
        };
        let mode = attrs.permissions.map(|mode| mode & 0o7777);
        let appends = flags.contains(OpenFlags::APPEND);
        Ok(Writer::begin(self.guest(), path, mode, old, appends))
    }

    /// Sets what can be set of a path (the guest's writing).
    async fn set(&self, path: &str, mode: Option<u32>, mtime: Option<u32>) -> Answer<()> {
        if let Some(mode) = mode {
            let mode = mode & 0o7777;
            let changed = self.guest().chmod(path, mode, false).await;
            changed.map_err(|e| error(&e))?;
        }
        if let Some(mtime) = mtime {
            let time = format!("@{mtime}");
            let path = names::from_guest(path);
            let argv = ["touch", "-m", "-c", "-d", &time, "--", &path];
            tools::run(self.guest(), &argv)
                .await
                .map_err(|e| error(&e))?;
        }
        Ok(())
    }

    async fn cut(&self, path: String, size: u64) -> Answer<()> {
        let entry = self.follow(&path).await?;
        let mut writer = Writer::begin(self.guest(), path, None, size.min(entry.size), false);
        if size > entry.size {
            writer.write(size, Vec::new()).await?;
        }
        writer.finish().await
    }
}

impl russh_sftp::server::Handler for Files {
    type Error = StatusReply;

    fn unimplemented(&self) -> StatusReply {
        StatusCode::OpUnsupported.into()
    }

    async fn init(&mut self, _version: u32, _ext: HashMap<String, String>) -> Answer<Version> {
        let mut version = Version::new();
        for name in [
            "posix-rename@openssh.com",
            "expand-path@openssh.com",
            "fsync@openssh.com",
        ] {
            version.extensions.insert(name.to_owned(), "1".to_owned());
        }
        Ok(version)
    }

    async fn open(
        &mut self,
        id: u32,
        filename: String,
        flags: OpenFlags,
        attrs: FileAttributes,
    ) -> Answer<Handle> {
        let path = self.path(&filename)?;
        if !flags.intersects(OpenFlags::WRITE | OpenFlags::APPEND) {
            let reader = Reader::open(self.guest(), path).await;
            return self.keep(id, Open::Reader(reader.map_err(|e| error(&e))?));
        }
        let old = match flags.contains(OpenFlags::READ) {
            true => Reader::open(self.guest(), path.clone()).await.ok(),
            false => None,
        };
        let writer = Box::new(self.begin_write(path, flags, &attrs).await?);
        let open = match old {
            Some(reader) => Open::Both(reader, writer),
            None => Open::Writer(writer),
        };
        self.keep(id, open)
    }

    async fn close(&mut self, id: u32, handle: String) -> Answer<Status> {
        match self.open.remove(&handle).ok_or_else(wrong_handle)? {
            Open::Reader(_) | Open::Folder(_) => {}
            Open::Writer(writer) | Open::Both(_, writer) => {
                let (path, mode, mtime) = (writer.path.clone(), writer.mode, writer.mtime);
                writer.finish().await?;
                self.set(&path, mode, mtime).await?;
            }
        }
        Ok(done(id))
    }

    async fn read(&mut self, id: u32, handle: String, offset: u64, len: u32) -> Answer<Data> {
        let guest = self.target.guest.clone();
        let reader = match self.open.get_mut(&handle).ok_or_else(wrong_handle)? {
            Open::Reader(reader) | Open::Both(reader, _) => reader,
            Open::Writer(_) | Open::Folder(_) => return Err(wrong_handle()),
        };
        let data = reader.read(&guest, offset, len).await;
        let data = data.map_err(|e| error(&e))?;
        if data.is_empty() && len > 0 {
            return Err(StatusCode::Eof.into());
        }
        Ok(Data { id, data })
    }

    async fn write(
        &mut self,
        id: u32,
        handle: String,
        offset: u64,
        data: Vec<u8>,
    ) -> Answer<Status> {
        match self.open.get_mut(&handle).ok_or_else(wrong_handle)? {
            Open::Writer(writer) | Open::Both(_, writer) => writer.write(offset, data).await?,
            Open::Reader(_) | Open::Folder(_) => return Err(wrong_handle()),
        }
        Ok(done(id))
    }

    async fn lstat(&mut self, id: u32, path: String) -> Answer<Attrs> {
        let path = self.path(&path)?;
        let entry = self.guest().stat(&path).await.map_err(|e| error(&e))?;
        let attrs = of_entry(&entry);
        Ok(Attrs { id, attrs })
    }

    async fn stat(&mut self, id: u32, path: String) -> Answer<Attrs> {
        let attrs = of_entry(&self.follow(&self.path(&path)?).await?);
        Ok(Attrs { id, attrs })
    }

    async fn fstat(&mut self, id: u32, handle: String) -> Answer<Attrs> {
        let (path, written) = match self.open.get(&handle).ok_or_else(wrong_handle)? {
            Open::Reader(reader) => (reader.path().to_owned(), None),
            Open::Writer(writer) | Open::Both(_, writer) => {
                (writer.path.clone(), Some(writer.size()))
            }
            Open::Folder(_) => return Err(wrong_handle()),
        };
        let attrs = match (self.follow(&path).await, written) {
            (Ok(entry), None) => of_entry(&entry),
            (Ok(entry), size) => FileAttributes {
                size,
                ..of_entry(&entry)
            },
            (Err(_), Some(size)) => FileAttributes {
                size: Some(size),
                permissions: Some(0o100_644),
                ..FileAttributes::default()
            },
            (Err(refused), None) => return Err(refused),
        };
        Ok(Attrs { id, attrs })
    }

    async fn setstat(&mut self, id: u32, path: String, attrs: FileAttributes) -> Answer<Status> {
        let path = self.path(&path)?;
        if attrs.uid.is_some() || attrs.gid.is_some() {
            return Err(StatusCode::OpUnsupported.with_message("owners cannot be changed"));
        }
        if let Some(size) = attrs.size {
            self.cut(path.clone(), size).await?;
        }
        self.set(&path, attrs.permissions, attrs.mtime).await?;
        Ok(done(id))
    }

    async fn fsetstat(&mut self, id: u32, handle: String, attrs: FileAttributes) -> Answer<Status> {
        match self.open.get_mut(&handle).ok_or_else(wrong_handle)? {
            Open::Writer(writer) | Open::Both(_, writer) => {
                writer.mode = attrs.permissions.or(writer.mode);
                writer.mtime = attrs.mtime.or(writer.mtime);
                Ok(done(id))
            }
            Open::Reader(reader) => {
                let path = reader.path().to_owned();
                self.set(&path, attrs.permissions, attrs.mtime).await?;
                Ok(done(id))
            }
            Open::Folder(_) => Err(wrong_handle()),
        }
    }

    async fn opendir(&mut self, id: u32, path: String) -> Answer<Handle> {
        let path = self.path(&path)?;
        let listed = self.guest().list(&path, 1).await;
        let (entries, truncated) = listed.map_err(|e| error(&e))?;
        if truncated {
            return Err(StatusCode::Failure.with_message("the folder has too many entries"));
        }
        let file = |entry: &FileEntry| {
            let path = names::from_guest(&entry.path);
            File::new(names::last(&path), of_entry(entry))
        };
        let files = entries.iter().map(file).collect();
        self.keep(id, Open::Folder(files))
    }

    async fn readdir(&mut self, id: u32, handle: String) -> Answer<Name> {
        match self.open.get_mut(&handle).ok_or_else(wrong_handle)? {
            Open::Folder(files) if files.is_empty() => Err(StatusCode::Eof.into()),
            Open::Folder(files) => {
                let count = files.len().min(NAMES_AT_ONCE);
                let files = files.drain(..count).collect();
                Ok(Name { id, files })
            }
            _ => Err(wrong_handle()),
        }
    }

    async fn remove(&mut self, id: u32, filename: String) -> Answer<Status> {
        let path = self.path(&filename)?;
        let entry = self.guest().stat(&path).await.map_err(|e| error(&e))?;
        if entry.kind == FileKind::Folder {
            return Err(StatusCode::Failure.with_message("it is a folder"));
        }
        let removed = self.guest().remove(&path, false).await;
        removed.map_err(|e| error(&e))?;
        Ok(done(id))
    }

    async fn mkdir(&mut self, id: u32, path: String, attrs: FileAttributes) -> Answer<Status> {
        let path = self.path(&path)?;
        let mode = attrs.permissions.map(|mode| mode & 0o7777);
        let made = self.guest().mkdir(&path, false, mode).await;
        made.map_err(|e| error(&e))?;
        Ok(done(id))
    }

    async fn rmdir(&mut self, id: u32, path: String) -> Answer<Status> {
        let path = self.path(&path)?;
        let entry = self.guest().stat(&path).await.map_err(|e| error(&e))?;
        if entry.kind != FileKind::Folder {
            return Err(StatusCode::Failure.with_message("it is no folder"));
        }
        let removed = self.guest().remove(&path, false).await;
        removed.map_err(|e| error(&e))?;
        Ok(done(id))
    }

    async fn realpath(&mut self, id: u32, path: String) -> Answer<Name> {
        let files = vec![File::dummy(self.absolute(&path)?)];
        Ok(Name { id, files })
    }

    async fn rename(&mut self, id: u32, from: String, to: String) -> Answer<Status> {
        let (from, to) = (self.path(&from)?, self.path(&to)?);
        let renamed = self.guest().rename(&from, &to, false).await;
        renamed.map_err(|e| error(&e))?;
        Ok(done(id))
    }

    async fn readlink(&mut self, id: u32, path: String) -> Answer<Name> {
        let path = self.path(&path)?;
        let entry = self.guest().stat(&path).await.map_err(|e| error(&e))?;
        let target = entry.target.ok_or_else(|| {
            let text = "it is no link";
            StatusCode::Failure.with_message(text)
        })?;
        let files = vec![File::dummy(names::from_guest(&target))];
        Ok(Name { id, files })
    }

    /// Clients follow OpenSSH, which gives the two the other way round than the draft.
    async fn symlink(&mut self, id: u32, target: String, link: String) -> Answer<Status> {
        let link = self.absolute(&link)?;
        if target.contains('\0') || target.is_empty() {
            return Err(StatusCode::Failure.with_message("a link needs a target"));
        }
        let argv = ["ln", "-s", "-n", "--", &target, &link];
        let made = tools::run(self.guest(), &argv).await;
        made.map_err(|e| error(&e))?;
        Ok(done(id))
    }

    async fn extended(&mut self, id: u32, request: String, data: Vec<u8>) -> Answer<Packet> {
        let mut texts = texts(&data);
        match request.as_str() {
            "posix-rename@openssh.com" => {
                let from = self.path(&next(&mut texts)?)?;
                let to = self.path(&next(&mut texts)?)?;
                let renamed = self.guest().rename(&from, &to, true).await;
                renamed.map_err(|e| error(&e))?;
                Ok(Packet::Status(done(id)))
            }
            "expand-path@openssh.com" => {
                let path = self.absolute(&next(&mut texts)?)?;
                let files = vec![File::dummy(path)];
                Ok(Packet::Name(Name { id, files }))
            }
            // Files are written through when they are closed.
            "fsync@openssh.com" => Ok(Packet::Status(done(id))),
            _ => Err(StatusCode::OpUnsupported.into()),
        }
    }
}

/// The length-prefixed texts of an extended request.
fn texts(mut data: &[u8]) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let (text, rest) = rest.split_at_checked(length)?;
        data = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    })
}

fn next(texts: &mut impl Iterator<Item = String>) -> Answer<String> {
    texts
        .next()
        .ok_or_else(|| StatusCode::BadMessage.with_message("a text is missing"))
}

#[cfg(test)]
mod tests {
    use super::texts;

    #[test]
    fn texts_of_an_extended_request_end_where_they_are_cut() {
        let data = [0, 0, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 9, b'x'];
        assert_eq!(texts(&data).collect::<Vec<_>>(), ["a", ""]);
        assert_eq!(texts(&[0, 0]).count(), 0);
    }
}
