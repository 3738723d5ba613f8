//! The folders of a world and the environment that leads its programs there.
//!
//! The folder's name is random and unique on the machine, and short: sockets below it must fit into a
//! Unix socket address. Whatever mentions the name belongs to the world.

use anyhow::Context as _;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variables of the host that programs of a world need to reach a package registry from behind a company's
/// proxy. Everything else of the environment stays outside.
const PASSED: [&str; 9] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "LANG",
    "HANDLER_GUEST",
    "HANDLER_LOG",
];

/// The folders of a world.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Makes the folders, all 0700.
    ///
    /// # Errors
    /// When a folder cannot be made.
    pub fn new() -> anyhow::Result<Self> {
        let short = Path::new("/tmp");
        let parent = if short.is_dir() {
            short.to_owned()
        } else {
            std::env::temp_dir()
        };
        let dir = tempfile::Builder::new()
            .prefix("hw-")
            .rand_bytes(10)
            .tempdir_in(&parent)
            .with_context(|| format!("scratch folder in {}", parent.display()))?;
        let scratch = Self { dir };
        for name in ["config", "state", "data", "cache", "run", "home", "work"] {
            handler_base::fs::create_private_dir(&scratch.path().join(name))?;
        }
        Ok(scratch)
    }

    /// The folder around them all.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The name that marks everything of this world, e.g. `hw-x7Ab3kQ9zP`.
    #[must_use]
    pub fn mark(&self) -> String {
        let name = self.path().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// One of the folders: `config`, `state`, `data`, `cache`, `run`, `home`, `work`.
    #[must_use]
    pub fn folder(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The daemon's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder("run").join("handler.sock")
    }

    /// Where the daemon writes its port.
    #[must_use]
    pub fn port_file(&self) -> PathBuf {
        self.folder("run").join("port")
    }

    /// The bearer token.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.folder("config").join("token")
    }

    /// Output of the daemon process.
    #[must_use]
    pub fn daemon_output(&self) -> PathBuf {
        self.path().join("daemon.out")
    }

    /// The whole environment of a program of this world.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<OsString, OsString> {
        let mut env = passed_on();
        for (variable, folder) in [
            ("HANDLER_CONFIG_DIR", "config"),
            ("HANDLER_STATE_DIR", "state"),
            ("HANDLER_DATA_DIR", "data"),
            ("HANDLER_CACHE_DIR", "cache"),
            ("HANDLER_RUNTIME_DIR", "run"),
            ("HOME", "home"),
        ] {
            env.insert(variable.into(), self.folder(folder).into());
        }
        env.insert("NO_COLOR".into(), "1".into());
        env
    }
}

fn passed_on() -> BTreeMap<OsString, OsString> {
    let mut env = BTreeMap::new();
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    env.insert("PATH".into(), path);
    for (name, value) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let upper = text.to_ascii_uppercase();
        if PASSED.contains(&upper.as_str()) || upper.starts_with("NPM_CONFIG_") {
            env.insert(name, value);
        }
    }
    // The world has a home of its own; npm keeps reading the person's settings.
    if let Some(home) = std::env::var_os("HOME") {
        let settings = Path::new(&home).join(".npmrc");
        if settings.is_file() {
            env.entry("npm_config_userconfig".into())
                .or_insert_with(|| settings.into());
        }
    }
    env
}
