//! Files made from the program: the API's description and the reference page. Committed, compared in CI.

use crate::run::{cargo, output, root};
use anyhow::{Context as _, bail};

/// What the program is asked, and where its answer is kept.
const MADE: &[(&str, &str)] = &[
    ("openapi", "openapi/handler.json"),
    ("reference", "docs/reference.md"),
];

fn ask(command: &str) -> anyhow::Result<Vec<u8>> {
    output(cargo().args(["run", "--quiet", "-p", "handler", "--", command]))
}

/// Writes them.
pub(crate) fn write() -> anyhow::Result<()> {
    for (command, file) in MADE {
        let path = root().join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, ask(command)?).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(())
}

/// Compares them.
pub(crate) fn check() -> anyhow::Result<()> {
    for (command, file) in MADE {
        let committed = std::fs::read(root().join(file)).unwrap_or_default();
        if committed != ask(command)? {
            bail!("{file} is not what the program says; run `cargo xtask made`");
        }
    }
    Ok(())
}
