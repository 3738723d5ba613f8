//! Paths inside the sandbox: describing, listing, making, renaming and removing them.

use super::error::GuestCallError;
use super::handle::GuestHandle;
use handler_types::guest::{FileEntry, Op, Reply};

impl GuestHandle {
    /// Describes a path.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn stat(&self, path: &str) -> Result<FileEntry, GuestCallError> {
        let path = path.to_owned();
        match self.call(Op::Stat { path }, self.timing().call).await? {
            Reply::Entry { entry } => Ok(entry),
            _ => Err(self.unexpected()),
        }
    }

    /// Lists a folder, `depth` levels deep (1–32); `true`: more exist than are listed.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn list(
        &self,
        path: &str,
        depth: u32,
    ) -> Result<(Vec<FileEntry>, bool), GuestCallError> {
        let path = path.to_owned();
        let op = Op::List { path, depth };
        match self.call(op, self.timing().slow_call).await? {
            Reply::Entries {
                entries, truncated, ..
            } => Ok((entries, truncated)),
            _ => Err(self.unexpected()),
        }
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn mkdir(
        &self,
        path: &str,
        parents: bool,
        mode: Option<u32>,
    ) -> Result<(), GuestCallError> {
        let path = path.to_owned();
        let op = Op::Mkdir {
            path,
            parents,
            mode,
        };
        self.done(op, self.timing().call).await
    }

    /// Sets permission bits (at most `0o7777`); with `recursive` of all a folder holds, links below it left alone.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn chmod(
        &self,
        path: &str,
        mode: u32,
        recursive: bool,
    ) -> Result<(), GuestCallError> {
        let op = Op::Chmod {
            path: path.to_owned(),
            mode,
            recursive,
        };
        self.done(op, self.timing().slow_call).await
    }

    /// Renames a path.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn rename(
        &self,
        from: &str,
        to: &str,
        overwrite: bool,
    ) -> Result<(), GuestCallError> {
        let op = Op::Move {
            from: from.to_owned(),
            to: to.to_owned(),
            overwrite,
        };
        self.done(op, self.timing().call).await
    }

    /// Removes a path; with `recursive` a folder with all it holds.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn remove(&self, path: &str, recursive: bool) -> Result<(), GuestCallError> {
        let path = path.to_owned();
        let op = Op::Remove { path, recursive };
        self.done(op, self.timing().slow_call).await
    }
}
