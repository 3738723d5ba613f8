//! From a harness, an account or provider, and a folder to a sandbox with the agent's process in it.

mod access;
mod guest_agent;

pub use access::ModelUse;
pub use guest_agent::GuestAgent;

use super::quick_files::Load;
use super::sandboxes::engine_error;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::CreateArgs;
use handler_engine::driver::FolderOwner;
use handler_harness::{RenderError, render};
use handler_types::guest::ProcessSpec;
use handler_types::harness::{
    HarnessDescriptor, HarnessLaunch, ModelAccess, PermissionMode, RenderInput, SessionDefaults,
    SlotKind,
};
use handler_types::image::ImageUse;
use handler_types::network::{AllowEntry, NetworkPolicy};
use handler_types::sandbox::{
    FileSpec, Lifetime, MountSpec, PhantomBinding, Resources, SandboxSpec, SandboxView,
};
use handler_types::{ProblemCode, SecretValue};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The process key of the agent in its sandbox: starting twice starts once.
pub const AGENT_KEY: &str = "acp";

/// Where a harness is installed.
#[derive(Debug, Clone)]
pub enum HarnessPlace {
    /// In a folder of the host, shown in a native sandbox.
    Prefix(PathBuf),
    /// In an image.
    Image {
        /// Whose store.
        backend: String,
        /// The image, pinned.
        image: ImageUse,
    },
}

impl HarnessPlace {
    /// The backend it is on.
    #[must_use]
    pub fn backend(&self) -> &str {
        match self {
            Self::Prefix(_) => "native",
            Self::Image { backend, .. } => backend,
        }
    }

    /// The harness's prefix inside.
    fn inside(&self, name: &str) -> String {
        match self {
            Self::Prefix(_) => super::harnesses::prefix_inside(name),
            Self::Image { .. } => handler_harness::image_prefix(name),
        }
    }
}

/// What is wanted.
#[derive(Debug)]
pub struct AgentRequest<'a> {
    /// The program.
    pub descriptor: &'static HarnessDescriptor,
    /// Where it is installed, and so what the sandbox is made of.
    pub place: HarnessPlace,
    /// What its model calls go through.
    pub used: ModelUse<'a>,
    /// How free the agent is.
    pub permissions: PermissionMode,
    /// What it may reach besides its model's host.
    pub network: NetworkPolicy,
    /// Its project folder, canonical.
    pub scope: &'a str,
    /// Where its state slots are kept on the host.
    pub state_dir: &'a Path,
    /// Where slots that are not one session's are kept instead: its agent's own (contract E6).
    pub shared_state: Option<&'a Path>,
    /// Labels of the sandbox.
    pub labels: BTreeMap<String, String>,
    /// Path in the home (`~/…`) → folder of a cache on the host.
    pub caches: BTreeMap<String, String>,
    /// The program's own terminal instead of ACP.
    pub terminal: Option<TerminalLaunch>,
}

/// How a harness's own terminal is started (contract B8).
#[derive(Debug)]
pub struct TerminalLaunch {
    /// Arguments for the program.
    pub args: Vec<String>,
    /// The agent's instructions, which no first prompt can carry here.
    pub instructions: Option<String>,
}

/// What to make.
#[derive(Debug)]
pub struct PreparedAgent {
    /// The sandbox.
    pub spec: SandboxSpec,
    /// The process in it.
    pub process: ProcessSpec,
    /// What every session of it starts with.
    pub defaults: SessionDefaults,
    /// Hosts its model calls and MCP servers need.
    pub needs: Vec<AllowEntry>,
    /// Values that must not appear in any log.
    pub redact: Vec<SecretValue>,
    /// The login whose file is put into the sandbox before the process starts.
    pub login: Option<LoginUse>,
}

/// A stored login, and where its file is put.
#[derive(Debug)]
pub struct LoginUse {
    /// Its name in the store.
    pub login: String,
    /// Absolute path inside.
    pub target: String,
    /// Where its tokens are given to.
    pub hosts: Vec<AllowEntry>,
}

/// Resolves the key, renders, makes the state folders.
///
/// # Errors
/// A key without a value, what the harness cannot honour, a full disk.
pub async fn prepare(app: &App, request: AgentRequest<'_>) -> ApiResult<PreparedAgent> {
    let resolved = access::resolve(app, &request.used, request.descriptor).await?;
    let input = input(&request, resolved.access);
    let mut launch = render(request.descriptor, &input)
        .map_err(|e| ApiError::new(ProblemCode::Invalid, crate::http::problem::chain(&e)))?;
    let hosts = request.used.hosts(request.descriptor);
    let phantoms = resolved.binding.into_iter().map(|mut binding| {
        binding.hosts.clone_from(&hosts);
        binding
    });
    let phantoms: Vec<PhantomBinding> = phantoms.collect();
    let login = login_use(&mut launch, resolved.login, &hosts);
    let backend = request.place.backend();
    let spec = spec(
        &request,
        &launch,
        phantoms,
        owner(app, backend, request.scope),
    )?;
    let process = ProcessSpec {
        key: AGENT_KEY.to_owned(),
        argv: launch.argv,
        cwd: Some(request.scope.to_owned()),
        stdin: true,
        tag: "agent".to_owned(),
        ..Default::default()
    };
    Ok(PreparedAgent {
        spec,
        process,
        defaults: launch.session_defaults,
        needs: launch.egress,
        redact: resolved.redact,
        login,
    })
}

/// Makes its sandbox and puts the copy of its account's login there, before anything runs in it; whole or not at all.
///
/// # Errors
/// What the engine, the guest or the login refuses.
pub async fn make(
    app: &App,
    mut spec: SandboxSpec,
    label: String,
    login: Option<&LoginUse>,
) -> ApiResult<SandboxView> {
    let Some(login) = login else {
        let made = app.engine.create(CreateArgs { spec, label }).await;
        return made.map_err(engine_error);
    };
    let mut load = Load::default();
    let granted = super::logins::grant_account(app, login, &spec.network).await?;
    granted.put_into(&mut spec, &mut load);
    let made = app.engine.create(CreateArgs { spec, label }).await;
    granted.end(app, made.is_ok()).await;
    let view = made.map_err(engine_error)?;
    let filled = match app.engine.guest(&view.id).map_err(engine_error) {
        Ok(guest) => load.put_into(&guest).await,
        Err(error) => Err(error),
    };
    if let Err(error) = filled {
        app.engine.delete(&view.id).await.ok();
        return Err(error);
    }
    Ok(view)
}

/// Takes the login's file out of the mounts: a copy with stand-ins is put there instead.
fn login_use(
    launch: &mut HarnessLaunch,
    login: Option<String>,
    hosts: &[AllowEntry],
) -> Option<LoginUse> {
    let place = |source: &str| source == access::LOGIN_PLACE;
    let at = launch.mounts.iter().position(|m| place(&m.source))?;
    let mount = launch.mounts.remove(at);
    Some(LoginUse {
        login: login?,
        target: mount.target,
        hosts: hosts.to_vec(),
    })
}

fn input(request: &AgentRequest<'_>, access: ModelAccess) -> RenderInput {
    RenderInput {
        access,
        permission_mode: request.permissions,
        is_root: rustix::process::getuid().is_root(),
        prefix: request.place.inside(&request.descriptor.name),
        scope: request.scope.to_owned(),
        skills: Vec::new(),
        mcp_servers: Vec::new(),
        instructions: request
            .terminal
            .as_ref()
            .and_then(|terminal| terminal.instructions.clone()),
        terminal: request
            .terminal
            .as_ref()
            .map(|terminal| terminal.args.clone()),
        caches: request.caches.clone(),
    }
}

/// What a launch would be, with something in the place of the key, token or login: whether the harness can do it
/// (contract E1) and which hosts it needs (E4).
///
/// # Errors
/// What the harness cannot honour.
pub fn would_run(
    descriptor: &HarnessDescriptor,
    used: &ModelUse<'_>,
    permissions: PermissionMode,
) -> Result<HarnessLaunch, RenderError> {
    let input = RenderInput {
        access: used.without_values(descriptor),
        permission_mode: permissions,
        is_root: rustix::process::getuid().is_root(),
        prefix: super::harnesses::prefix_inside(&descriptor.name),
        scope: "/a-folder-stands-here".to_owned(),
        skills: Vec::new(),
        mcp_servers: Vec::new(),
        instructions: None,
        terminal: None,
        caches: BTreeMap::new(),
    };
    render(descriptor, &input)
}

fn spec(
    request: &AgentRequest<'_>,
    launch: &HarnessLaunch,
    phantoms: Vec<PhantomBinding>,
    owner: Option<FolderOwner>,
) -> ApiResult<SandboxSpec> {
    let backend = request.place.backend().to_owned();
    let (image, mut mounts) = match &request.place {
        HarnessPlace::Prefix(prefix) => {
            let mount = MountSpec {
                source: prefix.to_string_lossy().into_owned(),
                target: request.place.inside(&request.descriptor.name),
                read_only: true,
            };
            let runtime = super::harnesses::runtime(prefix);
            (None, std::iter::once(mount).chain(runtime).collect())
        }
        HarnessPlace::Image { image, .. } => (Some(image.clone()), Vec::new()),
    };
    for state in &launch.state {
        let folder = match request.shared_state {
            Some(shared) if !state.per_session => shared,
            _ => request.state_dir,
        };
        let source = folder.join(&state.slot);
        make_slot(&source, state.kind, &state.initial, owner)?;
        mounts.push(MountSpec {
            source: source.to_string_lossy().into_owned(),
            target: state.target.clone(),
            read_only: false,
        });
    }
    mounts.extend(launch.mounts.iter().map(|mount| MountSpec {
        source: mount.source.clone(),
        target: mount.target.clone(),
        read_only: mount.read_only,
    }));
    let files = launch.files.iter().map(|file| FileSpec {
        target: file.target.clone(),
        content: file.content.clone(),
        mode: file.mode,
        writable: file.writable,
    });
    Ok(SandboxSpec {
        backend,
        image,
        name: None,
        scope: Some(request.scope.to_owned()),
        workdir: request.scope.to_owned(),
        home: launch.home.clone(),
        mounts,
        files: files.collect(),
        env: launch.env.clone(),
        network: with_hosts(&request.network, launch),
        resources: Resources::default(),
        strict_limits: false,
        lifetime: Lifetime::Session,
        labels: request.labels.clone(),
        phantoms,
        ..SandboxSpec::default()
    })
}

/// The policy with the model's own hosts; `none` stays `none` (a model on the machine is out of reach too).
#[must_use]
pub fn with_hosts(network: &NetworkPolicy, launch: &HarnessLaunch) -> NetworkPolicy {
    let mut policy = network.clone();
    if let NetworkPolicy::Filtered { allow, .. } = &mut policy {
        for host in &launch.egress {
            if !allow.contains(host) {
                allow.push(host.clone());
            }
        }
    }
    policy
}

/// Whose the host's folders must be that the agent of this backend and project writes.
pub fn owner(app: &App, backend: &str, scope: &str) -> Option<FolderOwner> {
    let driver = app
        .engine
        .drivers()
        .iter()
        .find(|d| d.backend() == backend)?;
    driver.owner(Some(scope))
}

/// Gives a file or folder that was made for an agent to the user that the agent runs as.
///
/// # Errors
/// A daemon that is not root.
pub fn give(path: &Path, owner: Option<FolderOwner>) -> std::io::Result<()> {
    owner.map_or(Ok(()), |owner| {
        std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))
    })
}

fn make_slot(
    path: &Path,
    kind: SlotKind,
    initial: &str,
    owner: Option<FolderOwner>,
) -> ApiResult<()> {
    let made = match kind {
        SlotKind::Dir => handler_base::fs::create_private_dir(path),
        SlotKind::File if path.exists() => Ok(()),
        SlotKind::File => path
            .parent()
            .map_or(Ok(()), handler_base::fs::create_private_dir)
            .and_then(|()| handler_base::fs::write_atomic(path, initial.as_bytes(), 0o600)),
    };
    made.and_then(|()| give(path, owner)).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::StorageFull => ProblemCode::NoSpace,
            _ => ProblemCode::BackendFailed,
        };
        ApiError::new(
            code,
            format!("the agent's state folder cannot be made: {error}"),
        )
    })
}
