//! A container as Podman's own API wants it.

use super::plan::{Bind, ContainerPlan, Limits, Tmpfs};
use super::transparent::CAPABILITIES;
use handler_types::sandbox::Confinement;
use serde_json::{Map, Value, json};

/// Bytes of output of PID 1 that are kept; nothing but the guest's last words is expected.
const LOG_BYTES: i64 = 1 << 20;

/// The body of `POST /libpod/containers/create`.
pub(super) fn body(plan: &ContainerPlan) -> Value {
    let mut body = json!({
        "name": plan.name,
        "image": plan.image,
        "hostname": plan.hostname,
        "entrypoint": plan.argv,
        "env": plan.env,
        "labels": plan.labels,
        "user": format!("{}:{}", plan.identity.uid, plan.identity.gid),
        "work_dir": "/",
        "umask": "0022",
        "stop_timeout": 0,
        "systemd": "false",
        "httpproxy": false,
        "image_volume_mode": "ignore",
        "healthconfig": {"Test": ["NONE"]},
        "log_configuration": {"driver": "k8s-file", "size": LOG_BYTES},
        "read_only_filesystem": true,
        "mounts": mounts(plan),
        "image_volumes": plan.image_mounts.iter().map(|(image, target)| {
            json!({"Source": image, "Destination": target, "ReadWrite": false})
        }).collect::<Vec<_>>(),
    });
    if let Value::Object(body) = &mut body {
        confinement(body, plan);
        if !plan.open {
            body.insert("netns".to_owned(), json!({"nsmode": "none"}));
        }
        if plan.keep_id {
            body.insert("userns".to_owned(), json!({"nsmode": "keep-id"}));
        }
        if let Some(runtime) = &plan.runtime {
            body.insert("oci_runtime".to_owned(), json!(runtime));
        }
        if plan.limits != Limits::default() {
            body.insert("resource_limits".to_owned(), limits(&plan.limits));
        }
    }
    body
}

fn confinement(body: &mut Map<String, Value>, plan: &ContainerPlan) {
    let fields = match plan.confinement {
        Confinement::Strict => json!({
            "cap_drop": ["all"],
            "cap_add": lent(plan),
            "no_new_privileges": true,
            "devices": devices(plan),
        }),
        Confinement::Nested => json!({
            "selinux_opts": ["disable"],
            "apparmor_profile": "unconfined",
            "unmask": ["/proc/*"],
            "devices": devices(plan),
        }),
        Confinement::Privileged => json!({"privileged": true}),
    };
    if let Value::Object(fields) = fields {
        body.extend(fields);
    }
}

fn devices(plan: &ContainerPlan) -> Vec<Value> {
    let devices = plan.devices.iter();
    devices.map(|device| json!({"path": device})).collect()
}

/// Capabilities that the guest gets, of whatever user it is, and gives up before it listens.
fn lent(plan: &ContainerPlan) -> &'static [&'static str] {
    if plan.transparent { &CAPABILITIES } else { &[] }
}

fn mounts(plan: &ContainerPlan) -> Vec<Value> {
    let binds = plan.binds.iter().map(
        |Bind {
             source,
             target,
             read_only,
         }| {
            let access = if *read_only { "ro" } else { "rw" };
            json!({"type": "bind", "source": source, "destination": target,
            "options": ["rbind", "rprivate", "nosuid", "nodev", access]})
        },
    );
    let tmpfs = plan.tmpfs.iter().map(|Tmpfs { target, mode }| {
        // `U`: it belongs to the container's user.
        json!({"type": "tmpfs", "source": "tmpfs", "destination": target,
            "options": ["rw", "exec", "nosuid", "nodev", "notmpcopyup", "U", format!("mode={mode:o}")]})
    });
    binds.chain(tmpfs).collect()
}

fn limits(limits: &Limits) -> Value {
    /// Microseconds of one accounting period of CPU time.
    const PERIOD: i64 = 100_000;
    let mut all = Map::new();
    if let Some(bytes) = limits.memory {
        all.insert("memory".to_owned(), json!({"limit": bytes, "swap": bytes}));
    }
    if let Some(nano) = limits.nano_cpus {
        let quota = nano / (1_000_000_000 / PERIOD);
        all.insert("cpu".to_owned(), json!({"quota": quota, "period": PERIOD}));
    }
    if let Some(pids) = limits.pids {
        all.insert("pids".to_owned(), json!({"limit": pids}));
    }
    Value::Object(all)
}
