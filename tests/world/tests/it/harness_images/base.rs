//! A base image that comes from no registry: Debian 13 by mmdebstrap, kept between runs, in an image store of
//! the test's own. The names of Handler's images are fixed: a person's own must not be taken.

use anyhow::Context as _;
use handler_testkit::World;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The release the recipes are made for.
const RELEASE: &str = "trixie";
/// How long making it may take on a busy machine.
const MADE_WITHIN: Duration = Duration::from_secs(900);
/// Its name in the store.
pub(super) const BASE: &str = "localhost/handler-world-base:13";

/// Why images cannot be built here.
pub(super) fn absent() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can have an image store of its own here".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing = ["podman", "mmdebstrap"]
        .into_iter()
        .find(|name| !is_there(name));
    missing.map(|name| format!("there is no {name} (scripts/test-engines installs it)"))
}

/// A store of images in a folder; Podman is led there by one variable.
pub(super) struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    pub(super) fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("hw-images-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let path = folder.path().display();
        let settings = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{path}/images\"\nrunroot = \"{path}/run\"\n"
        );
        std::fs::write(folder.path().join("storage.conf"), settings)?;
        Ok(Self { folder })
    }

    /// What leads Podman there.
    pub(super) fn variable(&self) -> (&'static str, PathBuf) {
        let path = self.folder.path().join("storage.conf");
        ("CONTAINERS_STORAGE_CONF", path)
    }

    /// Podman's own word on the store.
    pub(super) async fn podman(&self, args: &[&str]) -> anyhow::Result<String> {
        let (name, value) = self.variable();
        let mut command = Command::new("podman");
        command.args(args).env(name, value).kill_on_drop(true);
        let output = command.output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "podman {args:?}: {said}");
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Podman keeps the folder of layers mounted over itself. Its own reset would take networks of others.
        let layers = self.folder.path().join("images/overlay");
        let mut umount = std::process::Command::new("umount");
        umount
            .arg("--lazy")
            .arg(layers)
            .stderr(Stdio::null())
            .status()
            .ok();
    }
}

/// Brings the base image into a world's store; why not, when the machine cannot make one.
pub(super) async fn provide(world: &World) -> anyhow::Result<Result<(), String>> {
    let archive = match archive().await? {
        Ok(archive) => archive.to_string_lossy().into_owned(),
        Err(why) => return Ok(Err(why)),
    };
    let import = ["image", "import", &archive, BASE, "--backend", "podman"];
    world.cli_ok(&import).await?;
    Ok(Ok(()))
}

/// The archive, made by the first who needs it.
async fn archive() -> anyhow::Result<Result<PathBuf, String>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("world-images");
    std::fs::create_dir_all(&folder)?;
    let archive = folder.join(format!("{RELEASE}.tar"));
    let lock = File::create(folder.join("lock"))?;
    let _turn = tokio::task::spawn_blocking(move || {
        flock(&lock, FlockOperation::LockExclusive).map(|()| lock)
    })
    .await??;
    if archive.is_file() {
        return Ok(Ok(archive));
    }
    let staging = folder.join("part.tar");
    // A host's name and resolver are what mmdebstrap takes along; they are no part of a base image.
    let mut command = Command::new("mmdebstrap");
    command
        .args(["--variant=minbase", "--quiet", "--include=ca-certificates"])
        .arg("--dpkgopt=force-unsafe-io")
        .arg("--customize-hook=rm -f \"$1/etc/hostname\" \"$1/etc/resolv.conf\"")
        .arg(RELEASE)
        .arg(&staging)
        .kill_on_drop(true);
    let output = tokio::time::timeout(MADE_WITHIN, command.output())
        .await
        .context("mmdebstrap does not end")??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        return Ok(Err(format!("mmdebstrap makes no Debian here: {last}")));
    }
    std::fs::rename(staging, &archive)?;
    Ok(Ok(archive))
}
