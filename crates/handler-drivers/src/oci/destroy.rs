//! Ending instances. Every step can be repeated, and what is not there is done already.

use super::api::{Flavour, OciUse};
use super::{OciDriver, Reference, containers, ending, labels};
use crate::native::process::Process;
use handler_engine::driver::DriverError;
use handler_types::SandboxId;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the removal of files of other ids may take.
const CLEANING: Duration = Duration::from_secs(120);

/// Kills everything of a sandbox and removes its containers.
pub(super) async fn destroy(
    driver: &OciDriver,
    id: &SandboxId,
    owner: &str,
    reference: Option<Reference>,
) -> Result<(), DriverError> {
    kill(reference.as_ref());
    if !driver.was_used() {
        return Ok(());
    }
    let engine = driver
        .api
        .connect()
        .await
        .map_err(|error| error.at("connect"))?;
    let mut homes: Vec<PathBuf> = Vec::new();
    match reference {
        Some(reference) => {
            remove(&engine, &reference.container).await?;
            homes.extend(reference.foreign_files.then_some(reference.home));
        }
        None => {
            for found in of_sandbox(&engine, id, owner).await? {
                remove(&engine, &found.id).await?;
                homes.extend(found.label(labels::HOME).map(PathBuf::from));
            }
        }
    }
    super::strays::reap();
    for home in homes {
        empty(driver, &home).await;
    }
    Ok(())
}

/// Ends the processes and keeps the container.
pub(super) async fn stop(
    driver: &OciDriver,
    id: &SandboxId,
    owner: &str,
    reference: Option<Reference>,
) -> Result<(), DriverError> {
    kill(reference.as_ref());
    if !driver.was_used() {
        return Ok(());
    }
    let engine = driver
        .api
        .connect()
        .await
        .map_err(|error| error.at("connect"))?;
    let containers = match reference {
        Some(reference) => vec![reference.container],
        None => of_sandbox(&engine, id, owner)
            .await?
            .into_iter()
            .map(|found| found.id)
            .collect(),
    };
    for container in containers {
        ending::stop(&engine, &container)
            .await
            .map_err(|error| error.at("stop the container"))?;
    }
    super::strays::reap();
    Ok(())
}

/// At once, without waiting for the engine; everything inside ends with PID 1.
fn kill(reference: Option<&Reference>) {
    let process = reference
        .and_then(|reference| reference.process)
        .and_then(Process::open);
    if let Some(process) = process
        && let Err(error) = process.kill()
    {
        tracing::debug!(%error, "PID 1 of a container is left to the engine");
    }
}

async fn of_sandbox(
    engine: &OciUse,
    id: &SandboxId,
    owner: &str,
) -> Result<Vec<containers::Found>, DriverError> {
    let wanted = [(labels::OWNER, owner), (labels::SANDBOX, id.as_str())];
    containers::list(engine, &wanted)
        .await
        .map_err(|error| error.at("list containers"))
}

async fn remove(engine: &OciUse, container: &str) -> Result<(), DriverError> {
    ending::remove(engine, container)
        .await
        .map_err(|error| error.at("remove the container"))
}

/// Containers inside leave files of ids that an ordinary user can neither read nor remove: Podman can.
async fn empty(driver: &OciDriver, home: &Path) {
    let is_root = rustix::process::geteuid().is_root();
    if is_root || driver.api.flavour() != Flavour::Podman || !home.is_dir() {
        return;
    }
    let run = handler_base::proc::command("podman")
        .args(["unshare", "rm", "-rf", "--one-file-system", "--"])
        .arg(home)
        .output();
    match tokio::time::timeout(CLEANING, run).await {
        Ok(Ok(output)) if output.status.success() => {}
        Ok(Ok(output)) => {
            let words = super::error::tidy(&String::from_utf8_lossy(&output.stderr));
            tracing::warn!(home = %home.display(), %words, "files of containers inside are still there");
        }
        Ok(Err(error)) => tracing::warn!(%error, "files of containers inside are still there"),
        Err(_) => tracing::warn!("removing the files of containers inside takes too long"),
    }
}
