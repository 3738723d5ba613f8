//! What an engine is and can do on this host, asked once and kept for a while.

use super::api::{Flavour, OciApi, RUNSC, RUNSC_NEEDS};
use super::error::OciError;
use super::plan::missing_device;
use handler_types::lifetime::Capabilities;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer counts. Engines change when they are installed anew or configured.
const FRESH: Duration = Duration::from_secs(300);
/// First version of Docker's API with image mounts.
const IMAGE_MOUNTS: (u32, u32) = (1, 48);
/// Where the profile of allowed system calls lies that lets containers run in containers.
pub(super) const SECCOMP: &str = "/usr/share/containers/seccomp.json";

/// One engine on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EngineInfo {
    pub(super) flavour: Flavour,
    pub(super) version: String,
    pub(super) rootless: bool,
    pub(super) cgroup_v1: bool,
    pub(super) memory_limit: bool,
    pub(super) cpu_limit: bool,
    pub(super) pids_limit: bool,
    pub(super) image_mounts: bool,
    pub(super) default_runtime: String,
    /// Runtimes that can be named, and why not where one is known but cannot be used.
    pub(super) runtimes: BTreeMap<String, Result<(), String>>,
}

impl EngineInfo {
    /// Whether a runtime can be named.
    pub(super) fn runtime(&self, name: &str) -> Result<(), String> {
        match self.runtimes.get(name) {
            Some(known) => known.clone(),
            None => Err(format!(
                "there is no runtime `{name}` here (there are: {})",
                self.usable_runtimes().join(", ")
            )),
        }
    }

    pub(super) fn usable_runtimes(&self) -> Vec<String> {
        let usable = self.runtimes.iter().filter(|(_, usable)| usable.is_ok());
        usable.map(|(name, _)| name.clone()).collect()
    }

    /// The engine's own name of a runtime.
    pub(super) fn engine_runtime(&self, name: &str, open: bool) -> String {
        match (self.flavour, name) {
            (Flavour::Podman, "runsc") => RUNSC[usize::from(open)].to_owned(),
            _ => name.to_owned(),
        }
    }

    /// Whether its containers have control groups of their own: else what the engine counts is the whole machine's.
    pub(super) fn has_cgroups(&self) -> bool {
        !(self.rootless && self.cgroup_v1)
    }

    pub(super) fn can_pause(&self) -> bool {
        self.has_cgroups()
    }

    pub(super) fn limits_why(&self) -> String {
        let engine = self.flavour.name();
        match (self.rootless, self.cgroup_v1) {
            (true, true) => format!("rootless {engine} ignores limits with version 1 cgroups"),
            (true, false) => format!(
                "the cgroup controllers are not delegated to this user (rootless {engine}); see `systemctl edit \
                 user@.service`, Delegate="
            ),
            _ => format!("{engine} does not offer it on this kernel"),
        }
    }

    /// Why containers cannot run inside, if so.
    pub(super) fn nested_obstacle(&self) -> Option<String> {
        if let Some(device) = missing_device() {
            return Some(format!(
                "running containers inside needs {device}, which this host does not have"
            ));
        }
        let needs_profile = self.flavour == Flavour::Docker && !Path::new(SECCOMP).is_file();
        needs_profile.then(|| {
            format!(
                "running containers inside needs the profile {SECCOMP} (package `golang-github-containers-common` or \
                 `containers-common`): Docker's own forbids it"
            )
        })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities {
            host_root: false,
            images: true,
            image_mounts: self.image_mounts,
            build: true,
            pause: self.can_pause(),
            memory_limit: self.memory_limit,
            cpu_limit: self.cpu_limit,
            pids_limit: self.pids_limit,
            nested: self.nested_obstacle().is_none(),
            privileged: true,
            open_network: true,
            runtimes: self.usable_runtimes(),
            transparent: super::transparent::obstacle(self, None).is_none(),
            transparent_auto: false,
            display: true,
            users: false,
        }
    }
}

/// The last answer.
#[derive(Debug, Default)]
pub(super) struct InfoCache {
    kept: Mutex<Option<(Instant, EngineInfo)>>,
    /// The same for those who cannot wait.
    seen: std::sync::RwLock<Option<EngineInfo>>,
}

impl InfoCache {
    /// What the engine says; from memory while it is fresh.
    pub(super) async fn get(&self, api: &OciApi) -> Result<EngineInfo, OciError> {
        let mut kept = self.kept.lock().await;
        if let Some((at, info)) = kept.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(info.clone());
        }
        let asked = ask(api).await;
        let seen = asked.as_ref().ok().cloned();
        *self
            .seen
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = seen;
        let info = asked?;
        *kept = Some((Instant::now(), info.clone()));
        Ok(info)
    }

    /// Asks anew at the next occasion.
    pub(super) async fn forget(&self) {
        *self.kept.lock().await = None;
    }

    /// The last answer, however old.
    pub(super) fn seen(&self) -> Option<EngineInfo> {
        self.seen
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }
}

async fn ask(api: &OciApi) -> Result<EngineInfo, OciError> {
    let engine = api.connect().await?;
    match api.flavour() {
        Flavour::Podman => {
            let own = matches!(api.source(), super::api::OciSource::Service { .. });
            Ok(of_podman(
                &engine.libpod("GET", "/info", None).await?.body,
                own,
            ))
        }
        Flavour::Docker => {
            let (info, version) = (engine.info().await?, engine.version().await?);
            let info = serde_json::to_value(info).unwrap_or_default();
            Ok(of_docker(
                &info,
                version.api_version.as_deref().unwrap_or_default(),
            ))
        }
    }
}

fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

fn of_podman(info: &Value, own_service: bool) -> EngineInfo {
    let rootless = info
        .pointer("/host/security/rootless")
        .and_then(Value::as_bool)
        == Some(true);
    let cgroup_v1 = text(info, "/host/cgroupVersion") == "v1";
    let controllers = info
        .pointer("/host/cgroupControllers")
        .and_then(Value::as_array);
    let ignored = rootless && cgroup_v1;
    let has = |name: &str| {
        let listed = controllers.is_some_and(|all| all.iter().any(|one| one == name));
        listed && !ignored
    };
    let program = |name: &str| super::api::find_program(name).is_some();
    let mut runtimes: BTreeMap<String, Result<(), String>> = ["runc", "crun"]
        .into_iter()
        .filter(|name| program(name))
        .map(|name| (name.to_owned(), Ok(())))
        .collect();
    let default_runtime = text(info, "/host/ociRuntime/name");
    if !own_service && major_of(info) < 6 {
        // Its service uses one runtime for all, and it is not ours to start.
        for (name, usable) in runtimes
            .iter_mut()
            .filter(|(name, _)| **name != default_runtime)
        {
            *usable = Err(format!(
                "a Podman before version 6 that the daemon did not start cannot be told to use {name}"
            ));
        }
    }
    if !default_runtime.is_empty() && !default_runtime.starts_with('/') {
        runtimes.insert(default_runtime.clone(), Ok(()));
    }
    if program("runsc") {
        let usable = match (own_service, rootless) {
            (false, _) => Err("gVisor needs settings that only a Podman service started by the daemon gets: leave \
                HANDLER_PODMAN_SOCKET unset".to_owned()),
            // Its own user namespace handling cannot take one made by Podman with kept ids.
            (true, true) => Err("gVisor (runsc) does not run under rootless Podman; run the daemon as root, or use Docker".to_owned()),
            (true, false) => Ok(()),
        };
        runtimes.insert("runsc".to_owned(), usable);
    }
    EngineInfo {
        flavour: Flavour::Podman,
        version: text(info, "/version/Version"),
        rootless,
        cgroup_v1,
        memory_limit: has("memory"),
        cpu_limit: has("cpu"),
        pids_limit: has("pids"),
        image_mounts: true,
        default_runtime,
        runtimes,
    }
}

fn major_of(info: &Value) -> u32 {
    let version = text(info, "/version/Version");
    version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0)
}

fn of_docker(info: &Value, api_version: &str) -> EngineInfo {
    let can = |name: &str| info.get(name).and_then(Value::as_bool) == Some(true);
    let options = info.get("SecurityOptions").and_then(Value::as_array);
    let rootless = options.is_some_and(|all| all.iter().any(|one| one == "name=rootless"));
    let mut runtimes = BTreeMap::new();
    for (name, runtime) in info
        .get("Runtimes")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        // The same as `runc`, under the name of its shim.
        if !name.starts_with("io.containerd.") {
            runtimes.insert(name.clone(), docker_runtime(name, runtime));
        }
    }
    EngineInfo {
        flavour: Flavour::Docker,
        version: text(info, "/ServerVersion"),
        rootless,
        cgroup_v1: text(info, "/CgroupVersion") == "1",
        memory_limit: can("MemoryLimit"),
        cpu_limit: can("CpuCfsQuota") || can("CPUCfsQuota"),
        pids_limit: can("PidsLimit"),
        image_mounts: number_pair(api_version) >= Some(IMAGE_MOUNTS),
        default_runtime: text(info, "/DefaultRuntime"),
        runtimes,
    }
}

/// gVisor is usable when Docker was told to let the guest's socket through.
fn docker_runtime(name: &str, runtime: &Value) -> Result<(), String> {
    let path = runtime
        .get("path")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_gvisor = name.contains("runsc") || path.contains("runsc");
    let arguments = runtime.get("runtimeArgs").and_then(Value::as_array);
    let told = arguments.is_some_and(|all| all.iter().any(|one| one == RUNSC_NEEDS));
    // A wrapper of another name is the user's own doing.
    let is_program = path.ends_with("/runsc") || path == "runsc";
    if is_gvisor && is_program && !told {
        return Err(format!(
            "Docker's runtime `{name}` must be given {RUNSC_NEEDS} (`runtimeArgs` in /etc/docker/daemon.json): without it \
             nobody can speak to the guest"
        ));
    }
    Ok(())
}

fn number_pair(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn podman(rootless: bool, version: &str) -> EngineInfo {
        let info = json!({
            "host": {"security": {"rootless": rootless}, "cgroupVersion": version,
                "cgroupControllers": ["cpu", "memory", "pids"], "ociRuntime": {"name": "crun"}},
            "version": {"Version": "4.3.1"},
        });
        of_podman(&info, true)
    }

    #[test]
    fn rootless_podman_on_version_1_cgroups_neither_limits_nor_pauses() {
        let info = podman(true, "v1");
        assert!(!info.memory_limit && !info.pids_limit && !info.can_pause());
        assert!(!info.has_cgroups());
        let info = podman(true, "v2");
        assert!(info.memory_limit && info.can_pause());
        let info = podman(false, "v1");
        assert!(info.cpu_limit && info.can_pause());
        assert_eq!(info.default_runtime, "crun");
    }

    #[test]
    fn dockers_gvisor_must_let_sockets_through() {
        let info = json!({
            "MemoryLimit": true, "CpuCfsQuota": true, "PidsLimit": true, "DefaultRuntime": "runc", "CgroupVersion": "1",
            "Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": "/usr/sbin/runsc"},
                "told": {"path": "/usr/sbin/runsc", "runtimeArgs": ["--host-uds=all"]},
                "io.containerd.runc.v2": {"path": "runc"}},
        });
        let info = of_docker(&info, "1.41");
        assert!(info.runtime("runsc").is_err());
        assert_eq!(info.usable_runtimes(), ["runc", "told"]);
        assert!(!info.image_mounts && info.cpu_limit);
        assert!(
            info.runtime("kata")
                .expect_err("unknown")
                .contains("runc, told")
        );
    }
}
