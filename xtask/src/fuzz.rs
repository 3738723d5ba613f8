//! Runs the coverage fuzzers: `cargo xtask fuzz [target] [--seconds N]`. Every target in turn, unless one is named.

use crate::run::{root, run};
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// For each target unless told otherwise.
const SECONDS: u64 = 60;
/// Longest input, bytes.
const LONGEST: usize = 64 * 1024;
/// An input that takes longer hangs, seconds.
const HANGS: u64 = 30;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    target: Option<&'a str>,
    seconds: u64,
}

/// Runs the fuzzers that are asked for.
pub(crate) fn run_with(words: &[&str]) -> anyhow::Result<()> {
    let asked = read(words)?;
    let known = targets(&root())?;
    let chosen: Vec<&str> = match asked.target {
        None => known.iter().map(String::as_str).collect(),
        Some(name) if known.iter().any(|one| one == name) => vec![name],
        Some(name) => bail!("no target `{name}`; there are {}", known.join(", ")),
    };
    check_tools()?;
    for target in chosen {
        println!("== {target}");
        fuzz(target, asked.seconds).with_context(|| {
            format!(
                "{target}: an input does not hold; mend it, and put the input (made smaller with `cargo +nightly fuzz \
                 tmin {target} fuzz/artifacts/{target}/…`) into tests/fuzz/corpus/{target}"
            )
        })?;
    }
    Ok(())
}

fn read<'a>(words: &[&'a str]) -> anyhow::Result<Asked<'a>> {
    const USAGE: &str = "usage: cargo xtask fuzz [target] [--seconds N]";
    let (target, rest) = match words {
        [name, rest @ ..] if !name.starts_with('-') => (Some(*name), rest),
        rest => (None, rest),
    };
    let seconds = match rest {
        [] => SECONDS,
        ["--seconds", number] => number.parse().ok().filter(|n| *n > 0).context(USAGE)?,
        _ => bail!(USAGE),
    };
    Ok(Asked { target, seconds })
}

/// Names of the programs in `fuzz/fuzz_targets`.
fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in root.join("fuzz/fuzz_targets").read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            let name = path.file_stem().unwrap_or_default();
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn check_tools() -> anyhow::Result<()> {
    for (words, missing) in [
        (
            ["+nightly", "--version"],
            "fuzzing needs a nightly compiler: `rustup toolchain install nightly`",
        ),
        (
            ["fuzz", "--version"],
            "fuzzing needs cargo-fuzz: `cargo install cargo-fuzz --locked`",
        ),
    ] {
        let mut command = rustup_cargo();
        command
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            bail!(missing);
        }
    }
    Ok(())
}

/// The cargo that takes a toolchain's name; the one that runs us is of one toolchain.
fn rustup_cargo() -> Command {
    let mut command = Command::new("cargo");
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// New inputs go into `fuzz/corpus`, beside those that are committed.
fn fuzz(target: &str, seconds: u64) -> anyhow::Result<()> {
    let own = format!("fuzz/corpus/{target}");
    std::fs::create_dir_all(root().join(&own))?;
    let mut command = rustup_cargo();
    command
        .args(["+nightly", "fuzz", "run", target, &own])
        .arg(format!("tests/fuzz/corpus/{target}"))
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={LONGEST}"))
        .arg(format!("-timeout={HANGS}"));
    run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_and_its_time_are_read_and_nothing_else() {
        let asked = |words: &[&'static str]| read(words).ok().map(|a| (a.target, a.seconds));
        assert_eq!(asked(&[]), Some((None, SECONDS)));
        assert_eq!(asked(&["tar"]), Some((Some("tar"), SECONDS)));
        assert_eq!(asked(&["tar", "--seconds", "5"]), Some((Some("tar"), 5)));
        assert_eq!(asked(&["--seconds", "5"]), Some((None, 5)));
        for wrong in [
            &["--seconds"][..],
            &["tar", "zip"],
            &["--seconds", "0"],
            &["--seconds", "x"],
        ] {
            assert_eq!(asked(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn every_fuzzer_is_found() {
        let names = targets(&root()).expect("fuzz_targets");
        assert!(names.iter().any(|name| name == "http1"), "{names:?}");
    }
}
