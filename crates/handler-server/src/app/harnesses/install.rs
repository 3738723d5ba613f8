//! One installation: a staging folder, a sandbox that fills it, the checks, one rename.

use super::{check, npm, prefix_inside, prefix_on_host, python, runtime};
use crate::app::exec;
use crate::app::sandboxes::{HOME, engine_error};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::CreateArgs;
use handler_harness::{InstallPlan, install_plan};
use handler_types::ProblemCode;
use handler_types::api::ExecRequest;
use handler_types::harness::{HarnessDescriptor, InstallManager};
use handler_types::network::{AllowEntry, Enforcement, NetworkPolicy};
use handler_types::sandbox::{Lifetime, MountSpec, Resources, SandboxSpec};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the name of a folder begins that is not yet in place.
pub(super) const STAGING: &str = ".staging-";

/// Longest an installation may take, milliseconds.
const LIMIT_MS: u64 = 15 * 60 * 1000;

/// Installs and checks.
///
/// # Errors
/// Whatever stood in the way; nothing is left behind.
pub(super) async fn run(app: &Arc<App>, descriptor: &'static HarnessDescriptor) -> ApiResult<()> {
    let plan = install_plan(descriptor, &prefix_inside(&descriptor.name)).ok_or_else(|| {
        ApiError::new(
            ProblemCode::Invalid,
            format!("{} cannot be installed", descriptor.product),
        )
    })?;
    let target = prefix_on_host(app, descriptor)
        .ok_or_else(|| ApiError::new(ProblemCode::Internal, "no place to install to"))?;
    let staging = Staging::make(app, &plan)?;
    fill(app, &plan, &staging.path).await?;
    check::run(app, descriptor, &plan, &staging.path).await?;
    staging.put_in_place(&target)
}

/// A folder that goes away unless it is put in place.
struct Staging {
    path: PathBuf,
}

impl Staging {
    fn make(app: &App, plan: &InstallPlan) -> ApiResult<Self> {
        let folder = app.settings.layout.harnesses_dir();
        let path = folder.join(format!(
            ".staging-{}-{}",
            plan.harness,
            handler_base::random::hex(6)
        ));
        let staging = Self { path };
        staging
            .write(plan)
            .map_err(|e| disk("the staging folder", &e))?;
        Ok(staging)
    }

    fn write(&self, plan: &InstallPlan) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.path)?;
        for file in &plan.files {
            let path = self.path.join(file.path);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, file.content)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(file.mode))?;
        }
        Ok(())
    }

    fn put_in_place(self, target: &Path) -> ApiResult<()> {
        let result = target
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::rename(&self.path, target));
        result.map_err(|e| disk("the installed harness", &e))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After the rename there is nothing at this path any more.
        std::fs::remove_dir_all(&self.path).ok();
    }
}

fn disk(what: &str, error: &std::io::Error) -> ApiError {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull => ProblemCode::NoSpace,
        _ => ProblemCode::BackendFailed,
    };
    ApiError::new(code, format!("{what} cannot be written: {error}"))
}

/// A sandbox for this installation: no project, the prefix at its place inside.
pub(super) fn spec(plan: &InstallPlan, staging: &Path, network: NetworkPolicy) -> SandboxSpec {
    SandboxSpec {
        backend: "native".to_owned(),
        name: None,
        scope: None,
        workdir: plan.workdir.clone(),
        home: HOME.to_owned(),
        mounts: std::iter::once(MountSpec {
            source: text(staging),
            target: plan.workdir.clone(),
            read_only: !network.needs_egress(),
        })
        .chain(runtime(staging))
        .collect(),
        files: Vec::new(),
        env: BTreeMap::new(),
        network,
        resources: Resources::default(),
        strict_limits: false,
        lifetime: Lifetime::Session,
        labels: BTreeMap::from([("handler.install".to_owned(), plan.harness.clone())]),
        phantoms: Vec::new(),
        ..SandboxSpec::default()
    }
}

/// What the package manager needs of the host, and where it fetches from.
struct Fetch {
    allow: Vec<AllowEntry>,
    /// Folders to show read-only at the same path.
    extra: Vec<PathBuf>,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
}

async fn fetch(app: &App, plan: &InstallPlan) -> ApiResult<Fetch> {
    let mut env = plan.env.clone();
    match plan.manager {
        InstallManager::Npm => {
            let host = npm::find(&app.settings.layout.cache).await?;
            env.insert("npm_config_registry".to_owned(), host.registry.clone());
            let mut argv = vec![text(&host.node), text(&host.script)];
            argv.extend(plan.argv.iter().skip(1).cloned());
            Ok(Fetch {
                allow: vec![host.allow],
                extra: host.extra,
                argv,
                env,
            })
        }
        InstallManager::Pip => {
            let host = python::find(plan).await?;
            env.insert("PIP_INDEX_URL".to_owned(), host.index.clone());
            // Settings of the host are in the variable; its files are not inside.
            env.insert("PIP_CONFIG_FILE".to_owned(), "/dev/null".to_owned());
            let mut argv = plan.argv.clone();
            argv.pop();
            argv.push(text(&host.program));
            Ok(Fetch {
                allow: host.allow,
                extra: npm::root_to_show(&host.program).into_iter().collect(),
                argv,
                env,
            })
        }
    }
}

/// Runs the package manager in a sandbox that reaches its registry and nothing else.
async fn fill(app: &App, plan: &InstallPlan, staging: &Path) -> ApiResult<()> {
    let fetch = fetch(app, plan).await?;
    let network = NetworkPolicy::Filtered {
        allow: fetch.allow,
        enforcement: Enforcement::Enforce,
    };
    let mut spec = spec(plan, staging, network);
    for folder in &fetch.extra {
        let path = text(folder);
        spec.mounts.push(MountSpec {
            source: path.clone(),
            target: path,
            read_only: true,
        });
    }
    let request = ExecRequest {
        argv: fetch.argv,
        env: fetch.env,
        cwd: Some(plan.workdir.clone()),
        timeout_ms: Some(LIMIT_MS),
        ..Default::default()
    };
    in_sandbox(app, spec, request, "the package manager").await
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Makes a sandbox, runs one command in it, removes it.
pub(super) async fn in_sandbox(
    app: &App,
    spec: SandboxSpec,
    request: ExecRequest,
    what: &str,
) -> ApiResult<()> {
    let args = CreateArgs {
        spec,
        label: "harness install".to_owned(),
    };
    let view = app.engine.create(args).await.map_err(engine_error)?;
    crate::app::audit::made(app, &view).await;
    let outcome = async {
        let guest = app.engine.guest(&view.id).map_err(engine_error)?;
        exec::buffered(&guest, request).await
    }
    .await;
    if let Err(error) = app.engine.delete(&view.id).await {
        tracing::warn!(%error, sandbox = %view.id, "an installation's sandbox could not be removed");
    }
    let result = outcome?;
    if result.exit.code == 0 {
        return Ok(());
    }
    let said = format!("{}{}", result.stdout, result.stderr);
    let tail: Vec<char> = said.trim().chars().rev().take(1500).collect();
    let tail: String = tail.into_iter().rev().collect();
    Err(ApiError::new(
        ProblemCode::BackendFailed,
        format!("{what} ended with {}: {tail}", result.exit.code),
    ))
}
