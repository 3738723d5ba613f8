//! A container as Docker's API wants it.

use super::plan::ContainerPlan;
use super::transparent::{CAPABILITIES, CAPABILITIES_OF_ROOT};
use bollard::models::{
    ContainerCreateBody, DeviceMapping, HealthConfig, HostConfig, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType,
};
use handler_types::sandbox::Confinement;
use std::collections::HashMap;

/// The body of `POST /containers/create`. `seccomp`: the profile for containers inside.
pub(super) fn body(plan: &ContainerPlan, seccomp: Option<&str>) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(plan.image.clone()),
        hostname: Some(plan.hostname.clone()),
        entrypoint: Some(plan.argv.clone()),
        user: Some(user(plan)),
        working_dir: Some("/".to_owned()),
        env: Some(
            plan.env
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        labels: Some(plan.labels.clone().into_iter().collect()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        stop_timeout: Some(0),
        host_config: Some(host(plan, seccomp)),
        ..ContainerCreateBody::default()
    }
}

/// The sandbox's user. Docker gives capabilities to root alone: with those that are lent, the guest becomes that user.
fn user(plan: &ContainerPlan) -> String {
    if plan.transparent {
        return "0:0".to_owned();
    }
    format!("{}:{}", plan.identity.uid, plan.identity.gid)
}

fn lent() -> Vec<String> {
    let all = CAPABILITIES.iter().chain(&CAPABILITIES_OF_ROOT);
    all.map(|name| (*name).to_owned()).collect()
}

fn host(plan: &ContainerPlan, seccomp: Option<&str>) -> HostConfig {
    let device = |path: &&str| DeviceMapping {
        path_on_host: Some((*path).to_owned()),
        path_in_container: Some((*path).to_owned()),
        cgroup_permissions: Some("rwm".to_owned()),
    };
    HostConfig {
        readonly_rootfs: Some(true),
        privileged: Some(plan.confinement == Confinement::Privileged),
        cap_add: plan.transparent.then(lent),
        cap_drop: (plan.confinement == Confinement::Strict).then(|| vec!["ALL".to_owned()]),
        security_opt: Some(security(plan.confinement, seccomp)),
        devices: Some(plan.devices.iter().map(device).collect()),
        // Without it, the inner engine cannot mount a `/proc` of its own.
        masked_paths: (plan.confinement == Confinement::Nested).then(Vec::new),
        readonly_paths: (plan.confinement == Confinement::Nested).then(Vec::new),
        network_mode: (!plan.open).then(|| "none".to_owned()),
        runtime: plan.runtime.clone(),
        mounts: Some(mounts(plan)),
        tmpfs: Some(tmpfs(plan)),
        memory: plan.limits.memory,
        memory_swap: plan.limits.memory,
        nano_cpus: plan.limits.nano_cpus,
        pids_limit: plan.limits.pids,
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), "1m".to_owned()),
                ("max-file".to_owned(), "1".to_owned()),
            ])),
        }),
        ..HostConfig::default()
    }
}

fn security(confinement: Confinement, seccomp: Option<&str>) -> Vec<String> {
    match confinement {
        Confinement::Strict => vec!["no-new-privileges:true".to_owned()],
        Confinement::Nested => {
            let mut all = ["label=disable", "apparmor=unconfined"]
                .map(str::to_owned)
                .to_vec();
            all.extend(seccomp.map(|profile| format!("seccomp={profile}")));
            all
        }
        Confinement::Privileged => Vec::new(),
    }
}

fn mounts(plan: &ContainerPlan) -> Vec<Mount> {
    let binds = plan.binds.iter().map(|bind| Mount {
        typ: Some(MountType::BIND),
        source: Some(bind.source.clone()),
        target: Some(bind.target.clone()),
        read_only: Some(bind.read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    });
    let images = plan.image_mounts.iter().map(|(image, target)| Mount {
        typ: Some(MountType::IMAGE),
        source: Some(image.clone()),
        target: Some(target.clone()),
        read_only: Some(true),
        ..Mount::default()
    });
    binds.chain(images).collect()
}

fn tmpfs(plan: &ContainerPlan) -> HashMap<String, String> {
    let owner = plan.identity;
    let options = |mode: u32| {
        format!(
            "rw,exec,nosuid,nodev,mode={mode:o},uid={},gid={}",
            owner.uid, owner.gid
        )
    };
    plan.tmpfs
        .iter()
        .map(|place| (place.target.clone(), options(place.mode)))
        .collect()
}
