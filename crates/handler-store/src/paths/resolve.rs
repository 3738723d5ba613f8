//! Finds the folders from the environment. Pure: reads only the variables it is given.
//!
//! | folder | override | else | else |
//! |---|---|---|---|
//! | config | `HANDLER_CONFIG_DIR` | `$XDG_CONFIG_HOME/handler` | `$HOME/.config/handler` |
//! | state | `HANDLER_STATE_DIR` | `$XDG_STATE_HOME/handler` | `$HOME/.local/state/handler` |
//! | data | `HANDLER_DATA_DIR` | `$XDG_DATA_HOME/handler` | `$HOME/.local/share/handler` |
//! | cache | `HANDLER_CACHE_DIR` | `$XDG_CACHE_HOME/handler` | `$HOME/.cache/handler` |
//! | runtime | `HANDLER_RUNTIME_DIR` | `$XDG_RUNTIME_DIR/handler` | `<state>/run` |
//!
//! A runtime folder too long for sockets becomes `/tmp/handler-<uid>-<hash of the state folder>`.

use super::{Layout, MAX_SOCKET_PATH};
use sha2::{Digest as _, Sha256};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Bytes of the longest socket path below the runtime folder: `/sb/<18>/guest.sock`.
const SOCKET_TAIL: usize = "/sb/".len() + 18 + "/guest.sock".len();

/// Why the folders cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Neither the folder's variables nor `HOME` are set.
    #[error("HOME is not set: set it, or set {variable} to an absolute path")]
    NoHome {
        /// The variable that would do as well.
        variable: &'static str,
    },
    /// A variable holds a path that is not absolute.
    #[error("{variable} is `{value}`, which is not an absolute path")]
    NotAbsolute {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        value: String,
    },
}

impl Layout {
    /// Finds the folders from variables (`get`) and the user's id. A variable that is empty counts as
    /// unset; a relative `XDG_*` one is ignored, as its specification says.
    ///
    /// # Errors
    /// [`LayoutError`] when a folder cannot be told, or an override is not absolute.
    pub fn from_env(get: impl Fn(&str) -> Option<String>, uid: u32) -> Result<Self, LayoutError> {
        let env = Env { get: &get };
        let state = env.folder("HANDLER_STATE_DIR", "XDG_STATE_HOME", ".local/state")?;
        let runtime = match env.absolute("HANDLER_RUNTIME_DIR")? {
            Some(path) => path,
            None => env
                .xdg("XDG_RUNTIME_DIR")
                .unwrap_or_else(|| state.join("run")),
        };
        Ok(Self {
            config: env.folder("HANDLER_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")?,
            data: env.folder("HANDLER_DATA_DIR", "XDG_DATA_HOME", ".local/share")?,
            cache: env.folder("HANDLER_CACHE_DIR", "XDG_CACHE_HOME", ".cache")?,
            runtime: short_runtime(runtime, &state, uid),
            state,
        })
    }
}

struct Env<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

impl Env<'_> {
    fn text(&self, variable: &str) -> Option<String> {
        (self.get)(variable).filter(|value| !value.is_empty())
    }

    fn absolute(&self, variable: &'static str) -> Result<Option<PathBuf>, LayoutError> {
        match self.text(variable) {
            None => Ok(None),
            Some(value) if value.starts_with('/') => Ok(Some(PathBuf::from(value))),
            Some(value) => Err(LayoutError::NotAbsolute { variable, value }),
        }
    }

    fn xdg(&self, variable: &str) -> Option<PathBuf> {
        self.text(variable)
            .filter(|value| value.starts_with('/'))
            .map(|value| Path::new(&value).join("handler"))
    }

    fn folder(
        &self,
        own: &'static str,
        xdg: &str,
        below_home: &str,
    ) -> Result<PathBuf, LayoutError> {
        if let Some(path) = self.absolute(own)? {
            return Ok(path);
        }
        if let Some(path) = self.xdg(xdg) {
            return Ok(path);
        }
        let home = self
            .absolute("HOME")?
            .ok_or(LayoutError::NoHome { variable: own })?;
        Ok(home.join(below_home).join("handler"))
    }
}

/// Keeps a runtime folder that leaves room for the sockets in it; replaces another.
fn short_runtime(runtime: PathBuf, state: &Path, uid: u32) -> PathBuf {
    if runtime.as_os_str().len() + SOCKET_TAIL <= MAX_SOCKET_PATH {
        return runtime;
    }
    let hash = Sha256::digest(state.as_os_str().as_bytes());
    let hex: String = hash[..6].iter().map(|b| format!("{b:02x}")).collect();
    PathBuf::from(format!("/tmp/handler-{uid}-{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::SandboxId;
    use std::collections::BTreeMap;

    fn layout(vars: &[(&str, &str)]) -> Result<Layout, LayoutError> {
        let vars: BTreeMap<String, String> = vars
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Layout::from_env(|name| vars.get(name).cloned(), 1000)
    }

    #[test]
    fn home_alone_gives_the_usual_folders() {
        let found = layout(&[("HOME", "/home/ada")]).expect("home is enough");
        assert_eq!(found.config, Path::new("/home/ada/.config/handler"));
        assert_eq!(found.state, Path::new("/home/ada/.local/state/handler"));
        assert_eq!(found.data, Path::new("/home/ada/.local/share/handler"));
        assert_eq!(found.cache, Path::new("/home/ada/.cache/handler"));
        assert_eq!(
            found.runtime,
            Path::new("/home/ada/.local/state/handler/run")
        );
    }

    #[test]
    fn an_override_wins_over_xdg_and_xdg_over_home() {
        let found = layout(&[
            ("HOME", "/home/ada"),
            ("XDG_CONFIG_HOME", "/x/config"),
            ("XDG_RUNTIME_DIR", "/run/user/1000"),
            ("XDG_DATA_HOME", "relative/is/ignored"),
            ("XDG_CACHE_HOME", ""),
            ("HANDLER_CONFIG_DIR", "/own/config"),
            ("HANDLER_STATE_DIR", "/own/state"),
        ])
        .expect("layout");
        assert_eq!(found.config, Path::new("/own/config"));
        assert_eq!(found.state, Path::new("/own/state"));
        assert_eq!(found.runtime, Path::new("/run/user/1000/handler"));
        assert_eq!(found.data, Path::new("/home/ada/.local/share/handler"));
        assert_eq!(found.cache, Path::new("/home/ada/.cache/handler"));
    }

    #[test]
    fn no_home_and_relative_overrides_are_refused_by_name() {
        assert_eq!(
            layout(&[]),
            Err(LayoutError::NoHome {
                variable: "HANDLER_STATE_DIR"
            })
        );
        let error = layout(&[("HOME", "/h"), ("HANDLER_DATA_DIR", "data")]).expect_err("relative");
        assert!(error.to_string().contains("HANDLER_DATA_DIR"), "{error}");
        let all: Vec<(&str, &str)> = ["STATE", "CONFIG", "DATA", "CACHE"]
            .iter()
            .map(|kind| match *kind {
                "STATE" => ("HANDLER_STATE_DIR", "/a"),
                "CONFIG" => ("HANDLER_CONFIG_DIR", "/b"),
                "DATA" => ("HANDLER_DATA_DIR", "/c"),
                _ => ("HANDLER_CACHE_DIR", "/d"),
            })
            .collect();
        layout(&all).expect("overrides need no home");
    }

    #[test]
    fn every_socket_path_stays_short_whatever_the_folder() {
        let id = SandboxId::from_random([7; 8]);
        for length in 1..200 {
            let state = format!("/{}", "s".repeat(length));
            let found = layout(&[("HOME", "/h"), ("HANDLER_STATE_DIR", &state)]).expect("layout");
            for socket in [
                found.sandbox_runtime_dir(&id).join("guest.sock"),
                found.egress_dir(&id).join("proxy.sock"),
                found.daemon_socket(),
                found.egress_control(),
            ] {
                assert!(socket.as_os_str().len() <= MAX_SOCKET_PATH, "{socket:?}");
            }
        }
    }

    #[test]
    fn two_long_state_folders_get_two_runtime_folders() {
        let long = |c: &str| {
            let state = format!("/{}", c.repeat(150));
            layout(&[("HOME", "/h"), ("HANDLER_STATE_DIR", &state)])
                .expect("layout")
                .runtime
        };
        assert!(long("a").starts_with("/tmp"));
        assert!(long("a").to_string_lossy().contains("handler-1000-"));
        assert_eq!(long("a"), long("a"));
        assert_ne!(long("a"), long("b"));
    }
}
