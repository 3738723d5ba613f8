//! Ending an instance, whatever state it is in: a launcher at work, a PID 1 alive or dead, cgroups left over.

use super::cgroup::CgroupFolders;
use super::process::{Process, ProcessId};
use super::{Reference, cgroup, observe, process};
use handler_engine::driver::DriverError;
use handler_types::SandboxId;
use std::time::Duration;
use tokio::time::Instant;

/// How long killed processes may take to end (a process in an uninterruptible wait can take long).
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills all, then removes the cgroups. Does nothing, successfully, when nothing is there.
pub(super) async fn destroy(
    cgroups: &CgroupFolders,
    id: &SandboxId,
    owner: &str,
    reference: Option<&Reference>,
) -> Result<(), DriverError> {
    let known = reference.map(|reference| reference.process);
    let folders = reference.map_or(&[][..], |reference| &reference.cgroups);
    cgroup::kill_frozen(&cgroups.all_of(owner, id.as_str(), folders));
    end_processes(owner, id.as_str(), known).await?;
    cgroups
        .remove(owner, id.as_str(), folders)
        .await
        .map_err(|error| DriverError::Failed {
            step: "remove cgroups".to_owned(),
            message: error.to_string(),
        })
}

/// Kills the known process and all launchers and PID 1s of this sandbox until none is left.
///
/// A launcher at work may bring forth a PID 1 while it is being killed, so looking is repeated until a
/// look finds nothing.
pub(super) async fn end_processes(
    owner: &str,
    id: &str,
    known: Option<ProcessId>,
) -> Result<(), DriverError> {
    let deadline = Instant::now() + PATIENCE;
    let mut left: Vec<ProcessId> = known.into_iter().collect();
    loop {
        left.extend(find(owner, id).await);
        left.sort_by_key(|process| (process.pid, process.start_ticks));
        left.dedup();
        if left.is_empty() {
            process::reap_strays();
            return Ok(());
        }
        for process in left.drain(..) {
            end(process, deadline).await?;
        }
    }
}

async fn find(owner: &str, id: &str) -> Vec<ProcessId> {
    let (owner, id) = (owner.to_owned(), id.to_owned());
    let look = move || {
        let all = observe::owned(&owner).into_iter();
        all.filter(|owned| owned.sandbox == id)
            .map(|owned| owned.process)
            .collect()
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

async fn end(process: ProcessId, deadline: Instant) -> Result<(), DriverError> {
    let Some(held) = Process::open(process) else {
        return Ok(());
    };
    let failed = |message: String| DriverError::Failed {
        step: format!("end process {}", process.pid),
        message,
    };
    held.kill().map_err(|error| failed(error.to_string()))?;
    tokio::time::timeout_at(deadline, held.ended())
        .await
        .map_err(|_| failed(format!("it is still there after {} s", PATIENCE.as_secs())))
}
