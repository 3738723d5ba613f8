//! The arrows between rooms, and a few rules on files: what `ARCHITECTURE.md` says is checked here.

use crate::run::{cargo, output, root};
use anyhow::{Context as _, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who may depend on whom (normal and build dependencies). Nothing else.
const ARROWS: &[(&str, &[&str])] = &[
    ("handler-activity", &["types"]),
    ("handler-types", &[]),
    ("handler-archive", &[]),
    ("handler-base", &["types"]),
    ("handler-folder", &["types", "base"]),
    ("handler-harness", &["types"]),
    ("handler-scripted", &[]),
    ("handler-terminal", &[]),
    ("handler-egress", &["types", "base"]),
    ("handler-guest", &["types", "archive", "netstack"]),
    ("handler-netstack", &[]),
    ("handler-store", &["types", "base"]),
    ("handler-client", &["types", "base"]),
    ("handler-engine", &["types", "base", "store"]),
    ("handler-session", &["types", "base", "store"]),
    ("handler-images", &["types", "base", "engine"]),
    ("handler-drivers", &["types", "base", "engine", "images"]),
    (
        "handler-server",
        &[
            "types", "base", "archive", "harness", "store", "engine", "drivers", "session",
            "client", "terminal", "ssh", "activity", "folder",
        ],
    ),
    ("handler-ssh", &["types", "base", "engine"]),
    (
        "handler-cli",
        &["types", "base", "client", "archive", "terminal"],
    ),
    (
        "handler",
        &[
            "types", "base", "client", "cli", "server", "egress", "scripted", "folder",
        ],
    ),
    (
        "handler-testkit",
        &[
            "types", "base", "store", "engine", "session", "client", "scripted", "terminal",
        ],
    ),
    (
        "handler-bench",
        &[
            "types", "base", "store", "engine", "drivers", "client", "testkit",
        ],
    ),
    ("handler-fuzz", &["types", "archive", "egress", "terminal"]),
    ("handler-conformance", &[]),
    ("handler-world", &[]),
    ("xtask", &[]),
];

/// Longest source file without a reason in its module doc, lines.
const LONG: usize = 800;

/// Checks everything and lists all that is wrong.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut wrong = arrows()?;
    for file in sources()? {
        wrong.extend(check_file(&file)?);
    }
    if wrong.is_empty() {
        println!("the arrows and files are as ARCHITECTURE.md says");
        return Ok(());
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    bail!("{} things are not as ARCHITECTURE.md says", wrong.len())
}

fn arrows() -> anyhow::Result<Vec<String>> {
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata)?;
    let allowed: BTreeMap<&str, BTreeSet<String>> = ARROWS
        .iter()
        .map(|(from, to)| (*from, to.iter().map(|t| format!("handler-{t}")).collect()))
        .collect();
    let mut wrong = Vec::new();
    let packages = metadata["packages"].as_array().context("no packages")?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(allowed) = allowed.get(name) else {
            wrong.push(format!("{name}: not in the table of xtask/src/arch.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let is_ours = to.starts_with("handler-") && dependency["path"].is_string();
            if is_ours && dependency["kind"] != "dev" && !allowed.contains(to) {
                wrong.push(format!("{name} -> {to}: no such arrow"));
            }
        }
    }
    Ok(wrong)
}

fn sources() -> anyhow::Result<Vec<PathBuf>> {
    let listed = output(Command::new("git").args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.rs",
    ]))?;
    Ok(String::from_utf8(listed)?
        .lines()
        .map(PathBuf::from)
        .collect())
}

fn check_file(file: &Path) -> anyhow::Result<Vec<String>> {
    let path = root().join(file);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&path)?;
    let name = file.display();
    let mut wrong = Vec::new();
    if !text.starts_with("//!") {
        wrong.push(format!(
            "{name}: says nothing about itself (start with `//!`)"
        ));
    }
    let count = text.lines().count();
    if count > LONG {
        wrong.push(format!("{name}: {count} lines; split it"));
    }
    let unmarked = ["#[allow(", "#![allow("];
    if !file.starts_with("xtask") && unmarked.iter().any(|attribute| text.contains(attribute)) {
        wrong.push(format!(
            "{name}: use `expect` with a reason instead of `allow`"
        ));
    }
    Ok(wrong)
}
