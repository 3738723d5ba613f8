//! The environment of PID 1, which is that of every command: the image's own, ours over it, then what was asked for.

use super::{Facts, uses_filter};
use crate::native::environment::way_out;
use crate::native::plan::USER;
use crate::native::system::PATH;
use crate::oci::paths;
use handler_engine::driver::{DriverError, InstancePlan};
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
    if !spec.path_append.is_empty() {
        let image = facts.of_image.path.as_deref();
        let path = format!("{}:{}", image.unwrap_or(PATH), spec.path_append.join(":"));
        env.insert("PATH".to_owned(), path);
    }
    let java = facts.of_image.java_options.as_deref();
    way_out(&mut env, spec, uses_filter(plan), java);
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
