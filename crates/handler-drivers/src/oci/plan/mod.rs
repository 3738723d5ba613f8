//! From what was asked for to a container, whichever engine makes it: pure.

mod accept;
mod environment;
mod generated;
mod nested;
mod places;
#[cfg(test)]
mod tests;

pub(super) use accept::{check, limits_missing, missing_device};
pub(super) use generated::{Etc, GeneratedFile};
pub(super) use places::Seed;

use super::identity::Identity;
use super::labels;
use super::paths::{self, HostPaths};
use crate::native::ca::java_store;
use crate::native::java::JAVA_OPTIONS;
use crate::native::plan::text;
use crate::native::system::EGRESS_PORT;
use crate::native::transparent::TUN;
use crate::oci::transparent;
use handler_engine::driver::{DriverError, InstancePlan};
use handler_types::launch::{CA_BUNDLE, EGRESS_DIR, JAVA_TRUST_STORE};
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::Confinement;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the plan needs to know besides; gathered by the caller.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// As whom it runs.
    pub(super) identity: Identity,
    /// Whether the engine runs as an ordinary user, whose ids must be kept.
    pub(super) keep_id: bool,
    /// The guest program on the host.
    pub(super) guest_program: PathBuf,
    /// What the image says that ours is joined with.
    pub(super) of_image: ImageEnv,
    /// The runtime: asked for, or found to be the one that works here.
    pub(super) runtime: Option<String>,
    /// Limits that the engine enforces.
    pub(super) limits: Limits,
    /// Users and groups of the image.
    pub(super) etc: Etc,
}

/// Variables of an image that are joined with ours instead of being replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ImageEnv {
    pub(super) path: Option<String>,
    pub(super) java_options: Option<String>,
}

impl ImageEnv {
    /// Out of the `NAME=VALUE` lines of an image. What is empty is not there.
    pub(super) fn of(lines: &[String]) -> Self {
        let value = |name: &str| {
            let found = lines.iter().filter_map(|line| line.split_once('='));
            let mut values = found.filter(|(key, value)| *key == name && !value.is_empty());
            values.next().map(|(_, value)| value.to_owned())
        };
        Self {
            path: value("PATH"),
            java_options: value(JAVA_OPTIONS),
        }
    }
}

/// Limits to set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Limits {
    /// Bytes, swap included.
    pub(super) memory: Option<i64>,
    /// Billionths of a CPU.
    pub(super) nano_cpus: Option<i64>,
    pub(super) pids: Option<i64>,
}

/// A host path shown inside.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Bind {
    pub(super) source: String,
    pub(super) target: String,
    pub(super) read_only: bool,
}

/// An empty private folder in memory.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Tmpfs {
    pub(super) target: String,
    pub(super) mode: u32,
}

/// A container, in words of neither engine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ContainerPlan {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) hostname: String,
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) identity: Identity,
    pub(super) keep_id: bool,
    pub(super) confinement: Confinement,
    pub(super) runtime: Option<String>,
    pub(super) binds: Vec<Bind>,
    pub(super) tmpfs: Vec<Tmpfs>,
    /// Image id and target.
    pub(super) image_mounts: Vec<(String, String)>,
    pub(super) devices: Vec<&'static str>,
    /// The guest is lent rights over the network while it starts.
    pub(super) transparent: bool,
    /// The engine's own network instead of none.
    pub(super) open: bool,
    pub(super) limits: Limits,
}

/// A container and what must lie on the host before it starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Built {
    pub(super) container: ContainerPlan,
    /// Files mounted from outside, by number below the folder of files.
    pub(super) files: Vec<GeneratedFile>,
    /// Things made in folders that are mounted writable.
    pub(super) seeds: Vec<Seed>,
}

/// Devices that running containers inside needs.
pub(super) const NESTED_DEVICES: [&str; 2] = ["/dev/fuse", "/dev/net/tun"];

/// Plans the container.
pub(super) fn build(
    plan: &InstancePlan,
    paths: &HostPaths,
    facts: &Facts,
) -> Result<Built, DriverError> {
    let spec = &plan.spec;
    let Some(image) = &spec.image else {
        return Err(DriverError::Invalid("an image is needed".to_owned()));
    };
    let mut files = generated::files(plan, facts);
    files.extend(nested::files(spec.confinement, facts));
    let placed = places::place(plan, paths, files)?;
    let mut binds = placed.binds;
    binds.extend(own_binds(plan, paths, facts)?);
    // The outer ones first, whatever order an engine mounts them in.
    binds.sort_by_key(|bind| bind.target.split('/').count());
    let mut labels = labels::of(plan, &paths.home);
    let transparent = transparent::is_wanted(spec);
    let devices = match spec.confinement {
        Confinement::Nested => NESTED_DEVICES.to_vec(),
        Confinement::Strict if transparent => vec![TUN],
        Confinement::Strict | Confinement::Privileged => Vec::new(),
    };
    let mut container = ContainerPlan {
        name: format!("handler-{}", plan.id),
        image: image.id.clone(),
        hostname: plan.id.to_string(),
        argv: argv(plan, facts.identity),
        env: environment::environment(plan, facts)?,
        labels: BTreeMap::new(),
        identity: facts.identity,
        keep_id: facts.keep_id,
        confinement: spec.confinement,
        runtime: facts.runtime.clone(),
        binds,
        tmpfs: placed.tmpfs,
        image_mounts: spec
            .image_mounts
            .iter()
            .map(|mount| (mount.image.id.clone(), mount.target.clone()))
            .collect(),
        devices,
        transparent,
        open: matches!(spec.network, NetworkPolicy::Open),
        limits: facts.limits,
    };
    labels.insert(
        labels::CONFIG.to_owned(),
        labels::digest(&format!("{container:?} {labels:?}")),
    );
    container.labels = labels;
    Ok(Built {
        container,
        files: placed.files,
        seeds: placed.seeds,
    })
}

/// Whether programs inside are pointed to the filter: without a route always, else for stand-ins only.
pub(super) fn uses_filter(plan: &InstancePlan) -> bool {
    let is_open = matches!(plan.spec.network, NetworkPolicy::Open);
    plan.egress_dir.is_some() && (!is_open || !plan.spec.phantoms.is_empty())
}

fn argv(plan: &InstancePlan, identity: Identity) -> Vec<String> {
    let spec = &plan.spec;
    let mut argv: Vec<String> = [
        paths::INIT,
        "serve",
        "--socket",
        paths::GUEST_SOCKET,
        "--workdir",
        &spec.workdir,
        "--home",
        &spec.home,
    ]
    .map(str::to_owned)
    .into();
    if uses_filter(plan) {
        argv.extend([
            "--egress-socket".to_owned(),
            format!("{EGRESS_DIR}/proxy.sock"),
            "--egress-port".to_owned(),
            EGRESS_PORT.to_string(),
        ]);
    }
    if transparent::is_wanted(spec) {
        let user = format!("{}:{}", identity.uid, identity.gid);
        argv.extend(["--transparent".to_owned(), user]);
    }
    argv
}

/// What every container gets of ours.
fn own_binds(
    plan: &InstancePlan,
    paths: &HostPaths,
    facts: &Facts,
) -> Result<Vec<Bind>, DriverError> {
    let bind = |source: &std::path::Path, target: &str, read_only| {
        Ok::<_, DriverError>(Bind {
            source: text(source)?,
            target: target.to_owned(),
            read_only,
        })
    };
    let mut binds = vec![
        bind(&facts.guest_program, paths::INIT, true)?,
        bind(&paths.guest_dir, paths::GUEST_DIR, false)?,
        bind(&paths.ca_bundle, CA_BUNDLE, true)?,
        bind(&java_store(&paths.ca_bundle), JAVA_TRUST_STORE, true)?,
    ];
    if let Some(folder) = plan.egress_dir.as_deref().filter(|_| uses_filter(plan)) {
        binds.push(bind(folder, EGRESS_DIR, true)?);
    }
    if let Some(socket) = &plan.spec.display {
        binds.push(bind(socket.as_ref(), paths::DISPLAY, false)?);
    }
    Ok(binds)
}
