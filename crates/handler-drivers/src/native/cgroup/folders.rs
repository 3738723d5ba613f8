//! The folders themselves: which limits this host lets us set, making, removing and finding.

use super::layout::{self, Controller, Hierarchy, Layout};
use super::limits::{Limit, Setting};
use rustix::fs::Access;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a folder may stay busy after the last process has gone.
const BUSY: Duration = Duration::from_secs(5);
/// Most folders looked at when searching for what an earlier daemon left elsewhere.
const MOST_FOLDERS: usize = 4096;

/// Our part of the host's cgroups.
#[derive(Debug, Clone)]
pub(in crate::native) struct CgroupFolders {
    layout: Layout,
    is_root: bool,
}

/// What was made for one sandbox.
#[derive(Debug, Default)]
pub(in crate::native) struct Made {
    /// Folders to join.
    pub(in crate::native) folders: Vec<PathBuf>,
    /// Limits that could not be set, and why.
    pub(in crate::native) missing: Vec<(Limit, String)>,
}

impl CgroupFolders {
    /// Reads where this process is.
    pub(in crate::native) fn of_this_process() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let layout = layout::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        Self {
            layout,
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Why this resource cannot be limited here; `None`: it can.
    pub(in crate::native) fn obstacle(&self, controller: Controller) -> Option<String> {
        if let Some(hierarchy) = self.layout.v1.get(&controller) {
            return (!may_write(&hierarchy.own)).then(|| {
                format!(
                    "{} is not writable by this user (cgroup v1)",
                    hierarchy.own.display()
                )
            });
        }
        let Some(hierarchy) = &self.layout.v2 else {
            return Some("no cgroup hierarchy is mounted".to_owned());
        };
        let base = self.v2_base(hierarchy);
        if !words(&base.join("cgroup.controllers")).contains(controller.name()) {
            return Some(format!(
                "the {} controller is not given to {}",
                controller.name(),
                base.display()
            ));
        }
        (!may_write(base) || !may_write(&base.join("cgroup.procs")))
            .then(|| format!("{} is not delegated to this user", base.display()))
    }

    /// Makes the folders of a sandbox and sets the limits. What cannot be set is in `missing`.
    pub(in crate::native) fn make(&self, owner: &str, id: &str, limits: &[Limit]) -> Made {
        let mut made = Made::default();
        let (v1, v2): (Vec<&Limit>, Vec<&Limit>) = limits
            .iter()
            .partition(|limit| self.layout.v1.contains_key(&limit.controller));
        for limit in v1 {
            let folder = self.v1_folder(&self.layout.v1[&limit.controller], owner, id);
            let result = make_all(&folder).and_then(|()| write_all(&folder, &limit.v1()));
            made.note(limit, &folder, result);
        }
        for limit in v2 {
            match self.obstacle(limit.controller) {
                Some(why) => made.missing.push((*limit, why)),
                None => self.make_v2(owner, id, limit, &mut made),
            }
        }
        let freezer = self.make_freezer(owner, id);
        made.folders
            .extend(freezer.filter(|folder| !made.folders.contains(folder)));
        made
    }

    fn make_v2(&self, owner: &str, id: &str, limit: &Limit, made: &mut Made) {
        let Some(hierarchy) = &self.layout.v2 else {
            return;
        };
        let base = self.v2_base(hierarchy);
        let group = base.join(format!("handler.{owner}"));
        let folder = group.join(id);
        let result = enable(base, limit.controller)
            .and_then(|()| make_all(&group))
            .and_then(|()| enable(&group, limit.controller))
            .and_then(|()| make_all(&folder))
            .and_then(|()| write_all(&folder, &limit.v2()));
        made.note(limit, &folder, result);
    }

    /// Removes the folders of a sandbox, wherever they are, and those above when empty. `known`: those stored.
    pub(in crate::native) async fn remove(
        &self,
        owner: &str,
        id: &str,
        known: &[PathBuf],
    ) -> io::Result<()> {
        let mut folders: BTreeSet<PathBuf> = known.iter().cloned().collect();
        if known.is_empty() {
            folders.extend(
                self.owner_folders(owner)
                    .into_iter()
                    .map(|folder| folder.join(id)),
            );
        }
        for folder in folders {
            remove_one(&folder).await?;
            // `handler` and its owner below, of version 1, or `handler.<owner>`: kept while in use.
            for above in folder.ancestors().skip(1).take(2) {
                if is_ours(above, owner) && std::fs::remove_dir(above).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// All sandboxes of this owner that have folders.
    pub(in crate::native) fn sandboxes(&self, owner: &str) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for folder in self.owner_folders(owner) {
            ids.extend(subfolders(&folder).filter_map(|folder| {
                folder
                    .file_name()
                    .and_then(|name| name.to_str())
                    .map(str::to_owned)
            }));
        }
        ids
    }

    /// Folders of this owner: where we are now, and where an earlier daemon may have been.
    fn owner_folders(&self, owner: &str) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for hierarchy in self.layout.v1.values().chain(&self.layout.freezer) {
            let name = Path::new("handler").join(owner);
            found.extend(
                [hierarchy.own.join(&name)]
                    .into_iter()
                    .filter(|path| path.is_dir()),
            );
            find(&hierarchy.mount, &name, &mut found);
        }
        if let Some(hierarchy) = &self.layout.v2 {
            find(
                &hierarchy.mount,
                Path::new(&format!("handler.{owner}")),
                &mut found,
            );
        }
        found
    }

    /// Where the group is mounted, when this controller is in version 1.
    pub(super) fn v1_mount(&self, controller: Controller) -> Option<&Path> {
        let hierarchy = self.layout.v1.get(&controller)?;
        Some(&hierarchy.mount)
    }

    /// Our group in the hierarchy that freezes.
    pub(super) fn freezer_base(&self) -> Option<&Path> {
        if let Some(freezer) = &self.layout.freezer {
            return Some(&freezer.own);
        }
        self.layout.v2.as_ref().map(|v2| self.v2_base(v2))
    }

    /// A sandbox's folder in the hierarchy that freezes.
    pub(super) fn freezer_folder(&self, owner: &str, id: &str) -> Option<PathBuf> {
        if let Some(freezer) = &self.layout.freezer {
            return Some(self.v1_folder(freezer, owner, id));
        }
        let base = self.v2_base(self.layout.v2.as_ref()?);
        Some(base.join(format!("handler.{owner}")).join(id))
    }

    /// The folders of a sandbox: those stored, else those found.
    pub(in crate::native) fn all_of(
        &self,
        owner: &str,
        id: &str,
        known: &[PathBuf],
    ) -> Vec<PathBuf> {
        if !known.is_empty() {
            return known.to_vec();
        }
        let found = self.owner_folders(owner).into_iter();
        found
            .map(|folder| folder.join(id))
            .filter(|folder| folder.is_dir())
            .collect()
    }

    fn v1_folder(&self, hierarchy: &Hierarchy, owner: &str, id: &str) -> PathBuf {
        hierarchy.own.join("handler").join(owner).join(id)
    }

    fn v2_base<'h>(&self, hierarchy: &'h Hierarchy) -> &'h Path {
        if self.is_root {
            &hierarchy.mount
        } else {
            &hierarchy.own
        }
    }

    /// For each resource, whether it can be limited here.
    pub(in crate::native) fn obstacles(&self) -> BTreeMap<&'static str, Option<String>> {
        Controller::ALL
            .map(|one| (one.name(), self.obstacle(one)))
            .into()
    }
}

impl Made {
    fn note(&mut self, limit: &Limit, folder: &Path, result: io::Result<()>) {
        let folder = folder.to_owned();
        match result {
            Ok(()) if !self.folders.contains(&folder) => self.folders.push(folder),
            Ok(()) => {}
            Err(error) => {
                // Half a limit must not stay behind; a folder shared with another limit stays.
                if !self.folders.contains(&folder) {
                    let _ = std::fs::remove_dir(&folder);
                }
                self.missing.push((*limit, error.to_string()));
            }
        }
    }
}

/// Lets groups below `group` use the controller.
fn enable(group: &Path, controller: Controller) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    if words(&file).contains(controller.name()) {
        return Ok(());
    }
    let text = format!("+{}", controller.name());
    match write(&file, &text) {
        // A group with processes cannot have limited groups below: ours go one level down.
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            move_down(group)?;
            write(&file, &text)
        }
        result => result,
    }
}

/// Moves all processes of a group delegated to us into a group below it.
fn move_down(group: &Path) -> io::Result<()> {
    let below = group.join("handler-daemon");
    make_all(&below)?;
    let processes = std::fs::read_to_string(group.join("cgroup.procs"))?;
    for pid in processes.lines() {
        match write(&below.join("cgroup.procs"), pid) {
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Another sandbox's removal may take an empty parent away in between: then again.
pub(super) fn make_all(folder: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for _attempt in 0..5 {
        result = std::fs::create_dir_all(folder);
        match &result {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => break,
        }
    }
    result.map_err(|error| named(folder, &error))
}

fn write_all(folder: &Path, settings: &[Setting]) -> io::Result<()> {
    for setting in settings {
        match write(&folder.join(setting.file), &setting.text) {
            Err(_) if setting.optional => {}
            result => result?,
        }
    }
    Ok(())
}

pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    // Never made: a name that the kernel does not have is an error.
    let opened = std::fs::OpenOptions::new().write(true).open(file);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| named(file, &error))
}

pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

async fn remove_one(folder: &Path) -> io::Result<()> {
    let deadline = tokio::time::Instant::now() + BUSY;
    loop {
        match std::fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // Ended processes leave a group a little later than they end.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                if tokio::time::Instant::now() >= deadline {
                    return Err(named(folder, &error));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return Err(named(folder, &error)),
        }
    }
}

fn is_ours(folder: &Path, owner: &str) -> bool {
    let name = folder
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name == owner || name == "handler" || name == format!("handler.{owner}")
}

/// Folders below `top` whose path ends in `name`, breadth first, bounded.
fn find(top: &Path, name: &Path, found: &mut BTreeSet<PathBuf>) {
    let mut queue = std::collections::VecDeque::from([top.to_owned()]);
    let mut seen = 0;
    while let Some(folder) = queue.pop_front() {
        seen += 1;
        if seen > MOST_FOLDERS {
            return;
        }
        for below in subfolders(&folder) {
            if below.ends_with(name) {
                found.insert(below);
            } else {
                queue.push_back(below);
            }
        }
    }
}

fn subfolders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

fn words(file: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

pub(super) fn may_write(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchy(folder: &Path) -> Hierarchy {
        Hierarchy {
            mount: folder.to_owned(),
            own: folder.join("jobs/7"),
        }
    }

    fn v1(folder: &Path) -> CgroupFolders {
        std::fs::create_dir_all(folder.join("jobs/7")).expect("makes");
        let v1 = Controller::ALL.map(|one| (one, hierarchy(folder))).into();
        CgroupFolders {
            layout: Layout {
                v1,
                ..Layout::default()
            },
            is_root: false,
        }
    }

    #[tokio::test]
    async fn folders_left_by_a_daemon_in_another_group_are_found_and_removed() {
        let top = tempfile::tempdir().expect("temp");
        let cgroups = v1(top.path());
        for group in ["jobs/7", "jobs/6", "other"] {
            let folder = top.path().join(group).join("handler/o1/sb1");
            std::fs::create_dir_all(folder).expect("makes");
        }
        std::fs::create_dir_all(top.path().join("jobs/7/handler/o2/sb2")).expect("makes");
        assert_eq!(cgroups.sandboxes("o1"), BTreeSet::from(["sb1".to_owned()]));
        cgroups.remove("o1", "sb1", &[]).await.expect("removes");
        assert!(cgroups.sandboxes("o1").is_empty());
        assert!(!top.path().join("other/handler").exists());
        assert!(top.path().join("jobs/7/handler/o2/sb2").exists());
        cgroups
            .remove("o1", "sb1", &[])
            .await
            .expect("removing nothing is fine");
    }

    #[test]
    fn a_limit_whose_file_is_missing_is_told_and_leaves_no_folder() {
        let top = tempfile::tempdir().expect("temp");
        let cgroups = v1(top.path());
        let limit = Limit {
            controller: Controller::Pids,
            value: 9,
            asked: true,
        };
        let made = cgroups.make("o1", "sb1", &[limit]);
        assert!(made.folders.is_empty());
        assert!(made.missing[0].1.contains("pids.max"));
        assert!(!top.path().join("jobs/7/handler/o1/sb1").exists());
    }

    #[test]
    fn without_any_hierarchy_every_limit_has_an_obstacle() {
        let cgroups = CgroupFolders {
            layout: Layout::default(),
            is_root: true,
        };
        assert!(cgroups.obstacles().values().all(Option::is_some));
    }
}
