//! Plans and lock files.

use super::sources::Lock;
use super::*;
use crate::descriptor::descriptors;
use serde_json::Value;

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
            "Codex 0.166.0 (codex-acp 2.6.0)",
            "Gemini CLI 0.61.0",
            "OpenCode 1.18.33",
            "pi 1.6.0 (pi-acp 0.0.34)",
            "Qwen Code 0.24.4",
            "Mistral Vibe 3.0.2",
        ]
    );
}

/// The harnesses that npm installs, with their lock files.
fn npm_locks() -> Vec<(&'static HarnessDescriptor, Value)> {
    let locks = descriptors().iter().filter_map(|descriptor| {
        match source(&descriptor.name).unwrap().lock {
            Lock::Npm(lock) => Some((descriptor, serde_json::from_str(lock).unwrap())),
            Lock::Pip(_) => None,
        }
    });
    locks.collect()
}

#[test]
fn lock_files_pin_checksums_and_name_no_address() {
    for (descriptor, lock) in npm_locks() {
        let text = lock.to_string();
        assert!(!text.contains("://") && !text.contains("resolved"));
        let packages = lock["packages"].as_object().unwrap();
        assert!(packages.len() > 4, "{}", descriptor.name);
        for (path, package) in packages.iter().filter(|(path, _)| !path.is_empty()) {
            let integrity = package["integrity"].as_str().unwrap_or_default();
            assert!(integrity.starts_with("sha512-"), "{path}");
        }
    }
    let Lock::Pip(requirements) = source("vibe").unwrap().lock else {
        panic!("by pip")
    };
    assert!(!requirements.contains("://"));
    let pinned = requirements.split("\n").filter(|l| l.contains("=="));
    assert!(pinned.count() > 50);
    for entry in requirements.replace("\\\n", "").lines() {
        assert!(
            entry.contains("==") && entry.contains("--hash=sha256:"),
            "{entry}"
        );
    }
}

#[test]
fn a_lock_file_lacks_nothing_that_its_packages_want() {
    for (descriptor, lock) in npm_locks() {
        let packages = lock["packages"].as_object().unwrap();
        for (path, package) in packages {
            for kind in ["dependencies", "optionalDependencies"] {
                for name in package[kind].as_object().into_iter().flat_map(|o| o.keys()) {
                    let end = format!("node_modules/{name}");
                    let is_there = packages.keys().any(|known| known.ends_with(&end));
                    assert!(is_there, "{}: {name} of {path}", descriptor.name);
                }
            }
        }
    }
}

#[test]
fn the_lock_file_has_the_versions_the_package_file_asks_for() {
    for plan in plans()
        .into_iter()
        .filter(|p| p.manager == InstallManager::Npm)
    {
        let json = |name: &str| -> Value {
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
    for (descriptor, lock) in npm_locks() {
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
        assert!(numbers(&versions[0]) >= numbers(descriptor.install.min_node.as_ref().unwrap()));
    }
}

#[test]
fn install_scripts_do_not_run_and_the_check_uses_the_prefix() {
    for plan in plans() {
        match plan.manager {
            InstallManager::Npm => {
                assert_eq!(plan.argv[..3], ["npm", "ci", "--ignore-scripts"]);
            }
            InstallManager::Pip => {
                assert_eq!(plan.argv, PIP);
                let fill = plan.files.iter().find(|file| file.path == "fill.sh");
                let fill = fill.unwrap().content;
                assert!(fill.contains("--only-binary :all:") && fill.contains("--require-hashes"));
            }
        }
        assert!(plan.check[0].starts_with("/opt/handler/harness/x/"));
        assert!(plan.files.iter().all(|file| !file.path.starts_with('/')));
    }
}

#[test]
fn a_program_is_ours_or_the_packages() {
    let argv = |harness: &str, program: &str| {
        let descriptor = crate::descriptor(harness).unwrap();
        program_argv(descriptor, "/p", &[program.to_owned(), "x".to_owned()]).join(" ")
    };
    assert_eq!(argv("pi", "pi"), "/p/bin/pi x");
    assert_eq!(
        argv("pi", "pi-acp"),
        "/p/node_modules/.bin/node /p/node_modules/.bin/pi-acp x"
    );
    assert_eq!(argv("opencode", "opencode"), "/p/bin/opencode x");
    assert_eq!(argv("vibe", "vibe-acp"), "/p/venv/bin/vibe-acp x");
}

#[test]
fn the_digest_follows_every_byte_and_mode() {
    let plans = plans();
    let (left, right) = (&plans[0], &plans[1]);
    assert_ne!(left.digest, right.digest);
    assert_eq!(left.digest.len(), 16);
    let base = digest(&left.files, &left.argv);
    assert_eq!(base, left.digest);
    let mut files = left.files.clone();
    files[0].mode = 0o755;
    assert_ne!(digest(&files, &left.argv), base);
    files[0].content = "{}";
    assert_ne!(digest(&files, &left.argv), base);
    assert_ne!(digest(&left.files, &left.argv[1..]), base);
}

#[test]
fn a_harness_without_install_files_has_no_plan() {
    let mut descriptor = descriptors()[0].clone();
    descriptor.name = "other".to_owned();
    assert_eq!(install_plan(&descriptor, "/p"), None);
}
