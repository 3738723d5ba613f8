//! Follows a reference to its value: in the store, the daemon's environment, a file, or a command's output.

use super::{MAX_VALUE, SecretError, SecretStore, command};
use handler_types::SecretValue;
use handler_types::provider::SecretRef;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use zeroize::{Zeroize as _, Zeroizing};

/// Why a reference leads to no value. Never holds what was read.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Nothing is kept under the path.
    #[error("secret `{path}` is not set: run `handler secret set {path}`")]
    NotSet {
        /// The path.
        path: String,
    },
    /// The variable is missing or empty.
    #[error("variable {name} is not set in the environment of the daemon")]
    NoVariable {
        /// The variable.
        name: String,
    },
    /// The file cannot be read.
    #[error("secret file {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path of the file is not absolute.
    #[error("secret file {} is not an absolute path", path.display())]
    RelativeFile {
        /// The file.
        path: PathBuf,
    },
    /// A command without a program.
    #[error("the command of a secret has no program")]
    EmptyCommand,
    /// The command could not be run.
    #[error("command `{program}` of a secret cannot be run")]
    CommandNotRun {
        /// Its program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The command ended without success.
    #[error("command `{program}` of a secret ended with {how}: run it by hand to see why")]
    CommandFailed {
        /// Its program.
        program: String,
        /// Its exit code or signal.
        how: String,
    },
    /// The command took too long and was killed.
    #[error("command `{program}` of a secret took more than {secs} s and was killed")]
    CommandTimeout {
        /// Its program.
        program: String,
        /// The time it had, seconds.
        secs: u64,
    },
    /// The command wrote too much and was killed.
    #[error("command `{program}` of a secret wrote more than 64 KiB and was killed")]
    CommandTooLong {
        /// Its program.
        program: String,
    },
    /// What was found is empty, too long or not text.
    #[error("the value from {source_word} `{name}` is {what}")]
    Unusable {
        /// `env`, `file` or `command`.
        source_word: &'static str,
        /// Its name, path or program.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] SecretError),
}

impl SecretStore {
    /// Follows a reference. `env` looks up a variable of the daemon's environment; `~/` in a file's path is
    /// its `HOME`. A command runs in a process group of its own, without a shell, for at most 10 s.
    ///
    /// # Errors
    /// [`ResolveError`]; its text is safe to show.
    pub async fn resolve(
        &self,
        reference: &SecretRef,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<SecretValue, ResolveError> {
        match reference {
            SecretRef::Secret(path) => self
                .get(path)
                .await?
                .ok_or_else(|| ResolveError::NotSet { path: path.clone() }),
            SecretRef::Env(name) => {
                // Taken as it is: unlike a file's, its end is no end of a line.
                match env(name).map(Zeroizing::new) {
                    Some(value) if value.len() > MAX_VALUE => {
                        Err(unusable("env", name, "longer than 64 KiB"))
                    }
                    Some(value) if !value.is_empty() => Ok(SecretValue::new(value.to_string())),
                    _ => Err(ResolveError::NoVariable { name: name.clone() }),
                }
            }
            SecretRef::File(path) => {
                let path = expand(path, env("HOME"))?;
                let bytes = read_file(path.clone()).await?;
                let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
                usable(line.to_vec(), "file", &path.display().to_string())
            }
            SecretRef::Command(argv) => {
                let bytes = command::run(argv).await?;
                let program = argv.first().map_or("", String::as_str);
                usable(bytes.to_vec(), "command", program)
            }
        }
    }
}

fn expand(path: &str, home: Option<String>) -> Result<PathBuf, ResolveError> {
    let full = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    };
    if full.is_absolute() {
        Ok(full)
    } else {
        Err(ResolveError::RelativeFile { path: full })
    }
}

async fn read_file(path: PathBuf) -> Result<Zeroizing<Vec<u8>>, ResolveError> {
    let shown = path.clone();
    let read = tokio::task::spawn_blocking(move || read_start(&path)).await;
    read.unwrap_or_else(|_| Err(io::Error::other("the runtime is stopping")))
        .map_err(|source| ResolveError::File {
            path: shown,
            source,
        })
}

/// The start of a regular file: enough for the longest value.
fn read_start(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // Not waiting for a writer, should the name be a pipe's.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    // Full size from the start: a buffer that grows would leave copies behind.
    let most = MAX_VALUE + 64;
    let mut bytes = Zeroizing::new(Vec::with_capacity(most));
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unusable(source_word: &'static str, name: &str, what: &'static str) -> ResolveError {
    ResolveError::Unusable {
        source_word,
        name: name.to_owned(),
        what,
    }
}

/// Makes a value of bytes: text, trimmed, 1 byte to 64 KiB. The bytes are overwritten.
fn usable(
    bytes: Vec<u8>,
    source_word: &'static str,
    name: &str,
) -> Result<SecretValue, ResolveError> {
    let wrong = |what| unusable(source_word, name, what);
    let text = match String::from_utf8(bytes) {
        Ok(text) => Zeroizing::new(text),
        Err(error) => {
            error.into_bytes().zeroize();
            return Err(wrong("not text"));
        }
    };
    match text.trim() {
        "" => Err(wrong("empty")),
        trimmed if trimmed.len() > MAX_VALUE => Err(wrong("longer than 64 KiB")),
        trimmed => Ok(SecretValue::new(trimmed.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_command_that_writes_too_much_is_killed_with_its_children() {
        let dir = tempfile::tempdir().expect("temp folder");
        let pid_file = dir.path().join("pid");
        // Endless output ends it as soon as the child is known to run.
        let script = format!("sleep 600 & echo $! > {}; yes", pid_file.display());
        let argv = ["sh".to_owned(), "-c".to_owned(), script];
        let error = command::run(&argv).await.expect_err("too much");
        assert!(
            matches!(error, ResolveError::CommandTooLong { .. }),
            "{error}"
        );
        let pid = std::fs::read_to_string(pid_file).expect("the child was started");
        let stat = format!("/proc/{}/stat", pid.trim());
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        // Gone, or a zombie that its new parent has not looked at yet.
        while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
            assert!(std::time::Instant::now() < deadline, "the child lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_given_up() {
        let argv = ["sleep".to_owned(), "600".to_owned()];
        let error = command::run_within(&argv, Duration::from_millis(50))
            .await
            .expect_err("too long");
        assert!(
            matches!(error, ResolveError::CommandTimeout { .. }),
            "{error}"
        );
    }
}
