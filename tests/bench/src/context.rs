//! What every row is given: the programs to measure, how much to measure, the peers that are here.

use crate::args::Args;
use crate::peers::{self, Engine};
use anyhow::Context as _;
use handler_testkit::{Dockerd, World};
use std::cell::OnceCell;
use std::path::PathBuf;

/// What every row is given.
#[derive(Debug)]
pub(crate) struct Context {
    /// Few repetitions, small amounts.
    pub(crate) quick: bool,
    /// The `handler` program.
    pub(crate) handler: PathBuf,
    /// The guest program, for the driver alone.
    pub(crate) guest: Option<PathBuf>,
    podman: OnceCell<Result<Engine, String>>,
    docker: OnceCell<Result<Engine, String>>,
    bwrap: OnceCell<Result<(), String>>,
    /// A Docker daemon of our own with its folder, where none runs.
    dockerd: Option<(Dockerd, tempfile::TempDir)>,
}

impl Context {
    /// Finds the programs: `HANDLER_BIN`, else `handler` beside this program; `HANDLER_BENCH_GUEST`.
    pub(crate) async fn new(args: &Args) -> anyhow::Result<Self> {
        let handler = World::program()
            .filter(|program| program.is_file())
            .context("no `handler` program: run `cargo xtask bench`, or set HANDLER_BIN")?;
        Ok(Self {
            quick: args.quick,
            handler,
            guest: std::env::var_os("HANDLER_BENCH_GUEST").map(PathBuf::from),
            podman: OnceCell::new(),
            docker: OnceCell::new(),
            bwrap: OnceCell::new(),
            dockerd: own_dockerd(args).await,
        })
    }

    /// How many or how much: of a full run, or of a quick one.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A daemon in a scratch home.
    pub(crate) async fn world(&self) -> anyhow::Result<World> {
        World::builder().program(&self.handler).start().await
    }

    /// A daemon in a scratch home that uses an engine where that listens.
    pub(crate) async fn world_with(&self, engine: &Engine) -> anyhow::Result<World> {
        let mut builder = World::builder().program(&self.handler);
        if let Some(socket) = engine.socket() {
            builder = builder.env("HANDLER_DOCKER_SOCKET", socket);
        }
        builder.start().await
    }

    /// A scratch home without a daemon.
    pub(crate) fn empty_world(&self) -> anyhow::Result<World> {
        World::builder().program(&self.handler).prepare()
    }

    /// podman, or why it is absent.
    pub(crate) fn podman(&self) -> Result<&Engine, &str> {
        self.podman
            .get_or_init(|| Engine::find("podman", None))
            .as_ref()
            .map_err(String::as_str)
    }

    /// docker, or why it is absent.
    pub(crate) fn docker(&self) -> Result<&Engine, &str> {
        self.docker
            .get_or_init(|| {
                let socket = self
                    .dockerd
                    .as_ref()
                    .map(|(own, _)| own.socket().to_owned());
                Engine::find("docker", socket)
            })
            .as_ref()
            .map_err(String::as_str)
    }

    /// Whether bwrap works here, or why not.
    pub(crate) fn bwrap(&self) -> Result<(), &str> {
        self.bwrap
            .get_or_init(peers::find_bwrap)
            .as_ref()
            .copied()
            .map_err(String::as_str)
    }

    /// The container engines in their order, each with its name.
    pub(crate) fn engines(&self) -> [(&'static str, Result<&Engine, &str>); 2] {
        [("podman", self.podman()), ("docker", self.docker())]
    }
}

/// Starts a Docker daemon for the rows that need one, where none answers and we may.
async fn own_dockerd(args: &Args) -> Option<(Dockerd, tempfile::TempDir)> {
    let is_wanted = ["start", "exec", "containers"]
        .iter()
        .any(|row| args.wants(row));
    let answers = crate::machine::says("docker", &["version", "--format", "{{.Server.Version}}"]);
    if !is_wanted || answers.is_some() || !rustix::process::geteuid().is_root() {
        return None;
    }
    let home = tempfile::Builder::new().prefix("hb-").tempdir().ok()?;
    let own = Dockerd::start(home.path()).await.ok()?;
    Some((own, home))
}
