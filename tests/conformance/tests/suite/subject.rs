//! What a check works on: a daemon on one engine set-up, and how to make sandboxes there.

use crate::setup::Kind;
use anyhow::Context as _;
use handler_testkit::inside::Sandbox;
use handler_testkit::{User, World, eventually};
use handler_types::lifetime::Capabilities;
use handler_types::sandbox::{CreateSandbox, SandboxView};
use std::path::PathBuf;
use tokio::sync::RwLock;

/// What a check found missing in the suite's image or this machine; no engine is to blame.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) &'static str);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Missing {}

/// A daemon on an engine.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) capabilities: Capabilities,
    pub(crate) image: Option<String>,
    pub(crate) user: Option<User>,
    world: RwLock<World>,
    /// Home of a rootless user, and a Docker daemon's folders.
    _home: tempfile::TempDir,
}

impl Subject {
    pub(crate) async fn new(
        kind: Kind,
        world: World,
        user: Option<User>,
        image: Option<String>,
        home: tempfile::TempDir,
    ) -> anyhow::Result<Self> {
        let backends = world.client().backends().await?;
        let backend = backends
            .into_iter()
            .find(|backend| backend.name == kind.backend())
            .context("the backend is not listed")?;
        anyhow::ensure!(
            backend.available,
            "the backend is not available: {:?}",
            backend.checks
        );
        Ok(Self {
            kind,
            capabilities: backend.capabilities,
            image,
            user,
            world: RwLock::new(world),
            _home: home,
        })
    }

    /// The daemon; a check that kills it takes [`Subject::alone`].
    pub(crate) async fn world(&self) -> tokio::sync::RwLockReadGuard<'_, World> {
        self.world.read().await
    }

    /// The daemon for one check alone: all others of this set-up wait.
    pub(crate) async fn alone(&self) -> tokio::sync::RwLockWriteGuard<'_, World> {
        self.world.write().await
    }

    /// A request for this engine with nothing special.
    pub(crate) fn spec(&self) -> CreateSandbox {
        CreateSandbox {
            backend: Some(self.kind.backend().to_owned()),
            image: self.image.clone(),
            ..CreateSandbox::default()
        }
    }

    /// Makes a sandbox.
    pub(crate) async fn up(&self, world: &World, spec: &CreateSandbox) -> anyhow::Result<Sandbox> {
        Sandbox::up(world, spec).await
    }

    /// Makes a sandbox with nothing special.
    pub(crate) async fn plain(&self, world: &World) -> anyhow::Result<Sandbox> {
        Sandbox::up(world, &self.spec()).await
    }

    /// A project folder of the person.
    pub(crate) fn project(&self, world: &World, name: &str) -> anyhow::Result<PathBuf> {
        let folder = world
            .work()
            .join(format!("{name}-{}", handler_base::random::hex(4)));
        std::fs::create_dir_all(&folder)?;
        self.give(world, &folder)?;
        Ok(folder)
    }

    /// Puts a program or file of the person into a folder of theirs.
    pub(crate) fn put(
        &self,
        world: &World,
        path: &std::path::Path,
        content: impl AsRef<[u8]>,
    ) -> anyhow::Result<()> {
        std::fs::write(path, content)?;
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        self.give(world, path)
    }

    /// Makes a path the person's. Nobody is root in a container: where the daemon is root, a project is somebody's.
    pub(crate) fn give(&self, world: &World, path: &std::path::Path) -> anyhow::Result<()> {
        match (&self.user, self.kind) {
            (None, Kind::PodmanRootful | Kind::Docker) => {
                User::find("handler-test").map_or(Ok(()), |person| person.own(path))
            }
            _ => world.share(path),
        }
    }

    /// The person's user id.
    pub(crate) fn uid(&self) -> u32 {
        self.user
            .as_ref()
            .map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid)
    }

    /// Removes a sandbox and waits until it is gone.
    pub(crate) async fn down(&self, sandbox: Sandbox) -> anyhow::Result<()> {
        sandbox.client.delete_sandbox(&sandbox.id).await?;
        Ok(())
    }

    /// The view of a sandbox.
    pub(crate) async fn view(&self, sandbox: &Sandbox) -> anyhow::Result<SandboxView> {
        Ok(sandbox.client.sandbox(&sandbox.id).await?)
    }

    /// Removes all sandboxes that are left and ends the daemon.
    pub(crate) async fn end(&self) {
        let mut world = self.world.write().await;
        let client = world.client();
        for _ in 0..20 {
            let Ok(page) = client.sandboxes("", 100).await else {
                break;
            };
            if page.items.is_empty() {
                break;
            }
            for view in page.items {
                let _ = client.delete_sandbox(view.id.as_str()).await;
            }
        }
        if let Some(image) = &self.image {
            let backend = self.kind.backend();
            let _ = world
                .cli(&["image", "rm", "--backend", backend, image])
                .await;
        }
        let _ = world.stop_daemon().await;
        // The process ends without dropping anything.
        world.end();
    }
}

/// Waits for a state, a word of the API.
pub(crate) async fn reaches(
    sandbox: &Sandbox,
    state: handler_types::sandbox::SandboxState,
) -> anyhow::Result<SandboxView> {
    eventually(
        "the state of a sandbox",
        handler_testkit::inside::LONG,
        || async {
            let view = sandbox.client.sandbox(&sandbox.id).await.ok()?;
            (view.state == state).then_some(view)
        },
    )
    .await
}
