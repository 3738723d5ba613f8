//! Host folders that are mounted: no symbolic link on their way, and what is seen inside is what was meant.
//!
//! Engines take paths and follow links. A sandbox may write to its project folder, so that a folder in it that is
//! mounted as well could have become a link to anywhere since the last start. It is opened without following links
//! before the engine mounts it, and compared with what PID 1 sees at its place before anything but the guest runs.

use crate::native::process::ProcessId;
use handler_engine::driver::DriverError;
use handler_types::sandbox::SandboxSpec;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A mount's source, held open.
#[derive(Debug)]
pub(super) struct Source {
    target: String,
    file: OwnedFd,
}

/// Opens the sources of everything of the host that a sandbox is shown; none may be a link, or lie behind one.
pub(super) fn open(spec: &SandboxSpec) -> Result<Vec<Source>, DriverError> {
    let scope = spec.scope.iter().map(|scope| (scope, scope));
    let mounts = spec
        .mounts
        .iter()
        .map(|mount| (&mount.source, &mount.target));
    scope
        .chain(mounts)
        .map(|(source, target)| open_one(source, target))
        .collect()
}

fn open_one(source: &str, target: &str) -> Result<Source, DriverError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat2(CWD, source, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let why = match opened {
        Ok(file) => {
            return Ok(Source {
                target: target.to_owned(),
                file,
            });
        }
        Err(Errno::LOOP) => "a symbolic link is on its way".to_owned(),
        Err(Errno::NOENT | Errno::NOTDIR) => "it does not exist".to_owned(),
        Err(error) => std::io::Error::from(error).to_string(),
    };
    Err(DriverError::Invalid(format!("mount {source}: {why}")))
}

/// Compares with what PID 1 sees. What cannot be looked at (another kernel, no rights) was checked when it was opened.
pub(super) fn compare(sources: &[Source], process: ProcessId) -> Result<(), DriverError> {
    let root = Path::new("/proc")
        .join(process.pid.to_string())
        .join("root");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::open(&root, flags, Mode::empty()) else {
        return Ok(());
    };
    for source in sources {
        let inside = openat2(
            &root,
            source.target.as_str(),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        );
        let Ok(inside) = inside else { continue };
        let (Ok(meant), Ok(seen)) = (fstat(&source.file), fstat(&inside)) else {
            continue;
        };
        if (meant.st_dev, meant.st_ino) != (seen.st_dev, seen.st_ino) {
            return Err(DriverError::Invalid(format!(
                "what was mounted on {} was exchanged while the sandbox started",
                source.target
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &Path) -> SandboxSpec {
        SandboxSpec {
            scope: Some(source.to_str().expect("utf-8").to_owned()),
            ..SandboxSpec::default()
        }
    }

    #[test]
    fn links_on_the_way_are_refused_and_an_exchanged_folder_is_seen() {
        let temp = tempfile::tempdir().expect("temp");
        let top = temp.path().canonicalize().expect("path");
        let real = top.join("real");
        std::fs::create_dir_all(real.join("below")).expect("makes");
        std::os::unix::fs::symlink(&real, top.join("link")).expect("links");
        for wrong in [top.join("link"), top.join("link/below"), top.join("none")] {
            let refused = open(&shown(&wrong)).expect_err("refused");
            assert!(matches!(refused, DriverError::Invalid(_)), "{refused:?}");
        }
        let held = open(&shown(&real)).expect("opens");
        let own = ProcessId {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            start_ticks: 0,
        };
        compare(&held, own).expect("the same");
        std::fs::rename(&real, top.join("moved")).expect("moves");
        std::fs::create_dir(&real).expect("makes another");
        compare(&held, own).expect_err("exchanged");
    }
}
