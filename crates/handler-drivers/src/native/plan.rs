//! From what was asked for to what the launcher does: pure.
//!
//! | refused | why |
//! |---|---|
//! | a mount on `/proc`, `/dev`, `/sys`, `/run/handler` or below | they are the sandbox's own |
//! | a mount on `/`, `/usr`, `/etc`, `/tmp` … themselves (below is fine) | it would replace the system |
//! | two mounts on one target, or one on the home | one would hide the other |
//! | a source that holds, or lies in, a private folder of the daemon | it would show other sandboxes |
//! | a writable folder or an image on the home, on `/tmp` or on a mount | one would hide the other |
//! | paths that are not absolute and plain, or hold a zero byte | they mean different things to different readers |

use super::ca;
use super::environment::environment;
use super::files;
use super::images::Taken;
use super::system::{EGRESS_PORT, OWN_FOLDERS, OWN_TREES, SYSTEM, SYSTEM_ETC};
use handler_engine::driver::{DriverError, InstancePlan};
use handler_images::ImageRoot;
use handler_types::image::ImageMount;
use handler_types::launch::{
    CA_BUNDLE, JAVA_TRUST_STORE, LaunchFile, LaunchMount, LaunchOverlay, LaunchPlan, WAYLAND_SOCKET,
};
use handler_types::sandbox::SandboxSpec;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// User name inside.
pub(crate) const USER: &str = "agent";

/// What the plan needs to know of this host; gathered by the caller.
#[derive(Debug, Clone)]
pub(super) struct HostFacts {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// A shell that exists.
    pub(super) shell: String,
    /// `RLIMIT_NOFILE` of commands.
    pub(super) open_files: u64,
    /// Folders that no mount may show.
    pub(super) private: Vec<PathBuf>,
}

/// Where things of one instance are on the host.
#[derive(Debug, Clone)]
pub(super) struct InstancePaths {
    pub(super) home: PathBuf,
    pub(super) ca_bundle: PathBuf,
    pub(super) log: PathBuf,
    pub(super) socket: PathBuf,
}

impl InstancePaths {
    pub(super) fn of(plan: &InstancePlan) -> Self {
        Self {
            home: plan.dir.join("home"),
            ca_bundle: plan.dir.join("ca-bundle.pem"),
            log: plan.dir.join("guest.log"),
            socket: plan.runtime_dir.join("guest.sock"),
        }
    }
}

/// Refuses a spec that can never be started here.
pub(crate) fn check_spec(spec: &SandboxSpec, private: &[PathBuf]) -> Result<(), DriverError> {
    plain(&spec.home)?;
    plain(&spec.workdir)?;
    let mut targets = BTreeSet::from([spec.home.trim_end_matches('/').to_owned()]);
    for mount in user_mounts(spec) {
        plain(&mount.source)?;
        check_target(&mount.target)?;
        if let Some(folder) = private.iter().find(|folder| overlap(folder, &mount.source)) {
            let text = format!(
                "{} cannot be shown: {} is private",
                mount.source,
                folder.display()
            );
            return Err(DriverError::Invalid(text));
        }
        if !targets.insert(mount.target.clone()) {
            return Err(DriverError::Invalid(format!(
                "two mounts on {}",
                mount.target
            )));
        }
    }
    let images = spec.image_mounts.iter().map(|mount| &mount.target);
    for target in images.chain(&spec.writable_paths) {
        check_target(target)?;
        if !targets.insert(target.clone()) {
            return Err(DriverError::Invalid(format!("two mounts on {target}")));
        }
    }
    for folder in &spec.path_append {
        plain(folder)?;
        if folder.contains(':') {
            return Err(DriverError::Invalid(format!(
                "{folder:?} cannot be in PATH: it has a colon"
            )));
        }
    }
    if let Some(display) = &spec.display {
        plain(display)?;
    }
    for file in &spec.files {
        plain(&file.target)?;
        if OWN_TREES
            .iter()
            .any(|tree| Path::new(&file.target).starts_with(tree))
        {
            return Err(DriverError::Invalid(format!(
                "no file can be made at {}",
                file.target
            )));
        }
    }
    match spec
        .env
        .iter()
        .find(|(name, value)| !is_variable(name, value))
    {
        Some((name, _)) => Err(DriverError::Invalid(format!(
            "{name:?} is no environment variable"
        ))),
        None => Ok(()),
    }
}

/// The launcher's plan. `cgroups`: folders to join, made already.
pub(super) fn launch_plan(
    plan: &InstancePlan,
    paths: &InstancePaths,
    facts: &HostFacts,
    images: &Taken,
    cgroups: &[PathBuf],
) -> Result<LaunchPlan, DriverError> {
    let spec = &plan.spec;
    check_owner(&plan.owner)?;
    check_spec(spec, &facts.private)?;
    check_own_folders(plan)?;
    let hostname = plan.id.to_string();
    Ok(LaunchPlan {
        id: plan.id.to_string(),
        owner: plan.owner.clone(),
        hostname: hostname.clone(),
        uid: facts.uid,
        gid: facts.gid,
        user: USER.to_owned(),
        home: spec.home.clone(),
        home_source: text(&paths.home)?,
        system: if images.root.is_some() {
            Vec::new()
        } else {
            system()
        },
        layers: images
            .root
            .iter()
            .map(layers)
            .next()
            .transpose()?
            .unwrap_or_default(),
        overlays: overlays(spec, images)?,
        writable: spec.writable_paths.clone(),
        mounts: mounts(spec, paths)?,
        files: generated(plan, facts, images.root.as_ref(), &hostname),
        tmp_mib: 0,
        socket: text(&paths.socket)?,
        egress_dir: plan.egress_dir.as_deref().map(text).transpose()?,
        egress_port: EGRESS_PORT,
        transparent: spec.transparent,
        env: environment(plan, facts, images.root.as_ref()),
        workdir: spec.workdir.clone(),
        cgroups: cgroups
            .iter()
            .map(|folder| text(folder))
            .collect::<Result<_, _>>()?,
        open_files: facts.open_files,
        log: text(&paths.log)?,
    })
}

/// The owner becomes a folder name and an argument. The caller has checked it before anything was made.
pub(crate) fn check_owner(owner: &str) -> Result<(), DriverError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=64).contains(&owner.len()) && owner.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(DriverError::Invalid(format!(
            "{owner:?} is no owner: letters, digits, - and _ only"
        )))
    }
}

/// A mount must not show the instance's own folders as a whole (something prepared in them may be mounted).
pub(crate) fn check_own_folders(plan: &InstancePlan) -> Result<(), DriverError> {
    for mount in user_mounts(&plan.spec) {
        for own in [&plan.dir, &plan.runtime_dir] {
            if own.starts_with(&mount.source) {
                let text = format!(
                    "{} cannot be shown: Handler's own state is in it",
                    mount.source
                );
                return Err(DriverError::Invalid(text));
            }
        }
    }
    Ok(())
}

fn system() -> Vec<String> {
    let etc = SYSTEM_ETC.iter().map(|name| format!("/etc/{name}"));
    SYSTEM
        .iter()
        .map(|path| (*path).to_owned())
        .chain(etc)
        .collect()
}

fn layers(root: &ImageRoot) -> Result<Vec<String>, DriverError> {
    root.layers.iter().map(|layer| text(layer)).collect()
}

fn overlays(spec: &SandboxSpec, images: &Taken) -> Result<Vec<LaunchOverlay>, DriverError> {
    let pairs = spec.image_mounts.iter().zip(&images.mounts);
    let overlay = |(mount, root): (&ImageMount, &ImageRoot)| {
        Ok(LaunchOverlay {
            layers: layers(root)?,
            target: mount.target.clone(),
        })
    };
    pairs.map(overlay).collect()
}

/// The project folder at its own path, then the other mounts.
fn user_mounts(spec: &SandboxSpec) -> Vec<LaunchMount> {
    let scope = spec.scope.iter().map(|scope| LaunchMount {
        source: scope.clone(),
        target: scope.clone(),
        read_only: false,
    });
    let others = spec.mounts.iter().map(|mount| LaunchMount {
        source: mount.source.clone(),
        target: mount.target.clone(),
        read_only: mount.read_only,
    });
    scope.chain(others).collect()
}

fn mounts(spec: &SandboxSpec, paths: &InstancePaths) -> Result<Vec<LaunchMount>, DriverError> {
    let mut mounts = user_mounts(spec);
    let store = ca::java_store(&paths.ca_bundle);
    for (source, target) in [(&paths.ca_bundle, CA_BUNDLE), (&store, JAVA_TRUST_STORE)] {
        mounts.push(LaunchMount {
            source: text(source)?,
            target: target.to_owned(),
            read_only: true,
        });
    }
    // Connecting to a socket is no writing to the mount.
    mounts.extend(spec.display.iter().map(|socket| LaunchMount {
        source: socket.clone(),
        target: WAYLAND_SOCKET.to_owned(),
        read_only: true,
    }));
    mounts.sort_by_key(|mount| Path::new(&mount.target).components().count());
    Ok(mounts)
}

fn generated(
    plan: &InstancePlan,
    facts: &HostFacts,
    image: Option<&ImageRoot>,
    hostname: &str,
) -> Vec<LaunchFile> {
    let mut all = files::etc(&files::Identity {
        id: plan.id.as_str(),
        hostname,
        user: USER,
        uid: facts.uid,
        gid: facts.gid,
        home: &plan.spec.home,
        shell: &facts.shell,
        passwd: image.map_or("", |image| &image.passwd),
        group: image.map_or("", |image| &image.group),
    });
    all.extend(plan.spec.files.iter().map(|file| LaunchFile {
        target: file.target.clone(),
        content: file.content.clone(),
        mode: file.mode & 0o777,
        writable: file.writable,
    }));
    all
}

pub(crate) fn check_target(target: &str) -> Result<(), DriverError> {
    plain(target)?;
    let path = Path::new(target);
    let refused = OWN_FOLDERS.contains(&target)
        || OWN_TREES.iter().any(|tree| path.starts_with(tree))
        || target.ends_with('/');
    if refused {
        return Err(DriverError::Invalid(format!(
            "nothing can be mounted on {target}"
        )));
    }
    Ok(())
}

/// One holds the other, or they are the same.
fn overlap(folder: &Path, source: &str) -> bool {
    folder.starts_with(source) || Path::new(source).starts_with(folder)
}

pub(crate) fn plain(path: &str) -> Result<(), DriverError> {
    let components = Path::new(path).components();
    let is_plain = path.starts_with('/')
        && !path.contains('\0')
        && components
            .skip(1)
            .all(|part| matches!(part, Component::Normal(_)))
        && path.len() < 4096;
    if is_plain {
        Ok(())
    } else {
        Err(DriverError::Invalid(format!(
            "{path:?} is not a plain absolute path"
        )))
    }
}

pub(super) fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

pub(crate) fn text(path: &Path) -> Result<String, DriverError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| DriverError::Invalid(format!("{} is not a UTF-8 path", path.display())))
}

#[cfg(test)]
mod tests;
