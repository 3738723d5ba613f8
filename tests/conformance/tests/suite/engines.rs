//! Container engines of this machine: whether they are here.

use crate::setup::Kind;
use handler_testkit::User;

/// Why a set-up cannot be here; `None`: it must work.
pub(crate) fn absent(kind: Kind) -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    let need = |program: &str| {
        (!on_path(program)).then(|| {
            format!("there is no {program} on this machine (scripts/test-engines installs it)")
        })
    };
    match kind {
        Kind::Native => None,
        Kind::NativeImage => need("busybox"),
        Kind::PodmanRootless if is_root && User::find("handler-test").is_none() => {
            Some("there is no user handler-test (scripts/test-engines makes it)".to_owned())
        }
        Kind::PodmanRootless => need("podman").or_else(|| need("busybox")),
        Kind::PodmanRootful | Kind::Docker if !is_root => Some("only root can run it".to_owned()),
        Kind::PodmanRootful => need("podman").or_else(|| need("busybox")),
        Kind::Docker => need("dockerd").or_else(|| need("busybox")),
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}
