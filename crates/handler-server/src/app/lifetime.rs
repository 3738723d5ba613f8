//! Rules of lifetimes: pausing, resuming, and what of a sandbox can be changed.

use super::sandboxes::{engine_error, find};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::SandboxUpdate;
use handler_types::ProblemCode;
use handler_types::lifetime::IdlePolicy;
use handler_types::sandbox::{CreateSandbox, SandboxView};
use handler_types::update::{IdleUpdate, UpdateSandbox};
use std::collections::BTreeMap;

/// Longest time to live or of idleness: ten years.
const LONGEST: u64 = 10 * 366 * 24 * 3600;
/// Most labels, and most entries of metadata.
const MAX_ENTRIES: usize = 64;
/// Most bytes of all labels, and of all metadata.
const MAX_BYTES: usize = 16 * 1024;

fn invalid(message: String) -> ApiError {
    ApiError::new(ProblemCode::Invalid, message)
}

/// Checks what a request says of lifetimes and free data.
///
/// # Errors
/// 400 with what is allowed.
pub fn check_new(request: &CreateSandbox) -> ApiResult<()> {
    if let Some(seconds) = request.ttl_seconds {
        check_seconds("ttlSeconds", seconds)?;
    }
    check_idle(request.idle)?;
    check_entries("labels", &request.labels)?;
    check_entries("metadata", &request.metadata)?;
    if let Some(project) = &request.project {
        check_project(project)?;
    }
    Ok(())
}

fn check_seconds(field: &str, seconds: u64) -> ApiResult<()> {
    if !(1..=LONGEST).contains(&seconds) {
        return Err(invalid(format!("{field}: from 1 second to ten years")));
    }
    Ok(())
}

fn check_idle(idle: Option<IdlePolicy>) -> ApiResult<()> {
    idle.map_or(Ok(()), |idle| {
        check_seconds("idle.afterSeconds", idle.after_seconds)
    })
}

fn check_entries(field: &str, entries: &BTreeMap<String, String>) -> ApiResult<()> {
    let bytes: usize = entries.iter().map(|(k, v)| k.len() + v.len()).sum();
    let has_nul = entries
        .iter()
        .any(|(k, v)| k.contains('\0') || v.contains('\0'));
    if entries.len() > MAX_ENTRIES || bytes > MAX_BYTES || has_nul || entries.contains_key("") {
        return Err(invalid(format!(
            "{field}: at most {MAX_ENTRIES} entries and 16 KiB, no empty name, no NUL"
        )));
    }
    Ok(())
}

fn check_project(project: &str) -> ApiResult<()> {
    if !(1..=200).contains(&project.len()) || project.chars().any(char::is_control) {
        return Err(invalid(
            "project: 1 to 200 bytes without control characters".to_owned(),
        ));
    }
    Ok(())
}

/// Changes a sandbox, all that was given or nothing.
///
/// # Errors
/// 400 for values out of range, 409 for a name that is taken or limits that cannot change while it runs, 422 for what
/// the backend cannot do, 429 when the host has no room.
pub async fn update(app: &App, text: &str, request: UpdateSandbox) -> ApiResult<SandboxView> {
    let view = find(app, text).await?;
    let update = read(request)?;
    app.engine
        .update(&view.id, update)
        .await
        .map_err(engine_error)
}

/// What a request means: an empty name, 0 seconds and `{"none": true}` take something away.
fn read(request: UpdateSandbox) -> ApiResult<SandboxUpdate> {
    if let Some(labels) = &request.labels {
        check_entries("labels", labels)?;
    }
    if let Some(metadata) = &request.metadata {
        check_entries("metadata", metadata)?;
    }
    let ttl_seconds = match request.ttl_seconds {
        Some(0) => Some(None),
        Some(seconds) => {
            check_seconds("ttlSeconds", seconds)?;
            Some(Some(seconds))
        }
        None => None,
    };
    let idle = match request.idle {
        Some(IdleUpdate::Policy(policy)) => {
            check_idle(Some(policy))?;
            Some(Some(policy))
        }
        Some(IdleUpdate::Nothing(nothing)) if nothing.none => Some(None),
        Some(IdleUpdate::Nothing(_)) => {
            return Err(invalid(
                "idle: give a policy, or `{\"none\": true}` to have none".to_owned(),
            ));
        }
        None => None,
    };
    Ok(SandboxUpdate {
        name: request
            .name
            .map(|name| Some(name).filter(|name| !name.is_empty())),
        labels: request.labels,
        metadata: request.metadata,
        ttl_seconds,
        idle,
        resources: request.resources,
    })
}

/// Freezes a running sandbox.
///
/// # Errors
/// 409 when it does not run, 422 when its backend cannot.
pub async fn pause(app: &App, text: &str) -> ApiResult<SandboxView> {
    let view = find(app, text).await?;
    app.engine.pause(&view.id).await.map_err(engine_error)
}

/// Thaws a paused sandbox.
///
/// # Errors
/// 409 when it is not paused.
pub async fn resume(app: &App, text: &str) -> ApiResult<SandboxView> {
    let view = find(app, text).await?;
    app.engine.resume(&view.id).await.map_err(engine_error)
}

/// Stops and starts a sandbox; one that rests is started.
///
/// # Errors
/// What the engine refuses.
pub async fn restart(app: &App, text: &str) -> ApiResult<SandboxView> {
    let view = find(app, text).await?;
    app.engine.restart(&view.id).await.map_err(engine_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::lifetime::IdleAction;

    fn parse(json: serde_json::Value) -> Result<SandboxUpdate, String> {
        let request: UpdateSandbox = serde_json::from_value(json).map_err(|e| e.to_string())?;
        read(request).map_err(|error| error.0.detail)
    }

    #[test]
    fn absent_stays_and_the_documented_forms_take_away() {
        assert_eq!(parse(serde_json::json!({})), Ok(SandboxUpdate::default()));
        let cleared =
            parse(serde_json::json!({"name": "", "ttlSeconds": 0, "idle": {"none": true}}));
        let cleared = cleared.expect("fine");
        assert_eq!(cleared.name, Some(None));
        assert_eq!(cleared.ttl_seconds, Some(None));
        assert_eq!(cleared.idle, Some(None));
        let set = serde_json::json!({"ttlSeconds": 60, "idle": {"afterSeconds": 5, "action": "pause", "wake": false}});
        let set = parse(set).expect("fine");
        assert_eq!(set.ttl_seconds, Some(Some(60)));
        let idle = set.idle.flatten().expect("a policy");
        assert_eq!((idle.action, idle.wake), (IdleAction::Pause, false));
    }

    #[test]
    fn what_is_out_of_range_or_unknown_is_refused() {
        for wrong in [
            serde_json::json!({"idle": {"none": false}}),
            serde_json::json!({"idle": {"afterSeconds": 0, "action": "stop"}}),
            serde_json::json!({"idle": {"afterSeconds": 1, "action": "explode"}}),
            serde_json::json!({"ttlSeconds": u64::MAX}),
            serde_json::json!({"labels": {"": "x"}}),
            serde_json::json!({"metadata": {"a": "x".repeat(20_000)}}),
            serde_json::json!({"backend": "docker"}),
        ] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
