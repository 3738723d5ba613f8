//! Where the host's cgroup hierarchies are and where in them this process is: pure, from two files of `/proc`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A resource that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::native) enum Controller {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
}

impl Controller {
    /// All of them.
    pub(in crate::native) const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    /// The kernel's name.
    pub(in crate::native) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

/// One hierarchy as seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::native) struct Hierarchy {
    /// Where it is mounted.
    pub(in crate::native) mount: PathBuf,
    /// Our own group in it (the mount itself when we are outside of what is mounted).
    pub(in crate::native) own: PathBuf,
}

/// All hierarchies that matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::native) struct Layout {
    /// The unified one (version 2), if mounted.
    pub(in crate::native) v2: Option<Hierarchy>,
    /// Those of version 1 by controller.
    pub(in crate::native) v1: BTreeMap<Controller, Hierarchy>,
    /// The freezer of version 1, if mounted.
    pub(in crate::native) freezer: Option<Hierarchy>,
}

/// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`.
pub(in crate::native) fn parse(mountinfo: &str, own: &str) -> Layout {
    let mut layout = Layout::default();
    for line in mountinfo.lines() {
        let Some(mount) = Mount::parse(line) else {
            continue;
        };
        match mount.kind {
            "cgroup2" if layout.v2.is_none() => {
                layout.v2 = Some(mount.hierarchy(own_path(own, None)));
            }
            "cgroup" => {
                if mount.has("freezer") && layout.freezer.is_none() {
                    layout.freezer = Some(mount.hierarchy(own_path(own, Some("freezer"))));
                }
                for controller in Controller::ALL {
                    if mount.has(controller.name()) {
                        let path = own_path(own, Some(controller.name()));
                        layout
                            .v1
                            .entry(controller)
                            .or_insert_with(|| mount.hierarchy(path));
                    }
                }
            }
            _ => {}
        }
    }
    layout
}

/// A line of mountinfo: `36 35 98:0 /root /mount opts … - type source superopts`.
struct Mount<'a> {
    root: PathBuf,
    place: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut fields = left.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        let mut fields = right.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        Some(Self {
            root: unescape(root),
            place: unescape(place),
            kind,
            options,
        })
    }

    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|one| one == option)
    }

    fn hierarchy(&self, own: Option<&str>) -> Hierarchy {
        let below = own.and_then(|own| Path::new(own).strip_prefix(&self.root).ok());
        let own = below.map_or_else(|| self.place.clone(), |below| join(&self.place, below));
        Hierarchy {
            mount: self.place.clone(),
            own,
        }
    }
}

fn join(place: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        place.to_owned()
    } else {
        place.join(below)
    }
}

/// Our group in the hierarchy of this controller; `None`: the unified one. Lines: `4:memory:/path`.
fn own_path<'a>(own: &'a str, controller: Option<&str>) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match controller {
            None => number == "0" && controllers.is_empty(),
            Some(name) => controllers.split(',').any(|one| one == name),
        };
        is_it.then_some(path)
    })
}

/// Spaces and backslashes are written as `\040`, `\134` there.
fn unescape(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part
            .get(..3)
            .and_then(|octal| u8::from_str_radix(octal, 8).ok())
        {
            Some(byte) if byte.is_ascii() => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn hybrid_hosts_have_both_kinds() {
        let own = "4:memory:/jobs/7\n1:cpu,cpuacct:/\n0::/user\n";
        let layout = parse(HYBRID, own);
        assert_eq!(
            layout.v1[&Controller::Memory].own,
            Path::new("/sys/fs/cgroup/memory/jobs/7")
        );
        assert_eq!(
            layout.v1[&Controller::Cpu].own,
            Path::new("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert!(!layout.v1.contains_key(&Controller::Pids));
        let v2 = layout.v2.expect("unified");
        assert_eq!(v2.own, Path::new("/sys/fs/cgroup/unified/user"));
    }

    #[test]
    fn inside_a_container_only_the_part_below_the_mounted_root_counts() {
        let mountinfo = "40 30 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let inside = parse(mountinfo, "0::/docker/abc/x\n").v2.expect("unified");
        assert_eq!(inside.own, Path::new("/sys/fs/cgroup/x"));
        let outside = parse(mountinfo, "0::/../other\n").v2.expect("unified");
        assert_eq!(outside.own, Path::new("/sys/fs/cgroup"));
    }

    #[test]
    fn odd_lines_are_passed_over() {
        assert_eq!(
            parse("nonsense\n - \n1 2 3 - cgroup2\n", "x\n::\n"),
            Layout::default()
        );
        assert_eq!(unescape("/a\\040b\\134c\\"), Path::new("/a b\\c\\"));
    }
}
