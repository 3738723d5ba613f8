//! The API's description: written from the program, committed, compared in CI.

use crate::run::{cargo, output, root};
use anyhow::{Context as _, bail};
use std::path::PathBuf;

fn file() -> PathBuf {
    root().join("openapi/handler.json")
}

fn describe() -> anyhow::Result<Vec<u8>> {
    output(cargo().args(["run", "--quiet", "-p", "handler", "--", "openapi"]))
}

/// Writes it.
pub(crate) fn write() -> anyhow::Result<()> {
    let file = file();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&file, describe()?).with_context(|| format!("cannot write {}", file.display()))
}

/// Compares it.
pub(crate) fn check() -> anyhow::Result<()> {
    let committed = std::fs::read(file()).unwrap_or_default();
    if committed != describe()? {
        bail!("openapi/handler.json is not what the program says; run `cargo xtask openapi`");
    }
    Ok(())
}
