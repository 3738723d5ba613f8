//! Installed harnesses shared by all worlds of this target folder: each is installed once, by the real
//! command in a real sandbox, and later worlds get a link to it.
//!
//! Invariant: what lies in the store was put there by one rename after a successful installation.

use anyhow::Context as _;
use handler_testkit::{World, skip};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// A package of each harness, to see whether the registry can be reached.
const PACKAGES: [(&str, &str); 6] = [
    ("claude-code", "@agentclientprotocol/claude-agent-acp"),
    ("codex", "@agentclientprotocol/codex-acp"),
    ("gemini-cli", "@google/gemini-cli"),
    ("opencode", "opencode-ai"),
    ("pi", "pi-acp"),
    ("qwen-code", "@qwen-code/qwen-code"),
];

fn is_by_npm(name: &str) -> bool {
    PACKAGES.iter().any(|(known, _)| *known == name)
}

/// How long the registry may take to answer.
const REGISTRY_WITHIN: Duration = Duration::from_secs(60);

/// Where installed harnesses are kept between worlds.
fn store() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("world-harnesses")
}

/// Where a world's daemon has the versions of a harness.
pub(crate) fn in_world(world: &World, name: &str) -> PathBuf {
    world.scratch().folder("data").join("harnesses").join(name)
}

/// Gives a running world its harnesses; false when this machine cannot, which is then said loudly.
pub(crate) async fn provide(test: &str, world: &World, names: &[&str]) -> anyhow::Result<bool> {
    for name in names {
        let _turn = turn(name).await?;
        link(world, name)?;
        if is_installed(world, name).await? {
            continue;
        }
        if let Some(why) = unreachable_registry(name).await {
            skip(test, &why);
            return Ok(false);
        }
        std::fs::remove_file(in_world(world, name)).ok();
        let client = world.client();
        match client.install_harness(name).await {
            Ok(_) => {}
            // By pip: no Python that is new enough, or no index.
            Err(error) if !is_by_npm(name) && error.to_string().contains("pip") => {
                skip(test, &error.to_string());
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        donate(world, name)?;
    }
    Ok(true)
}

/// Whether the daemon of a world finds the harness.
pub(crate) async fn is_installed(world: &World, name: &str) -> anyhow::Result<bool> {
    let all = world.client().harnesses().await?;
    let harness = all.iter().find(|harness| harness.name == name);
    Ok(harness.context(name.to_owned())?.status == "installed")
}

/// Moves what a world installed into the store and leaves a link in its place. The caller has the turn, or
/// nobody else can have installed that version.
pub(crate) fn donate(world: &World, name: &str) -> anyhow::Result<()> {
    let (own, kept) = (in_world(world, name), store().join(name));
    for entry in std::fs::read_dir(&own)? {
        let (from, to) = (entry?.path(), &kept);
        let version = from.file_name().context("a version")?;
        if !to.join(version).exists() {
            std::fs::create_dir_all(to)?;
            move_tree(&from, &to.join(version))?;
        }
    }
    std::fs::remove_dir_all(&own)?;
    link(world, name)
}

/// The right to install a harness, for one test process at a time.
pub(crate) async fn turn(name: &str) -> anyhow::Result<File> {
    std::fs::create_dir_all(store())?;
    let file = File::create(store().join(format!("{name}.lock")))?;
    let locked = tokio::task::spawn_blocking(move || {
        flock(&file, FlockOperation::LockExclusive).map(|()| file)
    });
    Ok(locked.await??)
}

/// Why the harness cannot be installed here: no npm, or no registry.
pub(crate) async fn unreachable_registry(name: &str) -> Option<String> {
    // The installation itself says it of the others.
    let package = PACKAGES.iter().find(|(known, _)| known == &name)?.1;
    let mut command = Command::new("npm");
    command
        .args(["view", package, "version", "--fetch-retries=1"])
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    match tokio::time::timeout(REGISTRY_WITHIN, command.output()).await {
        Ok(Ok(output)) if output.status.success() => None,
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or_default();
            Some(format!("the package registry does not answer: {first}"))
        }
        Ok(Err(error)) => Some(format!("npm cannot be run: {error}")),
        Err(_) => Some("the package registry does not answer in time".to_owned()),
    }
}

fn link(world: &World, name: &str) -> anyhow::Result<()> {
    let (own, kept) = (in_world(world, name), store().join(name));
    std::fs::create_dir_all(&kept)?;
    std::fs::create_dir_all(own.parent().context("a parent")?)?;
    if !own.exists() {
        std::os::unix::fs::symlink(&kept, &own)?;
    }
    Ok(())
}

/// A rename, also onto another file system.
fn move_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    if std::fs::rename(from, to).is_ok() {
        return Ok(());
    }
    let staging = to.with_extension("part");
    std::fs::remove_dir_all(&staging).ok();
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([from, &staging])
        .status()?;
    anyhow::ensure!(copied.success(), "cp: {copied}");
    Ok(std::fs::rename(&staging, to)?)
}
