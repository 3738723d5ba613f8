//! Settings of the daemon: defaults, environment, flags, in that order. The only place here that reads
//! the environment.

use handler_store::paths::{Layout, LayoutError};
use handler_types::limits::Limits;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Default port on loopback.
pub const DEFAULT_PORT: u16 = 7430;

/// Environment variables of the daemon, with what they mean (the reference page is made from this).
pub const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "HANDLER_PORT",
        "port on 127.0.0.1 (default 7430; 0: any free one)",
    ),
    (
        "HANDLER_CONFIG_DIR",
        "hand-written documents and the token (default $XDG_CONFIG_HOME/handler)",
    ),
    (
        "HANDLER_STATE_DIR",
        "database, sessions, logs (default $XDG_STATE_HOME/handler)",
    ),
    (
        "HANDLER_DATA_DIR",
        "sealed secrets, installed harnesses (default $XDG_DATA_HOME/handler)",
    ),
    (
        "HANDLER_CACHE_DIR",
        "caches (default $XDG_CACHE_HOME/handler)",
    ),
    (
        "HANDLER_RUNTIME_DIR",
        "sockets (default $XDG_RUNTIME_DIR/handler, else below the state folder)",
    ),
    (
        "HANDLER_KNOWLEDGE_DIR",
        "where the knowledge folders lie (default: `root` in knowledge.toml, else ~/knowledge); when set, the API cannot change it",
    ),
    (
        "HANDLER_SESSION_IDLE_TIMEOUT",
        "seconds after which an idle session is stopped (default 1800)",
    ),
    (
        "HANDLER_MAX_SANDBOXES",
        "most sandboxes, in whatever state (over `sandboxes` in limits.toml)",
    ),
    (
        "HANDLER_MAX_RUNNING",
        "most sandboxes that run or are paused (over `running` in limits.toml)",
    ),
    (
        "HANDLER_MAX_MEMORY_MIB",
        "memory handed out in all (over `memoryMib` in limits.toml)",
    ),
    (
        "SSL_CERT_FILE",
        "certificate authorities to trust inside sandboxes besides the system's",
    ),
    (
        "HANDLER_FORWARD_BIND",
        "addresses of this host, separated by commas, that ports may be forwarded from besides loopback (default none)",
    ),
    (
        "HTTP_PROXY, HTTPS_PROXY, NO_PROXY",
        "proxy that the filter reaches the outside through (`http://` or `socks5://`, `ALL_PROXY` too), and for building images (also in lower case; images.toml overrides it)",
    ),
    (
        "HANDLER_PODMAN_SOCKET",
        "socket of a running Podman service (default: the daemon starts one when it is needed)",
    ),
    (
        "HANDLER_DOCKER_SOCKET",
        "Docker's socket (default: DOCKER_HOST if it names a socket, else /var/run/docker.sock)",
    ),
    (
        "HANDLER_WAYLAND_SOCKET",
        "display that sandboxes may be shown (default: WAYLAND_DISPLAY, else the only one there is)",
    ),
    (
        "HANDLER_GUEST",
        "another guest program than the embedded one (development)",
    ),
    (
        "HANDLER_LOG",
        "log filter, e.g. `info` or `handler_engine=debug` (default info)",
    ),
];

/// What the command line may override.
#[derive(Debug, Clone, Default)]
pub struct ServeFlags {
    /// Port on 127.0.0.1.
    pub port: Option<u16>,
}

/// Resolved settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folders.
    pub layout: Layout,
    /// Port on 127.0.0.1; 0: any.
    pub port: u16,
    /// Idle stop of sessions.
    pub idle_timeout: Duration,
    /// The user's home.
    pub home: PathBuf,
    /// The knowledge root, when the environment says it.
    pub knowledge_root: Option<PathBuf>,
    /// Another file of certificate authorities to trust inside sandboxes.
    pub extra_ca_file: Option<PathBuf>,
    /// Addresses that ports may be forwarded from, besides loopback.
    pub forward_bind: Vec<IpAddr>,
    /// Guest program given by hand.
    pub guest_program: Option<PathBuf>,
    /// Socket of a Podman service that somebody else keeps.
    pub podman_socket: Option<PathBuf>,
    /// Docker's socket.
    pub docker_socket: PathBuf,
    /// Proxy variables, for building images.
    pub proxy: BTreeMap<String, String>,
    /// Where a display is looked for.
    pub display: DisplayPlaces,
    /// Limits of the environment.
    pub limits: LimitOverrides,
}

/// Where a Wayland socket may be.
#[derive(Debug, Clone, Default)]
pub struct DisplayPlaces {
    /// Chosen by hand.
    pub chosen: Option<PathBuf>,
    /// `WAYLAND_DISPLAY`: a name in `folder`, or a path.
    pub name: Option<String>,
    /// `XDG_RUNTIME_DIR`.
    pub folder: Option<PathBuf>,
}

/// Limits that the environment sets over those of `limits.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitOverrides {
    /// Most sandboxes.
    pub sandboxes: Option<u64>,
    /// Most that run or are paused.
    pub running: Option<u64>,
    /// Memory handed out in all, MiB.
    pub memory_mib: Option<u64>,
}

impl LimitOverrides {
    fn resolve(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let read = |name| {
            get(name)
                .map(|text| number(name, text, "a whole number"))
                .transpose()
        };
        Ok(Self {
            sandboxes: read("HANDLER_MAX_SANDBOXES")?,
            running: read("HANDLER_MAX_RUNNING")?,
            memory_mib: read("HANDLER_MAX_MEMORY_MIB")?,
        })
    }

    /// Puts them over others.
    #[must_use]
    pub fn apply(self, limits: Limits) -> Limits {
        Limits {
            sandboxes: self.sandboxes.or(limits.sandboxes),
            running: self.running.or(limits.running),
            memory_mib: self.memory_mib.or(limits.memory_mib),
            ..limits
        }
    }
}

/// Why the settings are unusable.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A folder cannot be decided.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A variable has no usable value.
    #[error("{name}=`{value}` is not {wanted}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
}

impl Settings {
    /// Resolves them from flags and the environment given.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn resolve(
        flags: &ServeFlags,
        get: impl Fn(&str) -> Option<String>,
        uid: u32,
    ) -> Result<Self, SettingsError> {
        let layout = Layout::from_env(&get, uid)?;
        let port = match (flags.port, get("HANDLER_PORT")) {
            (Some(port), _) => port,
            (None, Some(text)) => number("HANDLER_PORT", text, "a port (0–65535)")?,
            (None, None) => DEFAULT_PORT,
        };
        let idle = match get("HANDLER_SESSION_IDLE_TIMEOUT") {
            Some(text) => number("HANDLER_SESSION_IDLE_TIMEOUT", text, "a number of seconds")?,
            None => 1800,
        };
        Ok(Self {
            layout,
            port,
            idle_timeout: Duration::from_secs(idle),
            home: get("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from),
            knowledge_root: knowledge_root(&get)?,
            extra_ca_file: get("SSL_CERT_FILE").map(PathBuf::from),
            forward_bind: addresses(get("HANDLER_FORWARD_BIND"))?,
            guest_program: get("HANDLER_GUEST").map(PathBuf::from),
            podman_socket: get("HANDLER_PODMAN_SOCKET").map(|text| socket_path(&text)),
            docker_socket: docker_socket(&get),
            display: DisplayPlaces {
                chosen: get("HANDLER_WAYLAND_SOCKET").map(PathBuf::from),
                name: get("WAYLAND_DISPLAY"),
                folder: get("XDG_RUNTIME_DIR").map(PathBuf::from),
            },
            limits: LimitOverrides::resolve(&get)?,
            proxy: crate::app::images::settings::PROXY_VARIABLES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), get(name)?)))
                .collect(),
        })
    }
}

fn knowledge_root(get: impl Fn(&str) -> Option<String>) -> Result<Option<PathBuf>, SettingsError> {
    let name = "HANDLER_KNOWLEDGE_DIR";
    match get(name).filter(|value| !value.is_empty()) {
        Some(value) if value.starts_with('/') || value.starts_with("~/") => Ok(Some(value.into())),
        Some(value) => Err(SettingsError::Variable {
            name,
            value,
            wanted: "an absolute path",
        }),
        None => Ok(None),
    }
}

fn addresses(text: Option<String>) -> Result<Vec<IpAddr>, SettingsError> {
    let text = text.unwrap_or_default();
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| number("HANDLER_FORWARD_BIND", part.to_owned(), "an IP address"))
        .collect()
}

/// A socket given as a path or as `unix://PATH`.
fn socket_path(text: &str) -> PathBuf {
    PathBuf::from(text.strip_prefix("unix://").unwrap_or(text))
}

fn docker_socket(get: &impl Fn(&str) -> Option<String>) -> PathBuf {
    let of_host = || get("DOCKER_HOST").filter(|host| host.starts_with("unix://"));
    let chosen = get("HANDLER_DOCKER_SOCKET").or_else(of_host);
    chosen.map_or_else(
        || PathBuf::from("/var/run/docker.sock"),
        |text| socket_path(&text),
    )
}

fn number<T: std::str::FromStr>(
    name: &'static str,
    value: String,
    wanted: &'static str,
) -> Result<T, SettingsError> {
    value.parse().map_err(|_| SettingsError::Variable {
        name,
        value,
        wanted,
    })
}
