//! Figures of the product as ratios against named peers: builds what is measured, optimised, and runs
//! `handler-bench` on it.

use crate::guest;
use crate::run::{cargo, output, root, run};
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Builds and measures. `--debug` measures unoptimised programs, which says nothing about speed but
/// costs no optimised build: for a smoke test.
pub(crate) fn run_with(words: &[&str]) -> anyhow::Result<()> {
    guest::build()?;
    let is_debug = words.contains(&"--debug");
    let profile = if is_debug { "dev" } else { "release" };
    // Both at once: one after the other, cargo builds what they share twice, with other features.
    let packages = ["-p", "handler", "-p", "handler-bench"];
    run(cargo()
        .args(["build", "--quiet", "--profile", profile])
        .args(packages))?;
    let programs = target()?.join(if is_debug { "debug" } else { "release" });
    let arguments = words.iter().filter(|word| **word != "--debug");
    run(Command::new(programs.join("handler-bench"))
        .args(arguments)
        .env("HANDLER_BIN", programs.join("handler"))
        .env("HANDLER_BENCH_GUEST", guest()?))
}

/// The guest program that `guest::build` made.
fn guest() -> anyhow::Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = root()
        .join("target/guest")
        .join(target)
        .join("guest/handler-guest");
    ensure!(program.is_file(), "{} is not there", program.display());
    Ok(program)
}

/// Where cargo puts what it builds.
fn target() -> anyhow::Result<PathBuf> {
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata)?;
    let target = metadata["target_directory"]
        .as_str()
        .context("no target directory")?;
    Ok(PathBuf::from(target))
}
