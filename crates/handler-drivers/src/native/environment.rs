//! The environment of PID 1, which is that of every command.

use super::java::{self, JAVA_OPTIONS};
use super::plan::{HostFacts, USER, is_variable};
use super::system::{CA_VARIABLES, EGRESS_PORT, NO_PROXY, NODE_PROXY, PATH, PROXY_VARIABLES};
use handler_engine::driver::InstancePlan;
use handler_images::ImageRoot;
use handler_types::launch::{CA_BUNDLE, WAYLAND_SOCKET};
use handler_types::sandbox::SandboxSpec;
use std::collections::BTreeMap;

/// Of the image first, then what a sandbox needs, then what the spec says.
pub(super) fn environment(
    plan: &InstancePlan,
    facts: &HostFacts,
    image: Option<&ImageRoot>,
) -> BTreeMap<String, String> {
    let spec = &plan.spec;
    let of_image = image.map(|image| &image.config.env);
    let mut env: BTreeMap<String, String> = of_image
        .into_iter()
        .flatten()
        .filter(|(name, value)| is_variable(name, value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let path = search_path(spec, env.get("PATH").map_or(PATH, String::as_str));
    let own = [
        ("HANDLER_SANDBOX", plan.id.to_string()),
        ("HOME", spec.home.clone()),
        ("LOGNAME", USER.to_owned()),
        ("PATH", path),
        ("SHELL", facts.shell.clone()),
        ("TERM", "xterm-256color".to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("USER", USER.to_owned()),
    ];
    env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    env.entry("LANG".to_owned())
        .or_insert_with(|| "C.UTF-8".to_owned());
    if spec.display.is_some() {
        env.insert("WAYLAND_DISPLAY".to_owned(), WAYLAND_SOCKET.to_owned());
    }
    let java_of_image = env.get(JAVA_OPTIONS).cloned();
    let is_filtered = plan.egress_dir.is_some();
    way_out(&mut env, spec, is_filtered, java_of_image.as_deref());
    env
}

/// What tells programs of the certificates and, where there is a filter, of it; then what the spec says, which
/// counts more. Java's options alone are joined: nobody who sets a heap size means to give up the network.
pub(crate) fn way_out(
    env: &mut BTreeMap<String, String>,
    spec: &SandboxSpec,
    is_filtered: bool,
    java_of_image: Option<&str>,
) {
    env.extend(
        CA_VARIABLES
            .iter()
            .map(|name| ((*name).to_owned(), CA_BUNDLE.to_owned())),
    );
    if is_filtered {
        let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
        let pairs = PROXY_VARIABLES.iter().map(|name| (*name, proxy.as_str()));
        for (name, value) in pairs.chain([("NO_PROXY", NO_PROXY)]) {
            env.insert(name.to_owned(), value.to_owned());
            env.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        env.insert(NODE_PROXY.0.to_owned(), NODE_PROXY.1.to_owned());
    }
    let asked = spec.env.get(JAVA_OPTIONS).map(String::as_str);
    let java = java::options(java_of_image, is_filtered, asked);
    env.extend(spec.env.clone());
    env.insert(JAVA_OPTIONS.to_owned(), java);
}

/// The home's programs, then the usual ones, then what is appended.
fn search_path(spec: &SandboxSpec, usual: &str) -> String {
    let home = format!("{}/.local/bin", spec.home.trim_end_matches('/'));
    let appended = spec.path_append.iter().map(String::as_str);
    let all: Vec<&str> = [home.as_str(), usual].into_iter().chain(appended).collect();
    all.join(":")
}
