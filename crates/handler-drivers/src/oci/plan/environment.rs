//! The environment of PID 1, which is that of every command: the image's own, ours over it, then what was asked for.

use super::{Facts, uses_filter};
use crate::native::plan::USER;
use crate::native::system::{CA_VARIABLES, EGRESS_PORT, NO_PROXY, PATH, PROXY_VARIABLES};
use crate::oci::paths;
use handler_engine::driver::{DriverError, InstancePlan};
use handler_types::launch::CA_BUNDLE;
use std::collections::BTreeMap;

/// Without the image's own, which the engine adds below it.
pub(super) fn environment(
    plan: &InstancePlan,
    facts: &Facts,
) -> Result<BTreeMap<String, String>, DriverError> {
    let spec = &plan.spec;
    let mut env: BTreeMap<String, String> = [
        ("HANDLER_SANDBOX", plan.id.as_str()),
        ("HOME", &spec.home),
        ("LOGNAME", USER),
        ("TERM", "xterm-256color"),
        ("TMPDIR", "/tmp"),
        ("USER", USER),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let bundle = CA_VARIABLES
        .iter()
        .map(|name| ((*name).to_owned(), CA_BUNDLE.to_owned()));
    env.extend(bundle);
    if uses_filter(plan) {
        let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
        let pairs = PROXY_VARIABLES.iter().map(|name| (*name, proxy.as_str()));
        for (name, value) in pairs.chain([("NO_PROXY", NO_PROXY)]) {
            env.insert(name.to_owned(), value.to_owned());
            env.insert(name.to_ascii_lowercase(), value.to_owned());
        }
    }
    if !spec.path_append.is_empty() {
        let image = facts.image_path.as_deref().filter(|path| !path.is_empty());
        let path = format!("{}:{}", image.unwrap_or(PATH), spec.path_append.join(":"));
        env.insert("PATH".to_owned(), path);
    }
    env.extend(spec.env.clone());
    if spec.display.is_some() {
        env.insert("WAYLAND_DISPLAY".to_owned(), paths::DISPLAY.to_owned());
        env.insert("XDG_RUNTIME_DIR".to_owned(), paths::RUNTIME_DIR.to_owned());
    }
    match env.iter().find(|(_, value)| value.contains('\n')) {
        // An engine's own tools cannot say it, and some read it as two variables.
        Some((name, _)) => Err(DriverError::Unenforceable(format!(
            "the variable {name} holds a line break, which containers cannot be given; put it in a file"
        ))),
        None => Ok(env),
    }
}
