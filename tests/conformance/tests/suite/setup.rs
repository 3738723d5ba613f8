//! The engine set-ups: how each is brought up once, and what it hands to the checks.

use crate::engines;
use crate::fixture;
use crate::subject::Subject;
use anyhow::Context as _;
use handler_testkit::{Dockerd, User, World, WorldBuilder};
use handler_types::api::FolderRequest;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The user that runs rootless containers; `scripts/test-engines` makes it.
const ROOTLESS: &str = "handler-test";

/// A set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Namespaces, the host's system folders.
    Native,
    /// Namespaces, an image.
    NativeImage,
    /// Podman as an ordinary user.
    PodmanRootless,
    /// Podman as root.
    PodmanRootful,
    /// Docker.
    Docker,
}

/// All of them, in the table's order.
pub(crate) const ALL: &[Kind] = &[
    Kind::Native,
    Kind::NativeImage,
    Kind::PodmanRootless,
    Kind::PodmanRootful,
    Kind::Docker,
];

impl Kind {
    /// For test names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::NativeImage => "native_image",
            Self::PodmanRootless => "podman_rootless",
            Self::PodmanRootful => "podman_rootful",
            Self::Docker => "docker",
        }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::NativeImage => "native, image",
            Self::PodmanRootless => "podman rootless",
            Self::PodmanRootful => "podman rootful",
            Self::Docker => "docker",
        }
    }

    /// The backend's name in the API.
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Native | Self::NativeImage => "native",
            Self::PodmanRootless | Self::PodmanRootful => "podman",
            Self::Docker => "docker",
        }
    }
}

/// Whether a set-up can be used.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// Here it is.
    Ready(Arc<Subject>),
    /// This machine lacks it.
    Absent(String),
    /// It should work and does not.
    Broken(String),
}

/// A set-up, brought up when first asked for.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    standing: OnceCell<Standing>,
    dockerd: OnceCell<Dockerd>,
}

impl Setup {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            standing: OnceCell::new(),
            dockerd: OnceCell::new(),
        }
    }

    pub(crate) async fn standing(&self) -> Standing {
        self.standing.get_or_init(|| self.bring_up()).await.clone()
    }

    async fn bring_up(&self) -> Standing {
        if let Some(why) = engines::absent(self.kind) {
            return Standing::Absent(why);
        }
        match self.subject().await {
            Ok(subject) => Standing::Ready(Arc::new(subject)),
            Err(error) => Standing::Broken(format!("the set-up does not come up: {error:?}")),
        }
    }

    async fn subject(&self) -> anyhow::Result<Subject> {
        let home = tempfile::Builder::new().prefix("hc-").tempdir_in("/tmp")?;
        let mut builder = World::builder();
        let mut user = None;
        match self.kind {
            Kind::Native | Kind::NativeImage | Kind::PodmanRootful => {}
            Kind::PodmanRootless => {
                user = User::find(ROOTLESS);
                builder = rootless(builder, user.as_ref(), home.path())?;
            }
            Kind::Docker => {
                let dockerd = self
                    .dockerd
                    .get_or_try_init(|| Dockerd::start(home.path()))
                    .await?;
                builder = builder.env("HANDLER_DOCKER_SOCKET", dockerd.socket());
            }
        }
        let world = builder.start().await?;
        let path = world.work().to_string_lossy().into_owned();
        world.client().add_folder(&FolderRequest { path }).await?;
        let image = match self.kind {
            Kind::Native => None,
            _ => Some(
                fixture::import(&world, self.kind.backend())
                    .await
                    .context("import the image")?,
            ),
        };
        Subject::new(self.kind, world, user, image, home).await
    }

    /// Takes it down: sandboxes first, so that nothing of them stays in the engine.
    pub(crate) async fn end(&self) {
        if let Some(Standing::Ready(subject)) = self.standing.get() {
            subject.end().await;
        }
        if let Some(dockerd) = self.dockerd.get() {
            dockerd.end();
        }
    }
}

/// A home of its own for the user: images and settings of the person are neither used nor touched.
fn rootless(
    builder: WorldBuilder,
    user: Option<&User>,
    home: &std::path::Path,
) -> anyhow::Result<WorldBuilder> {
    let config = home.join(".config/containers");
    let runtime = home.join("run");
    std::fs::create_dir_all(&config)?;
    std::fs::create_dir_all(&runtime)?;
    std::fs::write(
        config.join("storage.conf"),
        "[storage]\ndriver = \"overlay\"\n",
    )?;
    let mut builder = builder.env("HOME", home).env("XDG_RUNTIME_DIR", &runtime);
    if let Some(user) = user {
        for path in [home, &home.join(".config"), &config, &runtime] {
            user.own(path)?;
        }
        builder = builder.user(user.clone());
    }
    for path in [home, &runtime] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    }
    Ok(builder)
}
