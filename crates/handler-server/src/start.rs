//! What a start makes or takes: the lock, the token, the sockets, the guest program.

use handler_store::paths::Layout;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, UnixListener};

/// A runtime folder's path of so many bytes leaves room for any socket in it.
const SAFE_RUNTIME: usize = 60;

/// Why the daemon did not start. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// A second daemon.
    #[error(
        "another daemon (process {pid}) runs with this state folder; `handler daemon stop` ends it"
    )]
    SecondDaemon {
        /// Its process id, as far as known.
        pid: String,
    },
    /// The port is taken.
    #[error("port {port} on 127.0.0.1 is in use; choose another with --port or HANDLER_PORT")]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// A file or socket could not be made.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// No guest program.
    #[error(
        "this program was built without its guest; build it with `cargo xtask guest` first, or set HANDLER_GUEST"
    )]
    NoGuest,
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    |source| StartError::Io { what, source }
}

/// Secrets pass through this process on their way to the store and the filter: it never dumps its memory.
pub(crate) fn leave_no_core() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "core dumps of the daemon cannot be switched off");
    }
}

/// Held while the daemon lives; the kernel lets go of it with the process.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "holding it is its use")] std::fs::File);

/// Takes the lock of the state folder.
pub(crate) fn lock(layout: &Layout) -> Result<Lock, StartError> {
    let path = layout.lock_file();
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io(format!("cannot open {}", path.display())))?;
    if !try_lock(&file) {
        let mut pid = String::new();
        std::io::Read::by_ref(&mut file)
            .take(32)
            .read_to_string(&mut pid)
            .ok();
        return Err(StartError::SecondDaemon {
            pid: pid.trim().to_owned(),
        });
    }
    let write = |file: &mut std::fs::File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(io(format!("cannot write {}", path.display())))?;
    Ok(Lock(file))
}

/// A child that a killed daemon was just forking holds the lock for a moment longer: that is waited for.
fn try_lock(file: &std::fs::File) -> bool {
    for _ in 0..20 {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    false
}

/// Reads the token, or makes it at the first start.
pub(crate) fn token(layout: &Layout) -> Result<String, StartError> {
    token_in(layout.token_file())
}

/// The token a scraper reads `GET /metrics` with; likewise.
pub(crate) fn scrape_token(layout: &Layout) -> Result<String, StartError> {
    token_in(layout.config.join("metrics-token"))
}

fn token_in(path: std::path::PathBuf) -> Result<String, StartError> {
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().len() >= 32 => Ok(text.trim().to_owned()),
        Ok(_) => make_token(&path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make_token(&path),
        Err(error) => Err(io(format!("cannot read {}", path.display()))(error)),
    }
}

fn make_token(path: &Path) -> Result<String, StartError> {
    let token = handler_base::random::hex(32);
    handler_base::fs::write_atomic(path, token.as_bytes(), 0o600)
        .map_err(io("cannot write the token"))?;
    Ok(token)
}

/// Listens on loopback; the address is never configurable.
pub(crate) async fn listen_tcp(port: u16) -> Result<TcpListener, StartError> {
    TcpListener::bind(("127.0.0.1", port))
        .await
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => StartError::PortInUse { port },
            _ => StartError::Io {
                what: format!("cannot listen on 127.0.0.1:{port}"),
                source,
            },
        })
}

/// Listens on the Unix socket. The lock is held, so that what lies there is a dead daemon's.
pub(crate) fn listen_unix(layout: &Layout) -> Result<UnixListener, StartError> {
    let path = layout.daemon_socket();
    std::fs::remove_file(&path).ok();
    let listener =
        UnixListener::bind(&path).map_err(io(format!("cannot listen on {}", path.display())))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .map_err(io(format!("cannot close {} to others", path.display())))?;
    Ok(listener)
}

/// Puts the embedded guest program where drivers start it from; one file per content.
pub(crate) fn guest_program(
    layout: &Layout,
    given: Option<&Path>,
    embedded: Option<&[u8]>,
) -> Result<PathBuf, StartError> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let bytes = embedded.ok_or(StartError::NoGuest)?;
    let mut path = layout.guest_program().into_os_string();
    path.push(format!("-{}", digest(bytes)));
    let path = PathBuf::from(path);
    let is_there = std::fs::metadata(&path).is_ok_and(|m| m.len() == bytes.len() as u64);
    if !is_there {
        if let Some(folder) = path.parent() {
            handler_base::fs::create_private_dir(folder)
                .map_err(io("cannot make the program folder"))?;
        }
        handler_base::fs::write_atomic(&path, bytes, 0o755)
            .map_err(io("cannot write the guest"))?;
    }
    Ok(path)
}

/// The layout with its folders' real paths: what is mounted into sandboxes may have no link on its way, but a
/// person's home or data folder may. The runtime folder keeps its name where the real one is too long for sockets.
pub(crate) fn real_folders(mut layout: Layout) -> Result<Layout, StartError> {
    for folder in [
        &mut layout.config,
        &mut layout.state,
        &mut layout.data,
        &mut layout.cache,
    ] {
        let what = format!("cannot find the real path of {}", folder.display());
        *folder = folder.canonicalize().map_err(io(what))?;
    }
    let runtime = layout
        .runtime
        .canonicalize()
        .unwrap_or_else(|_| layout.runtime.clone());
    if runtime.as_os_str().len() <= layout.runtime.as_os_str().len().max(SAFE_RUNTIME) {
        layout.runtime = runtime;
    }
    Ok(layout)
}

/// Whose everything is that this daemon makes: unique to its state folder, short enough for a process title.
pub(crate) fn owner(layout: &Layout) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let path = layout
        .state
        .canonicalize()
        .unwrap_or_else(|_| layout.state.clone());
    format!("h{}", digest(path.as_os_str().as_bytes()))
}

fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(bytes)
        .iter()
        .take(6)
        .map(|b| format!("{b:02x}"))
        .collect()
}
