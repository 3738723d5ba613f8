//! How a world is made: which program, which environment, which flags.

use super::{User, World};
use crate::census::Census;
use crate::scratch::Scratch;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;

/// How a world is made.
#[derive(Debug, Default)]
pub struct WorldBuilder {
    program: Option<PathBuf>,
    env: BTreeMap<OsString, OsString>,
    flags: Vec<OsString>,
    user: Option<User>,
}

impl WorldBuilder {
    /// Another program than [`World::program`].
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// A variable for the daemon and the command line.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// A further argument of `handler serve`.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<OsString>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Runs daemon and command line as another user of this machine; the caller must be root. The world's
    /// folders are that user's, and the program is copied to where that user may run it.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    /// Makes the folders; no daemon yet.
    ///
    /// # Errors
    /// When the program or a folder is missing.
    pub fn prepare(self) -> anyhow::Result<World> {
        let program = match self.program {
            Some(program) => program,
            None => World::program().context(
                "no `handler` program: build it (cargo build -p handler) or set HANDLER_BIN",
            )?,
        };
        let scratch = Scratch::new()?;
        let program = match &self.user {
            Some(user) => user.take_over(&scratch, &program)?,
            None => program,
        };
        let per_sandbox = vec![
            scratch.folder("state").join("sandboxes"),
            scratch.folder("run").join("sb"),
            scratch.folder("run").join("eg"),
        ];
        let mut env = scratch.environment();
        env.extend(self.env);
        Ok(World {
            census: Mutex::new(Census::new(scratch.mark(), per_sandbox)),
            scratch,
            program,
            env,
            flags: self.flags,
            user: self.user,
            daemon: None,
        })
    }

    /// Makes the world and starts its daemon.
    ///
    /// # Errors
    /// As [`WorldBuilder::prepare`] and [`World::start_daemon`].
    pub async fn start(self) -> anyhow::Result<World> {
        let mut world = self.prepare()?;
        world.start_daemon().await?;
        Ok(world)
    }
}
