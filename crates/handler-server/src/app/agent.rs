//! From a harness, a provider and a folder to a sandbox with the agent's process in it, and that process
//! as two numbered streams for the session.

use crate::app::sandboxes::phantom_of;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use async_trait::async_trait;
use bytes::Bytes;
use handler_engine::guest::{GuestHandle, ProcessStream, StreamItem};
use handler_harness::render;
use handler_session::io::{AgentGone, AgentIo, AgentOutput};
use handler_types::guest::{ProcessInfo, ProcessSpec, Stream};
use handler_types::harness::{
    HarnessDescriptor, HarnessLaunch, PermissionMode, RenderInput, SessionDefaults, SlotKind,
};
use handler_types::image::ImageUse;
use handler_types::network::NetworkPolicy;
use handler_types::provider::Provider;
use handler_types::sandbox::{
    FileSpec, Lifetime, MountSpec, PhantomBinding, Resources, SandboxSpec,
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
    /// The provider's name.
    pub provider_name: &'a str,
    /// The provider.
    pub provider: Provider,
    /// One of its models.
    pub model: &'a str,
    /// How free the agent is.
    pub permissions: PermissionMode,
    /// What it may reach besides its model's host.
    pub network: NetworkPolicy,
    /// Its project folder, canonical.
    pub scope: &'a str,
    /// Where its state slots are kept on the host.
    pub state_dir: &'a Path,
    /// Labels of the sandbox.
    pub labels: BTreeMap<String, String>,
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
    /// Values that must not appear in any log.
    pub redact: Vec<SecretValue>,
}

/// Resolves the key, renders, makes the state folders.
///
/// # Errors
/// A key without a value, what the harness cannot honour, a full disk.
pub async fn prepare(app: &App, request: AgentRequest<'_>) -> ApiResult<PreparedAgent> {
    let key = match &request.provider.api_key {
        None => None,
        Some(reference) => {
            let value = super::secrets::resolve(app, reference).await?;
            let name = super::providers::key_path(request.provider_name);
            let phantom = phantom_of(value.expose(), &name)?;
            Some((name, reference.clone(), phantom, value))
        }
    };
    let input = RenderInput {
        provider_name: request.provider_name.to_owned(),
        provider: request.provider.clone(),
        model: request.model.to_owned(),
        key: key.as_ref().map(|(_, _, phantom, _)| phantom.clone()),
        permission_mode: request.permissions,
        is_root: rustix::process::getuid().is_root(),
        prefix: request.place.inside(&request.descriptor.name),
    };
    let launch = render(request.descriptor, &input)
        .map_err(|e| ApiError::new(ProblemCode::Invalid, crate::http::problem::chain(&e)))?;
    let (phantoms, redact) = match key {
        None => (Vec::new(), Vec::new()),
        Some((name, secret, phantom, value)) => {
            let hosts = launch.egress.clone();
            let binding = PhantomBinding {
                name,
                secret,
                env: None,
                phantom,
                hosts,
            };
            (vec![binding], vec![value])
        }
    };
    let spec = spec(&request, &launch, phantoms)?;
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
        redact,
    })
}

fn spec(
    request: &AgentRequest<'_>,
    launch: &HarnessLaunch,
    phantoms: Vec<PhantomBinding>,
) -> ApiResult<SandboxSpec> {
    let (backend, image, mut mounts) = match &request.place {
        HarnessPlace::Prefix(prefix) => {
            let mount = MountSpec {
                source: prefix.to_string_lossy().into_owned(),
                target: request.place.inside(&request.descriptor.name),
                read_only: true,
            };
            ("native".to_owned(), None, vec![mount])
        }
        HarnessPlace::Image { backend, image } => {
            (backend.clone(), Some(image.clone()), Vec::new())
        }
    };
    for state in &launch.state {
        let source = request.state_dir.join(&state.slot);
        make_slot(&source, state.kind, &state.initial)?;
        mounts.push(MountSpec {
            source: source.to_string_lossy().into_owned(),
            target: state.target.clone(),
            read_only: false,
        });
    }
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

fn make_slot(path: &Path, kind: SlotKind, initial: &str) -> ApiResult<()> {
    let made = match kind {
        SlotKind::Dir => handler_base::fs::create_private_dir(path),
        SlotKind::File if path.exists() => Ok(()),
        SlotKind::File => path
            .parent()
            .map_or(Ok(()), handler_base::fs::create_private_dir)
            .and_then(|()| handler_base::fs::write_atomic(path, initial.as_bytes(), 0o600)),
    };
    made.map_err(|error| {
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

/// The agent's process, seen through the guest.
pub struct GuestAgent {
    guest: GuestHandle,
    process: ProcessInfo,
    stream: ProcessStream,
    exit: Option<i32>,
}

impl std::fmt::Debug for GuestAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestAgent")
            .field("process", &self.process.process)
            .finish_non_exhaustive()
    }
}

impl GuestAgent {
    /// Starts the agent, or finds it when it runs already.
    ///
    /// # Errors
    /// What the guest refuses, e.g. a program that does not exist.
    pub async fn start(guest: GuestHandle, spec: ProcessSpec) -> ApiResult<Self> {
        let process = guest
            .start(spec)
            .await
            .map_err(super::sandboxes::guest_error)?;
        Self::attach(guest, process).await
    }

    /// Finds the agent that an earlier daemon started; none: it never was, or the sandbox forgot it.
    ///
    /// # Errors
    /// A guest that does not answer.
    pub async fn find(guest: GuestHandle) -> ApiResult<Option<Self>> {
        let all = guest
            .processes()
            .await
            .map_err(super::sandboxes::guest_error)?;
        match all.into_iter().find(|process| process.key == AGENT_KEY) {
            Some(process) => Self::attach(guest, process).await.map(Some),
            None => Ok(None),
        }
    }

    async fn attach(guest: GuestHandle, process: ProcessInfo) -> ApiResult<Self> {
        let stream = guest
            .attach(process.process, process.acked)
            .await
            .map_err(super::sandboxes::guest_error)?;
        let exit = process.exit.map(|exit| exit.code);
        Ok(Self {
            guest,
            process,
            stream,
            exit,
        })
    }
}

#[async_trait]
impl AgentIo for GuestAgent {
    async fn next(&mut self) -> AgentOutput {
        loop {
            match self.stream.next().await {
                StreamItem::Chunk {
                    offset,
                    stream,
                    bytes,
                } => {
                    let end = offset + bytes.len() as u64;
                    return match stream {
                        Stream::Stderr => AgentOutput::Stderr { end, bytes },
                        Stream::Stdout | Stream::Pty => AgentOutput::Stdout { end, bytes },
                    };
                }
                StreamItem::Exited(exit) => self.exit = Some(exit.code),
                StreamItem::End { .. } => {
                    return AgentOutput::Exited {
                        code: self.exit.unwrap_or(-1),
                    };
                }
                StreamItem::Lost(reason) => return AgentOutput::Lost { reason },
            }
        }
    }

    fn ack(&mut self, end: u64) {
        self.stream.ack(end);
    }

    async fn write(&mut self, offset: u64, bytes: Bytes) -> Result<(), AgentGone> {
        self.guest
            .write_stdin(self.process.process, offset, bytes)
            .await
            .map_err(|error| AgentGone(error.to_string()))
    }

    fn received(&self) -> u64 {
        self.process.received
    }
}
