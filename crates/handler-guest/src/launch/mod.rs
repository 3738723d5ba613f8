//! The launcher of native sandboxes: from a [`LaunchPlan`] on standard input to a PID 1 that serves.
//!
//! It runs with the rights of the daemon's user, root or not, and with one thread. It trusts the plan
//! and nothing else: paths of the plan are opened without following links, and whatever an earlier
//! start of the sandbox left in its home is treated as hostile.

mod devices;
mod files;
mod lockdown;
mod mounts;
mod namespaces;
mod overlay;
mod probe;
mod proc;
mod root;
mod seccomp;
mod socket;
mod start;
mod step;
mod sys;
mod syscalls;
mod tree;

pub use step::StepError;

use handler_types::launch::{LaunchAnswer, LaunchPlan};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use step::StepExt;

/// Longest plan, in bytes.
const MAX_PLAN: u64 = 16 * 1024 * 1024;

/// `handler-guest launch`: reads the plan, launches, answers on standard output.
///
/// `serve` runs as PID 1 in the finished sandbox; what it returns is the exit code of PID 1. It may
/// start threads; until then the process must have only one.
pub fn run(serve: impl FnOnce(UnixListener, &LaunchPlan) -> i32) -> ExitCode {
    let answer = match read_plan() {
        Ok(plan) => start::start(&plan, |listener| serve(listener, &plan)),
        Err(error) => error.into_answer(),
    };
    reply(&answer)
}

/// `handler-guest probe`: tries on this host what a launch needs (with `images`, what image roots need besides),
/// and answers like one. Nothing is left running; the process id answered is 0.
pub fn probe(images: bool) -> ExitCode {
    reply(&probe::probe(images).unwrap_or_else(StepError::into_answer))
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
