//! Everything CI runs, in the order in which it fails soonest.

use crate::run::{cargo, run};
use crate::{arch, guest, licences, made, testing};

/// Runs it.
pub(crate) fn run_all() -> anyhow::Result<()> {
    step("format");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    step("arrows and licences");
    arch::check()?;
    licences::check()?;
    step("guest");
    guest::build()?;
    step("clippy");
    run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    step("build");
    run(cargo().args(["build", "--workspace", "--quiet"]))?;
    step("made files");
    made::check()?;
    step("tests");
    testing::run_all()
}

fn step(name: &str) {
    println!("== {name}");
}
