//! The end of one container. Engines refuse, or say that it is done while it is not, when a container changes its
//! state meanwhile: it was frozen and is killed, another removal is under way. That passes.

use super::api::OciUse;
use super::containers::state;
use super::error::OciError;
use bollard::query_parameters::{
    KillContainerOptionsBuilder, RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use std::time::Duration;

/// How long it may take to pass.
const PASSING: Duration = Duration::from_secs(5);

/// Ends its processes at once and keeps it; it has ended when this returns. Done also when it does not run or is
/// not there.
pub(super) async fn stop(engine: &OciUse, id: &str) -> Result<(), OciError> {
    let deadline = tokio::time::Instant::now() + PASSING;
    loop {
        thaw_to_die(engine, id).await;
        let options = StopContainerOptionsBuilder::new().t(0).build();
        let done = engine.stop_container(id, Some(options)).await;
        let refused = match done.map_err(OciError::from) {
            Ok(()) | Err(OciError::Refused { status: 304, .. }) => {
                if matches!(state(engine, id).await, Ok((false, _))) {
                    return Ok(());
                }
                OciError::Timeout(PASSING)
            }
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => error,
        };
        let passes = matches!(
            refused,
            OciError::Timeout(_)
                | OciError::Refused {
                    status: 409 | 500..,
                    ..
                }
        );
        if !passes || tokio::time::Instant::now() >= deadline {
            return Err(refused);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// With version 1 cgroups what is frozen does not die of a signal before it is thawed. Killed first, it dies then
/// without running on.
async fn thaw_to_die(engine: &OciUse, id: &str) {
    if !matches!(state(engine, id).await, Ok((_, true))) {
        return;
    }
    let options = KillContainerOptionsBuilder::new().signal("SIGKILL").build();
    // What these two refuse, the stop that follows tells.
    let _ = engine.kill_container(id, Some(options)).await;
    let _ = engine.unpause_container(id).await;
}

/// Kills and removes it with its volumes. Done also when it is not there.
pub(super) async fn remove(engine: &OciUse, id: &str) -> Result<(), OciError> {
    let options = || {
        RemoveContainerOptionsBuilder::new()
            .force(true)
            .v(true)
            .build()
    };
    let deadline = tokio::time::Instant::now() + PASSING;
    loop {
        match engine
            .remove_container(id, Some(options()))
            .await
            .map_err(OciError::from)
        {
            Ok(()) => return Ok(()),
            Err(error) if error.is_not_found() && is_gone(engine, id).await => return Ok(()),
            Err(OciError::Refused {
                status: 404 | 409 | 500..,
                message,
            }) if tokio::time::Instant::now() < deadline => {
                tracing::debug!(container = id, %message, "a removal is tried again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the engine knows it no more. A removal is refused as "not found" also when something else was not: its
/// process, a layer.
pub(super) async fn is_gone(engine: &OciUse, id: &str) -> bool {
    matches!(state(engine, id).await, Err(error) if error.is_not_found())
}
