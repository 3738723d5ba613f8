//! The install files of each harness, part of the program.

use super::InstallFile;

/// What a harness is installed from.
pub(super) struct Source {
    pub(super) files: &'static [InstallFile],
    pub(super) lock: Lock,
}

/// What pins its packages.
#[derive(Clone, Copy)]
pub(super) enum Lock {
    /// `package-lock.json`.
    Npm(&'static str),
    /// `requirements.txt` with hashes.
    Pip(&'static str),
}

const fn text(path: &'static str, content: &'static str) -> InstallFile {
    InstallFile {
        path,
        content,
        mode: 0o644,
    }
}

const fn program(path: &'static str, content: &'static str) -> InstallFile {
    InstallFile {
        path,
        content,
        mode: 0o755,
    }
}

/// A file of a harness's `install/` folder.
macro_rules! data {
    ($name:literal, $file:literal) => {
        include_str!(concat!("../../data/", $name, "/install/", $file))
    };
}

macro_rules! npm {
    ($name:literal $(, $own:literal)*) => {
        Source {
            files: &[
                $(program($own, data!($name, $own)),)*
                text("package.json", data!($name, "package.json")),
                text("package-lock.json", data!($name, "package-lock.json")),
            ],
            lock: Lock::Npm(data!($name, "package-lock.json")),
        }
    };
}

macro_rules! pip {
    ($name:literal) => {
        Source {
            files: &[
                program("fill.sh", data!($name, "fill.sh")),
                text("requirements.txt", data!($name, "requirements.txt")),
            ],
            lock: Lock::Pip(data!($name, "requirements.txt")),
        }
    };
}

static SOURCES: [(&str, Source); 7] = [
    ("claude-code", npm!("claude-code")),
    ("codex", npm!("codex")),
    ("gemini-cli", npm!("gemini-cli")),
    ("opencode", npm!("opencode", "bin/opencode")),
    ("pi", npm!("pi", "bin/pi")),
    ("qwen-code", npm!("qwen-code")),
    ("vibe", pip!("vibe")),
];

pub(super) fn source(name: &str) -> Option<&'static Source> {
    let found = SOURCES.iter().find(|(known, _)| *known == name);
    found.map(|(_, source)| source)
}

/// The files that say what a harness consists of.
pub(crate) fn install_files(name: &str) -> Option<&'static [InstallFile]> {
    source(name).map(|source| source.files)
}

/// The pinned version of a package.
pub(super) fn version_of(source: &Source, package: &str) -> Option<String> {
    match source.lock {
        Lock::Npm(lock) => {
            let lock: serde_json::Value = serde_json::from_str(lock).ok()?;
            let entry = &lock["packages"][format!("node_modules/{package}")];
            entry["version"].as_str().map(str::to_owned)
        }
        Lock::Pip(requirements) => requirements.lines().find_map(|line| {
            let version = line.strip_prefix(package)?.strip_prefix("==")?;
            version.split([' ', ';', '\\']).next().map(str::to_owned)
        }),
    }
}
