//! What a session's agent sees of this machine: recorded at each start.

use super::blocking;
use crate::app::sessions::{find_row, folder};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_base::clock::{now_ms, rfc3339};
use handler_store::paths::Layout;
use handler_store::rows::SessionRow;
use handler_types::ProblemCode;
use handler_types::sandbox::{MountSpec, SandboxSpec};
use handler_types::session_folder::{MountKind, SessionMount, SessionMounts};
use std::path::{Path, PathBuf};

fn path(app: &App, row: &SessionRow) -> PathBuf {
    folder(app, &row.id).join("mounts.json")
}

/// Writes down what a sandbox that is about to be made shows.
pub(super) async fn record(app: &App, row: &SessionRow, spec: &SandboxSpec) -> ApiResult<()> {
    let recorded = SessionMounts {
        started_at: Some(rfc3339(now_ms())),
        mounts: told(&app.settings.layout, &row.scope, &spec.mounts),
    };
    let path = path(app, row);
    blocking(move || {
        let text = serde_json::to_vec(&recorded).unwrap_or_default();
        handler_base::fs::write_atomic(&path, &text, 0o600)
            .map_err(|error| ApiError::new(ProblemCode::NoSpace, error.to_string()))
    })
    .await
}

async fn load(app: &App, row: &SessionRow) -> ApiResult<SessionMounts> {
    let path = path(app, row);
    blocking(move || match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(SessionMounts::default()),
        Err(error) => Err(ApiError::internal("reading the mounts", &error)),
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| ApiError::internal("reading the mounts", &error)),
    })
    .await
}

/// What a session's agent sees, as its sandbox was made last.
///
/// # Errors
/// 404.
pub async fn mounts(app: &App, session: &str) -> ApiResult<SessionMounts> {
    let row = find_row(app, session).await?;
    load(app, &row).await
}

/// Where a mount that is shown lies on this machine.
pub(super) async fn source(app: &App, row: &SessionRow, target: &str) -> ApiResult<String> {
    let mounts = load(app, row).await?.mounts;
    let found = mounts.into_iter().find(|mount| mount.target == target);
    let why = match found {
        Some(mount) if mount.browsable => return Ok(mount.source),
        Some(_) => "what is in it is not shown",
        None => "its agent sees no such folder; `mounts` lists those it sees",
    };
    let shown: String = target.chars().take(200).collect();
    let detail = format!("`{shown}`: {why}");
    Err(ApiError::titled(ProblemCode::NotFound, "not found", detail))
}

fn told(layout: &Layout, scope: &str, mounts: &[MountSpec]) -> Vec<SessionMount> {
    let one = |target: &str, source: &str, read_only, kind: MountKind| SessionMount {
        target: target.to_owned(),
        kind,
        read_only,
        source: source.to_owned(),
        browsable: kind.is_browsable(),
    };
    let mut told = vec![one(scope, scope, false, MountKind::Scope)];
    told.extend(mounts.iter().map(|mount| {
        let kind = kind(layout, mount);
        one(&mount.target, &mount.source, mount.read_only, kind)
    }));
    told.sort_by_key(|mount| (mount.kind != MountKind::Scope, !mount.browsable));
    told
}

/// What a mount is there for. What lies in Handler's own folders, or in the system's, is never shown.
fn kind(layout: &Layout, mount: &MountSpec) -> MountKind {
    let source = Path::new(&mount.source);
    let own = [
        (layout.harnesses_dir(), MountKind::Tools),
        (layout.agent_states_dir(), MountKind::State),
        (layout.state.join("sessions"), MountKind::State),
        (layout.data.join("caches"), MountKind::Cache),
        (layout.cache.clone(), MountKind::Cache),
    ];
    if let Some((_, kind)) = own.iter().find(|(folder, _)| source.starts_with(folder)) {
        return *kind;
    }
    if layout.own_dirs().iter().any(|own| source.starts_with(own)) {
        return MountKind::Other;
    }
    let target = Path::new(&mount.target);
    for (folder, kind) in [
        ("/knowledge", MountKind::Knowledge),
        ("/subject", MountKind::Subject),
    ] {
        if target.starts_with(folder) && mount.read_only {
            return kind;
        }
    }
    let is_system = [
        "/usr", "/opt", "/lib", "/lib64", "/bin", "/etc", "/run", "/var",
    ]
    .iter()
    .any(|folder| source.starts_with(folder) || target.starts_with(folder));
    match is_system {
        true => MountKind::Tools,
        false => MountKind::Folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_recorded_and_which_are_browsable() {
        let get = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
        let layout = Layout::from_env(get, 1000).expect("layout");
        let mount = |source: &str, target: &str| MountSpec {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only: true,
        };
        let data = "/home/ada/.local/share/handler";
        let state = "/home/ada/.local/state/handler";
        let mounts = told(
            &layout,
            "/work/p",
            &[
                mount(&format!("{data}/harnesses/pi"), "/opt/handler/pi"),
                mount(&format!("{state}/sessions/s_1/agent/x"), "/home/agent/.pi"),
                mount("/home/ada/.cache/handler/npm", "/home/agent/.npm"),
                mount(&format!("{data}/secrets"), "/x"),
                mount("/home/ada/notes", "/knowledge/notes"),
                mount("/work/other", "/work/other"),
                mount("/usr/lib/python3", "/usr/lib/python3"),
            ],
        );
        let told: Vec<(MountKind, bool)> = mounts.iter().map(|m| (m.kind, m.browsable)).collect();
        assert_eq!(
            told,
            [
                (MountKind::Scope, true),
                (MountKind::Knowledge, true),
                (MountKind::Folder, true),
                (MountKind::Tools, false),
                (MountKind::State, false),
                (MountKind::Cache, false),
                (MountKind::Other, false),
                (MountKind::Tools, false),
            ]
        );
    }
}
