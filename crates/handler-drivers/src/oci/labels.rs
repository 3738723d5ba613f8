//! Labels on containers: how they are found again after a crash, and by people.

use handler_engine::driver::InstancePlan;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// On everything that is Handler's.
pub(super) const MANAGED: &str = "handler.managed";
/// Whose daemon made it.
pub(super) const OWNER: &str = "handler.owner";
/// The sandbox.
pub(super) const SANDBOX: &str = "handler.sandbox";
/// The home's folder on the host.
pub(super) const HOME: &str = "handler.home";
/// Digest of what the container was made from: another one means another container.
pub(super) const CONFIG: &str = "handler.config";
/// Prefix of a pinned image mount: followed by the image's id; the value is where it is shown.
pub(super) const IMAGE_MOUNT: &str = "handler.image-mount.";
/// What no label of a user may begin with.
const OURS: &str = "handler.";

/// All labels but the digest.
pub(super) fn of(plan: &InstancePlan, home: &Path) -> BTreeMap<String, String> {
    let theirs = plan
        .spec
        .labels
        .iter()
        .filter(|(name, _)| !name.starts_with(OURS));
    let mut labels: BTreeMap<String, String> = theirs
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for mount in &plan.spec.image_mounts {
        labels.insert(
            format!("{IMAGE_MOUNT}{}", mount.image.id),
            mount.target.clone(),
        );
    }
    let own = [
        (MANAGED, "1".to_owned()),
        (OWNER, plan.owner.clone()),
        (SANDBOX, plan.id.to_string()),
        (HOME, home.to_string_lossy().into_owned()),
    ];
    labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
    labels
}

/// Digest of a request's text.
pub(super) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
