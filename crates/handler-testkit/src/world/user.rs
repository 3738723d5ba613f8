//! Another user of this machine, as whom a world runs: what works for root only shows itself there.

use crate::scratch::Scratch;
use anyhow::Context as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id, not 0.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl User {
    /// The user of this name, if this process is root and there is one.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let fields: Vec<&str> = users
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.first() == Some(&name))?;
        Some(Self {
            name: name.to_owned(),
            uid: fields.get(2)?.parse().ok().filter(|uid| *uid != 0)?,
            gid: fields.get(3)?.parse().ok()?,
        })
    }

    /// Makes the command run as this user, without further groups.
    pub fn apply(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid).env("USER", &self.name);
    }

    /// Makes a path the user's.
    ///
    /// # Errors
    /// When this process may not.
    pub fn own(&self, path: &Path) -> anyhow::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))
            .with_context(|| format!("give {} to {}", path.display(), self.name))
    }

    /// Gives the folders to the user and copies the program there: where it was built may be out of reach.
    pub(super) fn take_over(&self, scratch: &Scratch, program: &Path) -> anyhow::Result<PathBuf> {
        let bin = scratch.path().join("bin");
        std::fs::create_dir_all(&bin)?;
        let copy = bin.join("handler");
        std::fs::copy(program, &copy).context("copy the program")?;
        for entry in std::fs::read_dir(scratch.path())? {
            self.own(&entry?.path())?;
        }
        self.own(&copy)?;
        self.own(scratch.path())?;
        Ok(copy)
    }
}
