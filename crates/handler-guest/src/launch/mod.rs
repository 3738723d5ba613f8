//! The launcher of native sandboxes: from a [`LaunchPlan`] on standard input to a PID 1 that serves.
//!
//! It runs with the rights of the daemon's user, root or not, and with one thread. It trusts the plan
//! and nothing else: paths of the plan are opened without following links, and whatever an earlier
//! start of the sandbox left in its home is treated as hostile.

mod devices;
mod files;
pub(crate) mod lockdown;
mod mounts;
mod namespaces;
mod overlay;
mod probe;
mod proc;
mod root;
mod seccomp;
mod socket;
mod start;
pub(crate) mod step;
mod sys;
mod syscalls;
mod tree;
mod tun;

pub use step::StepError;

use handler_types::launch::{LaunchAnswer, LaunchPlan};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use step::StepExt;

/// Longest plan, in bytes.
const MAX_PLAN: u64 = 16 * 1024 * 1024;

/// What a launch gives to PID 1 of the finished sandbox.
#[derive(Debug)]
pub struct Launched {
    /// Where the guest is to listen.
    pub listener: UnixListener,
    /// The TUN device of transparent mode; none: it is off.
    pub device: Option<OwnedFd>,
}

/// `handler-guest launch`: reads the plan, launches, answers on standard output.
///
/// `serve` runs as PID 1 in the finished sandbox; what it returns is the exit code of PID 1. It may
/// start threads; until then the process must have only one.
pub fn run(serve: impl FnOnce(Launched, &LaunchPlan) -> i32) -> ExitCode {
    let answer = match read_plan() {
        Ok(plan) => start::start(&plan, |launched| serve(launched, &plan)),
        Err(error) => error.into_answer(),
    };
    reply(&answer)
}

/// What [`probe`] tries besides what every launch needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Besides {
    /// Nothing.
    Nothing,
    /// An overlay as the root.
    Images,
    /// The device of transparent mode.
    Transparent,
}

/// `handler-guest probe`: tries on this host what a launch needs and answers like one. Nothing is left running;
/// the process id answered is 0.
pub fn probe(besides: Besides) -> ExitCode {
    reply(&probe::probe(besides).unwrap_or_else(StepError::into_answer))
}

fn read_plan() -> Result<LaunchPlan, StepError> {
    // Before anything is opened: what the parent forgot to close must not reach the sandbox.
    sys::close_from(3).step(|| "close inherited files")?;
    let mut text = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_PLAN + 1)
        .read_to_end(&mut text)
        .step(|| "read the plan")?;
    if text.len() as u64 > MAX_PLAN {
        return Err(StepError::new("read the plan", "it is longer than 16 MiB"));
    }
    serde_json::from_slice(&text)
        .map_err(|error| StepError::new("read the plan", error.to_string()))
}

fn reply(answer: &LaunchAnswer) -> ExitCode {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    let sent = out.write_all(&line).and_then(|()| out.flush());
    match (answer, sent) {
        (LaunchAnswer::Ready { .. }, Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
