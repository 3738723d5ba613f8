//! The whole API, as its description says it, under a public fuzzer of such descriptions (Schemathesis).

use anyhow::{Context as _, ensure};
use handler_testkit::{World, skip};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// The fuzzer, from the Python index, pinned.
const FUZZER: &str = "schemathesis==4.32.5";

/// Addresses whose answers do not end by themselves, that hand a connection over, or that take an archive,
/// which the fuzzer cannot make.
const LEFT_OUT: &str = "events|/acp|attach|tunnel|/terminals/|/logs|/open$|connect|images/import";

/// How long all of it may take on a busy machine.
const LONG: Duration = Duration::from_secs(900);

/// Installs the fuzzer once for this target folder; none when this machine cannot, said loudly.
async fn fuzzer() -> anyhow::Result<Option<PathBuf>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(FUZZER.replace("==", "-"));
    if folder.exists() {
        return Ok(Some(folder));
    }
    let new = folder.with_extension(format!("new-{}", std::process::id()));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--target"]);
    let output = pip.arg(&new).arg(FUZZER).output().await;
    match output {
        Ok(output) if output.status.success() => {
            // Another test program may have been faster.
            if std::fs::rename(&new, &folder).is_err() {
                std::fs::remove_dir_all(&new).ok();
            }
            Ok(Some(folder))
        }
        other => {
            std::fs::remove_dir_all(&new).ok();
            skip("the API under a fuzzer", &format!("no {FUZZER}: {other:?}"));
            Ok(None)
        }
    }
}

#[tokio::test]
async fn no_request_that_fits_or_nearly_fits_the_description_breaks_the_server()
-> anyhow::Result<()> {
    let Some(fuzzer) = fuzzer().await? else {
        return Ok(());
    };
    let world = World::start().await?;
    // A file, not an argument: those can be seen by others on this machine.
    let settings = world.scratch().path().join("schemathesis.toml");
    let token = world.token()?;
    std::fs::write(
        &settings,
        format!("[headers]\nAuthorization = \"Bearer {token}\"\n"),
    )?;
    let address = format!("http://127.0.0.1:{}/openapi.json", world.port()?);
    let mut run = Command::from(world.tool("python3"));
    run.env("PYTHONPATH", &fuzzer)
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(&settings)
        .args(["run", &address, "--max-examples", "4", "--seed", "1"])
        .args(["--checks", "not_a_server_error", "--phases", "fuzzing"])
        .args(["--exclude-path-regex", LEFT_OUT, "--request-timeout", "60"])
        .args(["--generation-database", "none", "--no-color"]);
    let output = tokio::time::timeout(LONG, run.output()).await??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let tested = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Tested:"));
    let tested: u32 = tested
        .with_context(|| format!("{said}{errors}"))?
        .trim()
        .parse()?;
    ensure!(tested > 100, "only {tested} operations were tried: {said}");
    ensure!(output.status.success(), "{said}{errors}");
    ensure!(world.client().health().await.is_ok(), "the daemon is there");
    Ok(())
}
