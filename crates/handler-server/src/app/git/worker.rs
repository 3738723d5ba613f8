//! A sandbox made for Git alone: no network, and nothing of the host but the folders the step is about.
//!
//! It always runs on `native` with the host's own Git, whatever engine the project's sandboxes use.

use super::{failed, request};
use crate::app::exec;
use crate::app::sandboxes::{HOME, engine_error};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::{CreateArgs, GuestHandle};
use handler_types::api::ExecResult;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{FileSpec, Lifetime, MountSpec, SandboxSpec};
use handler_types::{ProblemCode, SandboxId};
use std::collections::BTreeMap;
use std::path::Path;

/// The sandbox and the way into it.
pub(super) struct Worker<'a> {
    app: &'a App,
    id: SandboxId,
    guest: GuestHandle,
}

impl<'a> Worker<'a> {
    /// Makes it with these folders at their own paths, writable where said.
    pub(super) async fn start(app: &'a App, folders: &[(&Path, bool)]) -> ApiResult<Self> {
        let mounts = folders.iter().map(|(path, is_writable)| {
            let path = path.to_string_lossy().into_owned();
            MountSpec {
                source: path.clone(),
                target: path,
                read_only: !is_writable,
            }
        });
        // A path given to `clone` and `fetch` is served by a Git of its own that sees no variables of ours.
        let settings = "[safe]\n\tdirectory = *\n[protocol \"ext\"]\n\tallow = never\n[user]\n\tname = Handler\n\temail = handler@localhost\n[core]\n\thooksPath = /dev/null\n\tfsmonitor = false\n";
        let spec = SandboxSpec {
            backend: "native".to_owned(),
            workdir: HOME.to_owned(),
            home: HOME.to_owned(),
            mounts: mounts.collect(),
            files: vec![FileSpec {
                target: format!("{HOME}/.gitconfig"),
                content: format!("{settings}{}", person().await),
                mode: 0o600,
                writable: true,
            }],
            network: NetworkPolicy::None,
            lifetime: Lifetime::Session,
            labels: BTreeMap::from([("handler.internal".to_owned(), "git".to_owned())]),
            ..SandboxSpec::default()
        };
        let args = CreateArgs {
            spec,
            label: "git".to_owned(),
        };
        let view = app.engine.create(args).await.map_err(engine_error)?;
        match app.engine.guest(&view.id) {
            Ok(guest) => Ok(Self {
                app,
                id: view.id,
                guest,
            }),
            Err(error) => {
                app.engine.delete(&view.id).await.ok();
                Err(engine_error(error))
            }
        }
    }

    /// Runs Git in a folder; a failing status is a result.
    pub(super) async fn try_git(&self, folder: &Path, args: &[&str]) -> ApiResult<ExecResult> {
        let mut asked = request(&folder.to_string_lossy(), args);
        // The settings file says it for every Git of the worker.
        asked.env.remove("GIT_CONFIG_COUNT");
        exec::buffered(&self.guest, asked).await.map_err(|error| {
            if error.0.code == ProblemCode::NotFound {
                let text = format!(
                    "there is no git on this machine: install it ({})",
                    error.0.detail
                );
                return ApiError::new(ProblemCode::HostNotReady, text);
            }
            error
        })
    }

    /// Runs Git, which must succeed; its output without the line end.
    pub(super) async fn git(&self, folder: &Path, args: &[&str]) -> ApiResult<String> {
        let done = self.try_git(folder, args).await?;
        if done.exit.code != 0 {
            let verb = args.first().copied().unwrap_or_default();
            return Err(failed(&format!("git {verb}"), &done));
        }
        Ok(done.stdout.trim_end_matches('\n').to_owned())
    }

    /// Removes it.
    pub(super) async fn end(self) {
        if let Err(error) = self.app.engine.delete(&self.id).await {
            tracing::warn!(%error, sandbox = %self.id, "a Git sandbox could not be removed; it goes when the daemon starts again");
        }
    }
}

/// Runs a step in a worker and removes the worker, whatever came of it.
pub(super) async fn with_worker<T>(
    app: &App,
    folders: &[(&Path, bool)],
    step: impl AsyncFnOnce(&Worker<'_>) -> ApiResult<T>,
) -> ApiResult<T> {
    let worker = Worker::start(app, folders).await?;
    let outcome = step(&worker).await;
    worker.end().await;
    outcome
}

/// Name and address of the person for commits that Handler makes, from the person's own settings.
async fn person() -> String {
    let mut lines = String::new();
    for key in ["user.name", "user.email"] {
        let run = handler_base::proc::command("git")
            .args(["config", "--global", "--get", key])
            .current_dir("/")
            .output();
        let told = tokio::time::timeout(std::time::Duration::from_secs(5), run).await;
        let Ok(Ok(told)) = told else { continue };
        let value = String::from_utf8_lossy(&told.stdout).trim().to_owned();
        let is_plain = !value.is_empty() && !value.contains(['"', '\\', '\n', '\0']);
        if told.status.success() && is_plain {
            let name = key.trim_start_matches("user.");
            lines.push_str(&format!("[user]\n\t{name} = \"{value}\"\n"));
        }
    }
    lines
}
