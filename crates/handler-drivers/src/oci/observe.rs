//! What there is and how it is: PID 1 is watched by descriptor, the engine is asked only where that cannot tell.

use super::api::OciUse;
use super::error::OciError;
use super::{OciDriver, containers, ending, labels, process_of, reference};
use bollard::query_parameters::StatsOptionsBuilder;
use futures::StreamExt;
use handler_engine::driver::{DriverError, Instance, InstanceStats, ObservedInstance};
use std::time::Duration;

/// Between two questions to the engine about a container whose PID 1 is not visible here.
const ASK: Duration = Duration::from_secs(3);

/// Whether PID 1 is still the one that was started.
pub(super) async fn is_alive(driver: &OciDriver, instance: &Instance) -> bool {
    let Some(reference) = reference(instance) else {
        return false;
    };
    if reference.process.is_some() {
        return process_of(&reference).is_some_and(|process| !process.has_ended());
    }
    let Ok(engine) = driver.api.connect().await else {
        // Who cannot be asked has not said that it ended: taking it over finds out.
        return true;
    };
    match containers::state(&engine, &reference.container).await {
        Ok((running, _)) => running,
        Err(error) => !error.is_not_found(),
    }
}

/// Returns when it has ended.
pub(super) async fn ended(driver: &OciDriver, instance: &Instance) {
    let Some(reference) = reference(instance) else {
        return;
    };
    if reference.process.is_some() {
        if let Some(process) = process_of(&reference) {
            process.ended().await;
        }
        return;
    }
    loop {
        tokio::time::sleep(ASK).await;
        let Ok(engine) = driver.api.connect().await else {
            continue;
        };
        match containers::state(&engine, &reference.container).await {
            Ok((false, _)) => return,
            Err(error) if error.is_not_found() => return,
            _ => {}
        }
    }
}

/// Freezes or thaws; done also when it is so already.
pub(super) async fn set_paused(
    driver: &OciDriver,
    instance: &Instance,
    paused: bool,
) -> Result<(), DriverError> {
    let Some(reference) = reference(instance) else {
        return Err(DriverError::Invalid("there is no instance".to_owned()));
    };
    let info = driver.info().await?;
    if !info.can_pause() {
        return Err(DriverError::Unenforceable(format!(
            "rootless {} cannot freeze containers with version 1 cgroups; use version 2, or run the daemon as root",
            driver.name()
        )));
    }
    let engine = driver
        .api
        .connect()
        .await
        .map_err(|error| error.at("connect"))?;
    let container = &reference.container;
    let done = if paused {
        engine.pause_container(container).await
    } else {
        engine.unpause_container(container).await
    };
    let Err(error) = done else { return Ok(()) };
    match containers::state(&engine, container).await {
        Ok((true, now)) if now == paused => Ok(()),
        _ => Err(super::OciError::from(error).at(if paused { "pause" } else { "resume" })),
    }
}

/// Whether it is frozen.
pub(super) async fn is_paused(driver: &OciDriver, instance: &Instance) -> bool {
    let (Some(reference), true) = (reference(instance), driver.was_used()) else {
        return false;
    };
    let Ok(engine) = driver.api.connect().await else {
        return false;
    };
    matches!(
        containers::state(&engine, &reference.container).await,
        Ok((_, true))
    )
}

/// The last lines of the container's own log; none when the engine does not say.
pub(super) async fn log(
    driver: &OciDriver,
    instance: &Instance,
    lines: usize,
) -> Option<Vec<String>> {
    let reference = reference(instance)?;
    let engine = driver.api.connect().await.ok()?;
    containers::log(&engine, &reference.container, lines)
        .await
        .ok()
}

/// What the engine counts; nothing where it counts all of this machine.
pub(super) async fn stats(driver: &OciDriver, instance: &Instance) -> InstanceStats {
    let Some(reference) = reference(instance) else {
        return InstanceStats::default();
    };
    if !driver.info().await.is_ok_and(|info| info.has_cgroups()) {
        return InstanceStats::default();
    }
    let Ok(engine) = driver.api.connect().await else {
        return InstanceStats::default();
    };
    let options = StatsOptionsBuilder::new()
        .stream(false)
        .one_shot(true)
        .build();
    let mut answers = engine.stats(&reference.container, Some(options));
    let Some(Ok(now)) = answers.next().await else {
        return InstanceStats::default();
    };
    let cpu = now
        .cpu_stats
        .and_then(|cpu| cpu.cpu_usage)
        .and_then(|usage| usage.total_usage);
    InstanceStats {
        memory_bytes: now.memory_stats.and_then(|memory| memory.usage),
        cpu_ms: cpu.map(|nanoseconds| nanoseconds / 1_000_000),
        disk_bytes: None,
        processes: now
            .pids_stats
            .and_then(|pids| pids.current)
            .and_then(|count| u32::try_from(count).ok()),
    }
}

/// The containers of this owner that the engine can find. Docker before version 25 writes a container that ends into
/// its list once more while it removes it: the list shows it for ever then, and nothing can be done with it.
async fn existing(engine: &OciUse, owner: &str) -> Result<Vec<containers::Found>, OciError> {
    let mut found = Vec::new();
    for one in containers::list(engine, &[(labels::OWNER, owner)]).await? {
        if one.running || !ending::is_gone(engine, &one.id).await {
            found.push(one);
        }
    }
    Ok(found)
}

/// Every container of this owner.
pub(super) async fn owned(driver: &OciDriver, owner: &str) -> Vec<ObservedInstance> {
    if !driver.was_used() {
        return Vec::new();
    }
    let found = match driver.api.connect().await {
        Ok(engine) => existing(&engine, owner).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(found) => found
            .into_iter()
            .filter_map(|one| {
                Some(ObservedInstance {
                    id: one.label(labels::SANDBOX)?.parse().ok()?,
                    what: format!("{} container {:.12}", driver.name(), one.id),
                    running: one.running,
                })
            })
            .collect(),
        Err(error) => {
            tracing::warn!(backend = driver.name(), %error, "the containers of this daemon are not known");
            Vec::new()
        }
    }
}
