//! A rehearsal: the steps of a launch that depend on the host, tried for real in a process that ends at once.

use super::step::{StepError, StepExt};
use super::{Besides, lockdown, mounts, namespaces, seccomp, sys};
use handler_types::launch::LaunchAnswer;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::MountAttrFlags;
use rustix::process::WaitOptions;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

/// Tries namespaces, `/proc`, a copied tree, lockdown and seccomp.
pub(super) fn probe(besides: Besides) -> Result<LaunchAnswer, StepError> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    namespaces::enter(uid, gid)?;
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step(|| "make a pipe")?;
    match sys::fork().step(|| "start PID 1")? {
        None => {
            drop(read);
            if let Err(error) = rehearse(besides) {
                let text = serde_json::to_vec(&error.into_answer()).unwrap_or_default();
                let _ = File::from(write).write_all(&text);
                sys::exit_now(1);
            }
            sys::exit_now(0)
        }
        Some(pid) => {
            drop(write);
            let mut said = Vec::new();
            File::from(read)
                .take(64 * 1024)
                .read_to_end(&mut said)
                .step(|| "hear PID 1")?;
            let ended = rustix::process::waitpid(Some(pid), WaitOptions::empty())
                .step(|| "wait for PID 1")?;
            match (serde_json::from_slice(&said), ended) {
                (Ok(failed), _) => Ok(failed),
                (_, Some((_, status))) if status.exit_status() == Some(0) => {
                    Ok(LaunchAnswer::Ready {
                        pid: 0,
                        start_ticks: 0,
                        transparent: besides == Besides::Transparent,
                        obstacle: None,
                    })
                }
                (_, status) => Err(StepError::new("PID 1", format!("it ended: {status:?}"))),
            }
        }
    }
}

fn rehearse(besides: Besides) -> Result<(), StepError> {
    namespaces::enter_mounts()?;
    if besides == Besides::Transparent {
        crate::device::make()?;
    }
    namespaces::furnish("probe")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = mounts::fresh("tmpfs", &[("mode", "0755")], attributes)?;
    let place = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the host's root")?;
    mounts::attach(root.as_fd(), place.as_fd(), "the new root")?;
    let tree = super::tree::Tree::new(root);
    if besides == Besides::Images {
        super::overlay::rehearse(&tree)?;
    }
    super::proc::mount(&tree, rustix::process::geteuid().as_raw())?;
    super::devices::mount(&tree)?;
    let filter = seccomp::filter()?;
    lockdown::apply(64)?;
    seccomp::install(&filter)
}
