//! Recipes of images: the toolbox (copied once, then the user's) and one image per harness on it.
//!
//! Names are repositories without tag; the platform owns the tags, and `latest` is the only one.

use crate::install::{InstallFile, install_files};
use handler_types::harness::{HarnessDescriptor, InstallManager};

/// Repository of the toolbox.
pub const TOOLBOX: &str = "localhost/handler/toolbox";
/// Where an image says what is in it: one line.
pub const VERSION_FILE: &str = "/usr/share/handler/version";
/// Name of a recipe in its context.
pub const CONTAINERFILE: &str = "Containerfile";

/// The toolbox as it is shipped: names and contents.
pub const TOOLBOX_FILES: [(&str, &str); 3] = [
    (CONTAINERFILE, include_str!("../data/toolbox/Containerfile")),
    ("toolbox.toml", include_str!("../data/toolbox/toolbox.toml")),
    ("README.md", include_str!("../data/toolbox/README.md")),
];

const INSTALL_NPM: &str = include_str!("../data/image/install.sh");
const INSTALL_PIP: &str = include_str!("../data/image/install-pip.sh");

/// Repository of a harness's image.
#[must_use]
pub fn image_repository(name: &str) -> String {
    format!("localhost/handler/{name}")
}

/// Where the harness is in its image.
#[must_use]
pub fn image_prefix(name: &str) -> String {
    format!("/opt/handler/harness/{name}")
}

/// The context of a harness's image: paths, contents, permission bits; none: it has no recipe.
#[must_use]
pub fn image_context(descriptor: &HarnessDescriptor) -> Option<Vec<(String, &'static str, u32)>> {
    let recipe = match descriptor.name.as_str() {
        "claude-code" => include_str!("../data/claude-code/Containerfile"),
        "codex" => include_str!("../data/codex/Containerfile"),
        "gemini-cli" => include_str!("../data/gemini-cli/Containerfile"),
        "opencode" => include_str!("../data/opencode/Containerfile"),
        "pi" => include_str!("../data/pi/Containerfile"),
        "qwen-code" => include_str!("../data/qwen-code/Containerfile"),
        "vibe" => include_str!("../data/vibe/Containerfile"),
        _ => return None,
    };
    let install = match descriptor.install.manager {
        InstallManager::Npm => INSTALL_NPM,
        InstallManager::Pip => INSTALL_PIP,
    };
    let mut files = vec![
        (CONTAINERFILE.to_owned(), recipe, 0o644),
        ("install.sh".to_owned(), install, 0o755),
    ];
    for InstallFile {
        path,
        content,
        mode,
    } in install_files(&descriptor.name)?
    {
        files.push((format!("install/{path}"), content, *mode));
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors;

    #[test]
    fn every_harness_has_a_recipe_on_the_toolbox_with_its_prefix_and_packages() {
        for descriptor in descriptors() {
            let files = image_context(descriptor).unwrap();
            let recipe = files[0].1;
            assert!(recipe.contains("FROM ${TOOLBOX_IMAGE}"), "{recipe}");
            assert!(recipe.contains(&image_prefix(&descriptor.name)));
            assert!(recipe.contains(&format!("\"{}\"", descriptor.product)));
            for package in &descriptor.install.version_packages {
                assert!(recipe.contains(package.as_str()), "{package}");
            }
            let paths: Vec<_> = files.iter().map(|file| file.0.as_str()).collect();
            let lock = match descriptor.install.manager {
                InstallManager::Npm => "install/package-lock.json",
                InstallManager::Pip => "install/requirements.txt",
            };
            assert!(paths.contains(&lock), "{paths:?}");
        }
    }

    #[test]
    fn recipes_name_no_registry_and_nothing_of_a_machine() {
        let all = TOOLBOX_FILES.iter().map(|file| file.1);
        let recipes = descriptors().iter().flat_map(|d| image_context(d).unwrap());
        let recipes: Vec<_> = recipes
            .filter(|f| !f.0.ends_with(".json"))
            .map(|f| f.1)
            .collect();
        for text in all.chain(recipes) {
            assert!(!text.contains("://"), "{text}");
        }
    }
}
