//! The scripted model as a command: started with flags, ended by a signal.
//!
//! The caller parses the flags and prints; this only runs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::{ScriptedConfig, ScriptedModel};

/// Longest key file that is read, in bytes.
const KEY_LIMIT: u64 = 64 * 1024;

/// What `scripted-model` is called with.
#[derive(Debug, Clone, Default)]
pub struct CliOptions {
    /// Port on 127.0.0.1; 0 lets the system choose.
    pub port: u16,
    /// File whose (trimmed) content is the one key to accept; none accepts everybody.
    pub key_file: Option<PathBuf>,
    /// Request log, one JSON line each; holds keys.
    pub log: Option<PathBuf>,
    /// Pause before each word of a slow answer; the default when unset.
    pub word_delay: Option<Duration>,
}

/// Runs until an interrupt or termination signal. `ready` is told the base URL once it answers.
///
/// # Errors
/// When the key file is unreadable, empty or too long, or the server cannot start.
pub async fn run_cli(options: CliOptions, ready: impl FnOnce(&str)) -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let defaults = ScriptedConfig::default();
    let model = ScriptedModel::start(ScriptedConfig {
        port: options.port,
        expect_key: options.key_file.as_deref().map(read_key).transpose()?,
        word_delay: options.word_delay.unwrap_or(defaults.word_delay),
        log: options.log,
        ..defaults
    })?;
    ready(&model.base_url());
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    model.stop();
    Ok(())
}

fn read_key(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(KEY_LIMIT + 1)
        .read_to_string(&mut text)?;
    let key = text.trim();
    let problem = match key {
        "" => "the key file is empty",
        _ if text.len() as u64 > KEY_LIMIT => "the key file is too long",
        _ => return Ok(key.to_owned()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_trimmed_and_must_hold_something() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "  sk-1\n").expect("written");
        assert_eq!(read_key(&path).expect("a key"), "sk-1");
        std::fs::write(&path, "\n").expect("written");
        assert!(read_key(&path).is_err());
        std::fs::write(&path, "k".repeat(70_000)).expect("written");
        assert!(read_key(&path).is_err());
    }
}
