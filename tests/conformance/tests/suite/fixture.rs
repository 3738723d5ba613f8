//! The image of the suite: a static busybox and nothing else, so that no shell but `sh`, no certificates, no
//! users but root are in it. What works there works in any image.

use anyhow::{Context as _, ensure};
use handler_testkit::World;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The image's name in every store.
pub(crate) const NAME: &str = "localhost/handler-conformance:1";

/// Imports the image into a backend's store, as a person would.
pub(crate) async fn import(world: &World, backend: &str) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let archive = rootfs(folder.path())?;
    let archive = archive.to_string_lossy().into_owned();
    world.share(Path::new(&archive))?;
    world
        .cli_ok(&["image", "import", "--backend", backend, &archive, NAME])
        .await?;
    Ok(NAME.to_owned())
}

/// Makes the archive in `folder`.
fn rootfs(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let root = folder.join("root");
    for name in [
        "bin", "etc", "tmp", "proc", "sys", "dev", "home", "root", "usr/bin", "var", "opt/tool",
    ] {
        std::fs::create_dir_all(root.join(name))?;
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .iter()
        .find(|path| Path::new(path).exists())
        .context("no busybox")?;
    std::fs::copy(busybox, root.join("bin/busybox"))?;
    let applets = Command::new(busybox).arg("--list").output()?;
    for applet in String::from_utf8_lossy(&applets.stdout).lines() {
        if applet != "busybox" {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet))?;
        }
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    std::fs::write(root.join("etc/group"), "root:x:0:\n")?;
    std::fs::write(root.join("opt/tool/mark"), "from the image\n")?;
    let archive = folder.join("rootfs.tar");
    let status = Command::new("tar")
        .args(["--numeric-owner", "--owner=0", "--group=0", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(&root)
        .arg(".")
        .status()?;
    ensure!(status.success(), "tar: {status}");
    Ok(archive)
}
