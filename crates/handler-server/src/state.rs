//! What every request may use: the doors to the other rooms.

use crate::app::audit::Audit;
use crate::app::builds::Builds;
use crate::app::egress_events::EgressEvents;
use crate::app::harnesses::Harnesses;
use crate::app::images::updates::Updates;
use crate::app::learn::Learned;
use crate::app::observe::Observe;
use crate::app::ports::Ports;
use crate::app::previews::Previews;
use crate::app::sessions::Sessions;
use crate::config::Settings;
use crate::events::EventHub;
use crate::http::preview::Connections;
use handler_engine::Engine;
use handler_store::accounts::AccountFiles;
use handler_store::contexts::ContextsFile;
use handler_store::db::Store;
use handler_store::folders::WorkFolders;
use handler_store::knowledge::Knowledge;
use handler_store::providers::ProviderFiles;
use handler_store::secrets::SecretStore;
use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio_util::sync::CancellationToken;

/// The daemon's parts.
pub struct App {
    /// Settings.
    pub settings: Settings,
    /// Rows.
    pub store: Store,
    /// Secret values.
    pub secrets: SecretStore,
    /// Logins.
    pub logins: crate::app::logins::Logins,
    /// Account files.
    pub accounts: AccountFiles,
    /// Contexts.
    pub contexts: ContextsFile,
    /// Provider files.
    pub providers: ProviderFiles,
    /// Work folders.
    pub folders: WorkFolders,
    /// Knowledge folders.
    pub knowledge: Knowledge,
    /// Sandboxes.
    pub engine: Engine,
    /// Connections to Podman and Docker, to be let go at the end.
    pub container_apis: [handler_drivers::oci::OciApi; 2],
    /// Live sessions.
    pub sessions: Sessions,
    /// Plain ACP connections.
    pub connections: crate::app::launches::connection::Connections,
    /// Terminals.
    pub terminals: crate::app::terminals::Terminals,
    /// Installed harnesses.
    pub harnesses: Harnesses,
    /// Kept output of commands.
    pub spools: std::sync::Arc<crate::app::spool::Spools>,
    /// Long work on images.
    pub builds: Builds,
    /// When harness images are rebuilt by themselves.
    pub updates: Updates,
    /// The stream of changes.
    pub events: EventHub,
    /// The filter's last decisions.
    pub egress_events: EgressEvents,
    /// What each sandbox would need.
    pub learned: Learned,
    /// What was decided and changed, kept.
    pub audit: Audit,
    /// Held while a policy is changed on the ground of what it is.
    pub network_turn: tokio::sync::Mutex<()>,
    /// Held while projects and agents are changed on the ground of what they are.
    pub agents_turn: tokio::sync::Mutex<()>,
    /// Held shared while a session is started with caches, alone while they are emptied.
    pub caches_turn: tokio::sync::RwLock<()>,
    /// What is seen of sandboxes and this host.
    pub observe: Observe,
    /// Connections to ports inside.
    pub ports: Ports,
    /// Who may see previews.
    pub previews: Previews,
    /// Previews' connections.
    pub preview_connections: Connections,
    /// This program, for helpers in processes of their own.
    pub program: std::path::PathBuf,
    /// Cancelled when the daemon ends.
    pub shutdown: CancellationToken,
    pub(crate) secret_token: String,
    pub(crate) bound_port: AtomicU16,
}

impl App {
    /// The port the daemon listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.bound_port.load(Ordering::Relaxed)
    }

    pub(crate) fn token(&self) -> &str {
        &self.secret_token
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}
