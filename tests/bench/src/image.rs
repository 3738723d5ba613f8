//! A small image for the container engines, made of this host's own programs: no registry is needed.

use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the measurements run inside.
const PROGRAMS: [&str; 3] = ["echo", "sleep", "true"];

/// Packs the programs and the libraries they load.
pub(crate) fn archive() -> anyhow::Result<tempfile::NamedTempFile> {
    let root = tempfile::tempdir()?;
    for folder in ["bin", "proc", "sys", "dev", "etc", "tmp"] {
        fs::create_dir_all(root.path().join(folder))?;
    }
    for name in PROGRAMS {
        let program = ["/bin", "/usr/bin"]
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find(|path| path.is_file())
            .with_context(|| format!("this host has no {name}"))?;
        fs::copy(&program, root.path().join("bin").join(name))?;
        for library in libraries(&program)? {
            let inside = root.path().join(library.strip_prefix("/")?);
            fs::create_dir_all(inside.parent().context("a library at the root")?)?;
            fs::copy(&library, inside)?;
        }
    }
    let archive = tempfile::Builder::new().suffix(".tar").tempfile()?;
    let packed = Command::new("tar")
        .args(["--owner=0", "--group=0", "-cf"])
        .arg(archive.path())
        .arg("-C")
        .arg(root.path())
        .arg(".")
        .status()?;
    ensure!(packed.success(), "tar failed ({packed})");
    Ok(archive)
}

/// What a program loads, by absolute path; nothing for a static one.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_holds_the_programs() {
        let archive = archive().expect("archive");
        let listed = Command::new("tar")
            .arg("-tf")
            .arg(archive.path())
            .output()
            .expect("tar");
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        for name in PROGRAMS {
            assert!(
                text.lines().any(|line| line == format!("./bin/{name}")),
                "{name} in {text}"
            );
        }
    }
}
