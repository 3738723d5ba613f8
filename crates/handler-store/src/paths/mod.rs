//! Where Handler's files lie. Owns the names of all files and folders; opens none of them.
//!
//! Invariant: every socket path that this crate names fits into a Unix socket address.

mod prepare;
mod resolve;

use handler_types::{AgentId, ProjectId, SandboxId, SessionId};
use std::path::{Path, PathBuf};

pub use prepare::PrepareError;
pub use resolve::LayoutError;

/// Longest socket path used, in bytes. The system's limit is 107; the rest is left to drivers.
pub const MAX_SOCKET_PATH: usize = 100;

/// The five folders of one Handler installation, all absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Hand-written files, the token and the key of the secrets.
    pub config: PathBuf,
    /// The database, event logs, sandboxes' own folders.
    pub state: PathBuf,
    /// Sealed secrets, harnesses, programs.
    pub data: PathBuf,
    /// What may be lost.
    pub cache: PathBuf,
    /// Sockets; short.
    pub runtime: PathBuf,
}

impl Layout {
    /// The SQLite database.
    #[must_use]
    pub fn db(&self) -> PathBuf {
        self.state.join("handler.db")
    }

    /// The bearer token of the API (0600).
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.config.join("token")
    }

    /// The daemon's socket.
    #[must_use]
    pub fn daemon_socket(&self) -> PathBuf {
        self.runtime.join("handler.sock")
    }

    /// Locked by the one daemon that uses the state folder.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.state.join("handler.lock")
    }

    /// The audit log.
    #[must_use]
    pub fn audit_dir(&self) -> PathBuf {
        self.data.join("audit")
    }

    /// A sandbox's own folder on disk.
    #[must_use]
    pub fn sandbox_dir(&self, id: &SandboxId) -> PathBuf {
        self.state.join("sandboxes").join(id.as_str())
    }

    /// A sandbox's own folder for sockets.
    #[must_use]
    pub fn sandbox_runtime_dir(&self, id: &SandboxId) -> PathBuf {
        self.runtime.join("sb").join(id.as_str())
    }

    /// The folder with the filter's socket for one sandbox.
    #[must_use]
    pub fn egress_dir(&self, id: &SandboxId) -> PathBuf {
        self.runtime.join("eg").join(id.as_str())
    }

    /// The socket on which the filter takes orders from the daemon.
    #[must_use]
    pub fn egress_control(&self) -> PathBuf {
        self.runtime.join("egress.sock")
    }

    /// A session's own folder: its event log is `events.ndjson` in it.
    #[must_use]
    pub fn session_dir(&self, id: &SessionId) -> PathBuf {
        self.state.join("sessions").join(id.as_str())
    }

    /// The event log of a session.
    #[must_use]
    pub fn session_log(&self, id: &SessionId) -> PathBuf {
        self.session_dir(id).join("events.ndjson")
    }

    /// Provider files, `<name>.toml`.
    #[must_use]
    pub fn providers_dir(&self) -> PathBuf {
        self.config.join("providers")
    }

    /// Account files, `<name>.toml`.
    #[must_use]
    pub fn accounts_dir(&self) -> PathBuf {
        self.config.join("accounts")
    }

    /// The contexts.
    #[must_use]
    pub fn contexts_file(&self) -> PathBuf {
        self.config.join("contexts.toml")
    }

    /// The sealed secrets.
    #[must_use]
    pub fn secrets_file(&self) -> PathBuf {
        self.data.join("secrets.json.sealed")
    }

    /// The sealed logins; their key is that of the secrets.
    #[must_use]
    pub fn logins_file(&self) -> PathBuf {
        self.data.join("logins.json.sealed")
    }

    /// The key of the sealed secrets (0600). It lies apart from them, so that a copy of the data
    /// folder alone opens nothing.
    #[must_use]
    pub fn secrets_key(&self) -> PathBuf {
        self.config.join("secrets.key")
    }

    /// Installed harnesses.
    #[must_use]
    pub fn harnesses_dir(&self) -> PathBuf {
        self.data.join("harnesses")
    }

    /// What harnesses keep of an agent across its sessions (contract E6): a folder `<harness>@<account or provider>` each.
    #[must_use]
    pub fn agent_state_dir(&self, id: &AgentId) -> PathBuf {
        self.agent_states_dir().join(id.as_str())
    }

    /// The folder of those of all agents.
    #[must_use]
    pub fn agent_states_dir(&self) -> PathBuf {
        self.data.join("agent-state")
    }

    /// A project's own caches: a folder each.
    #[must_use]
    pub fn project_caches_dir(&self, id: &ProjectId) -> PathBuf {
        self.caches_dir().join(id.as_str())
    }

    /// The folder of those of all projects.
    #[must_use]
    pub fn caches_dir(&self) -> PathBuf {
        self.data.join("caches")
    }

    /// Folders of forks.
    #[must_use]
    pub fn forks_dir(&self) -> PathBuf {
        self.data.join("forks")
    }

    /// The guest program of this version.
    #[must_use]
    pub fn guest_program(&self) -> PathBuf {
        let name = format!("handler-guest-{}", env!("CARGO_PKG_VERSION"));
        self.data.join("bin").join(name)
    }

    /// The daemon's log.
    #[must_use]
    pub fn daemon_log(&self) -> PathBuf {
        self.state.join("handler.log")
    }

    /// The filter's log.
    #[must_use]
    pub fn egress_log(&self) -> PathBuf {
        self.state.join("egress.log")
    }

    /// The work folders.
    #[must_use]
    pub fn folders_file(&self) -> PathBuf {
        self.config.join("folders.toml")
    }

    /// Where the knowledge folders lie.
    #[must_use]
    pub fn knowledge_file(&self) -> PathBuf {
        self.config.join("knowledge.toml")
    }

    /// What this host hands out, written by people.
    #[must_use]
    pub fn limits_file(&self) -> PathBuf {
        self.config.join("limits.toml")
    }

    /// Handler's own folders: no sandbox may see them.
    #[must_use]
    pub fn own_dirs(&self) -> [&Path; 5] {
        [
            &self.config,
            &self.state,
            &self.data,
            &self.cache,
            &self.runtime,
        ]
    }
}
