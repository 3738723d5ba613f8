//! A living sandbox's cgroups: other limits, and what it uses.

use super::folders::{CgroupFolders, write};
use super::layout::Controller;
use super::limits::{self, Limit, Setting};
use handler_types::sandbox::Resources;
use std::io;
use std::path::{Path, PathBuf};

/// Why other limits could not be set.
#[derive(Debug)]
pub(in crate::native) enum LimitError {
    /// They make no sense.
    Invalid(String),
    /// Not while it runs.
    NotNow(String),
    /// The kernel refused.
    Kernel(io::Error),
}

/// What the cgroups say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::native) struct Usage {
    pub(in crate::native) memory_bytes: Option<u64>,
    pub(in crate::native) cpu_ms: Option<u64>,
    pub(in crate::native) processes: Option<u32>,
}

fn read_number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl CgroupFolders {
    /// The folder, among those of a sandbox, of this controller.
    fn folder_of<'f>(&self, folders: &'f [PathBuf], controller: Controller) -> Option<&'f Path> {
        let (mount, file) = match self.v1_mount(controller) {
            Some(mount) => (Some(mount), ""),
            None => (None, v2_file(controller)),
        };
        let mut all = folders.iter().map(PathBuf::as_path);
        all.find(|folder| match mount {
            Some(mount) => folder.starts_with(mount),
            None => folder.join(file).exists(),
        })
    }

    /// Sets other limits. Every limit needs a folder that was joined at the start; that is checked before anything is set.
    pub(in crate::native) fn limit_again(
        &self,
        folders: &[PathBuf],
        resources: &Resources,
    ) -> Result<(), LimitError> {
        let wanted = limits::of(resources).map_err(LimitError::Invalid)?;
        let mut settings: Vec<(&Path, Vec<Setting>)> = Vec::new();
        for controller in Controller::ALL {
            let limit = wanted.iter().find(|limit| limit.controller == controller);
            let is_v1 = self.v1_mount(controller).is_some();
            match (limit, self.folder_of(folders, controller)) {
                (Some(limit), Some(folder)) => settings.push((folder, again(limit, is_v1))),
                (Some(limit), None) if limit.asked => {
                    let name = controller.name();
                    return Err(LimitError::NotNow(format!(
                        "it was started without a {name} limit, which cannot be added while it runs"
                    )));
                }
                (None, Some(folder)) => settings.push((folder, unlimited(controller, is_v1))),
                (_, None) => {}
            }
        }
        // Memory is the one that the kernel may refuse: first, so that a refusal changes nothing.
        settings.sort_by_key(|(_, all)| !all.iter().any(|one| one.file.starts_with("memory")));
        for (folder, all) in settings {
            for setting in all {
                match write(&folder.join(setting.file), &setting.text) {
                    Err(error) if !setting.optional => return Err(LimitError::Kernel(error)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What a sandbox with these folders uses.
    pub(in crate::native) fn usage(&self, folders: &[PathBuf]) -> Usage {
        let read = |controller, v1: &str, v2: &str| {
            let folder = self.folder_of(folders, controller)?;
            let file = if self.v1_mount(controller).is_some() {
                v1
            } else {
                v2
            };
            read_number(&folder.join(file))
        };
        let processes = read(Controller::Pids, "pids.current", "pids.current");
        Usage {
            memory_bytes: read(
                Controller::Memory,
                "memory.usage_in_bytes",
                "memory.current",
            ),
            cpu_ms: self.cpu_ms(folders),
            processes: processes.and_then(|number| u32::try_from(number).ok()),
        }
    }

    fn cpu_ms(&self, folders: &[PathBuf]) -> Option<u64> {
        if let Some(used) = folders
            .iter()
            .find_map(|folder| read_number(&folder.join("cpuacct.usage")))
        {
            return Some(used / 1_000_000);
        }
        folders.iter().find_map(|folder| {
            let text = std::fs::read_to_string(folder.join("cpu.stat")).ok()?;
            let used = text
                .lines()
                .find_map(|line| line.strip_prefix("usage_usec "))?;
            Some(used.trim().parse::<u64>().ok()? / 1000)
        })
    }
}

fn v2_file(controller: Controller) -> &'static str {
    match controller {
        Controller::Memory => "memory.max",
        Controller::Cpu => "cpu.max",
        Controller::Pids => "pids.max",
    }
}

/// What sets a limit anew. Version 1 keeps memory below memory and swap at every moment: raising begins with the latter.
fn again(limit: &Limit, is_v1: bool) -> Vec<Setting> {
    if !is_v1 {
        return limit.v2();
    }
    let mut all = limit.v1();
    if limit.controller == Controller::Memory {
        let both = all.iter().find(|one| one.optional).cloned();
        all.splice(0..0, both);
    }
    all
}

fn unlimited(controller: Controller, is_v1: bool) -> Vec<Setting> {
    let set = |file, text: &str| Setting {
        file,
        text: text.to_owned(),
        optional: false,
    };
    match (controller, is_v1) {
        (Controller::Memory, true) => vec![
            Setting {
                optional: true,
                ..set("memory.memsw.limit_in_bytes", "-1")
            },
            set("memory.limit_in_bytes", "-1"),
        ],
        (Controller::Cpu, true) => vec![set("cpu.cfs_quota_us", "-1")],
        (Controller::Pids, true) => vec![set("pids.max", "max")],
        (_, false) => vec![set(v2_file(controller), "max")],
    }
}
