//! Where files and writable folders go: mounted from outside, or made in a folder that is mounted writable.
//!
//! | where | read-only file | writable file |
//! |---|---|---|
//! | the image's root | a copy kept aside, mounted on the place | the same, mounted writable |
//! | home, project, another writable mount | a copy kept aside, mounted on the place | written there, unless something is there |
//! | a writable path | as in the home: it is then a folder of ours, made anew at each start, instead of memory | |
//!
//! The folders around a place inside the home or a writable path are made beforehand, as the sandbox's user, so that
//! they stay writable.

use super::{Bind, GeneratedFile, Tmpfs};
use crate::native::plan::text;
use crate::oci::paths::{self, HostPaths};
use handler_engine::driver::{DriverError, InstancePlan};
use std::path::{Path, PathBuf};

/// Something made in a folder that is mounted writable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::oci) enum Seed {
    /// A folder of ours for a writable path, made anew.
    Folder { root: PathBuf },
    /// A folder for something to be mounted on, below `root`.
    FolderPlace { root: PathBuf, below: PathBuf },
    /// A file for something to be mounted on.
    FilePlace { root: PathBuf, below: PathBuf },
    /// A file that may be changed inside, written unless something is there.
    File {
        root: PathBuf,
        below: PathBuf,
        content: String,
        mode: u32,
    },
}

/// What [`place`] found.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) binds: Vec<Bind>,
    pub(super) tmpfs: Vec<Tmpfs>,
    pub(super) files: Vec<GeneratedFile>,
    pub(super) seeds: Vec<Seed>,
}

/// A folder inside that is mounted writable from a host folder.
#[derive(Debug)]
struct Region {
    target: PathBuf,
    root: PathBuf,
    /// Ours: places in it are made beforehand.
    own: bool,
}

/// Decides for everything of a plan.
pub(super) fn place(
    plan: &InstancePlan,
    paths: &HostPaths,
    files: Vec<GeneratedFile>,
) -> Result<Placed, DriverError> {
    let spec = &plan.spec;
    let mut placed = Placed::default();
    let mut regions = vec![Region {
        target: PathBuf::from(&spec.home),
        root: paths.home.clone(),
        own: true,
    }];
    bind(&mut placed, &paths.home, &spec.home, false)?;
    placed.tmpfs.push(tmpfs("/tmp", 0o1777));
    if spec.display.is_some() {
        placed.tmpfs.push(tmpfs(paths::RUNTIME_DIR, 0o700));
    }
    let inner: Vec<&str> = user_targets(plan)
        .chain(files.iter().map(|f| f.target.as_str()))
        .collect();
    for (number, path) in spec.writable_paths.iter().enumerate() {
        let has_inner = inner.iter().any(|target| is_below(target, path));
        if !has_inner {
            placed.tmpfs.push(tmpfs(path, 0o700));
            continue;
        }
        let root = paths.folders.join(number.to_string());
        placed.seeds.push(Seed::Folder { root: root.clone() });
        bind(&mut placed, &root, path, false)?;
        regions.push(Region {
            target: PathBuf::from(path),
            root,
            own: true,
        });
    }
    user_mounts(plan, &mut placed, &mut regions)?;
    for path in &spec.writable_paths {
        folder_place(&mut placed, &regions, path);
    }
    for mount in &spec.image_mounts {
        folder_place(&mut placed, &regions, &mount.target);
    }
    for file in files {
        place_file(&mut placed, &regions, paths, file)?;
    }
    Ok(placed)
}

/// The project folder and the other mounts.
fn user_mounts(
    plan: &InstancePlan,
    placed: &mut Placed,
    regions: &mut Vec<Region>,
) -> Result<(), DriverError> {
    let scope = plan.spec.scope.iter().map(|scope| (scope, scope, false));
    let others = plan
        .spec
        .mounts
        .iter()
        .map(|m| (&m.source, &m.target, m.read_only));
    let mut all: Vec<(&String, &String, bool)> = scope.chain(others).collect();
    all.sort_by_key(|(_, target, _)| target.split('/').count());
    for (source, target, read_only) in all {
        folder_place(placed, regions, target);
        bind(placed, source.as_ref(), target, read_only)?;
        if !read_only {
            regions.push(Region {
                target: PathBuf::from(target),
                root: PathBuf::from(source),
                own: false,
            });
        }
    }
    Ok(())
}

fn place_file(
    placed: &mut Placed,
    regions: &[Region],
    paths: &HostPaths,
    file: GeneratedFile,
) -> Result<(), DriverError> {
    let region = deepest(regions, &file.target);
    if let (Some((region, below)), true) = (&region, file.writable) {
        placed.seeds.push(Seed::File {
            root: region.root.clone(),
            below: below.clone(),
            content: file.content,
            mode: file.mode,
        });
        return Ok(());
    }
    if let Some((region, below)) = region.filter(|(region, _)| region.own) {
        placed.seeds.push(Seed::FilePlace {
            root: region.root.clone(),
            below,
        });
    }
    let source = paths.files.join(placed.files.len().to_string());
    bind(placed, &source, &file.target, !file.writable)?;
    placed.files.push(file);
    Ok(())
}

fn folder_place(placed: &mut Placed, regions: &[Region], target: &str) {
    if let Some((region, below)) = deepest(regions, target).filter(|(region, _)| region.own) {
        placed.seeds.push(Seed::FolderPlace {
            root: region.root.clone(),
            below,
        });
    }
}

/// The innermost region that holds a path, and the path below it.
fn deepest<'a>(regions: &'a [Region], target: &str) -> Option<(&'a Region, PathBuf)> {
    let target = Path::new(target);
    regions
        .iter()
        .filter_map(|region| Some((region, target.strip_prefix(&region.target).ok()?)))
        .filter(|(_, below)| !below.as_os_str().is_empty())
        .max_by_key(|(region, _)| region.target.components().count())
        .map(|(region, below)| (region, below.to_owned()))
}

fn user_targets(plan: &InstancePlan) -> impl Iterator<Item = &str> {
    let spec = &plan.spec;
    let mounts = spec.mounts.iter().map(|mount| mount.target.as_str());
    let images = spec.image_mounts.iter().map(|mount| mount.target.as_str());
    let writable = spec.writable_paths.iter().map(String::as_str);
    spec.scope
        .as_deref()
        .into_iter()
        .chain(mounts)
        .chain(images)
        .chain(writable)
}

fn is_below(target: &str, folder: &str) -> bool {
    target != folder && Path::new(target).starts_with(folder)
}

fn tmpfs(target: &str, mode: u32) -> Tmpfs {
    Tmpfs {
        target: target.to_owned(),
        mode,
    }
}

fn bind(
    placed: &mut Placed,
    source: &Path,
    target: &str,
    read_only: bool,
) -> Result<(), DriverError> {
    placed.binds.push(Bind {
        source: text(source)?,
        target: target.to_owned(),
        read_only,
    });
    Ok(())
}
