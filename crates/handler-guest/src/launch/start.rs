//! The launch itself: parent and child, and who tells whom.
//!
//! ```text
//! launcher                                  PID 1
//!   socket, log, cgroups, namespaces
//!   fork ──────────────────────────────────▶ dies with the launcher until ready
//!   notes its start time, says go ─────────▶ mounts, root, loopback, lockdown, seccomp
//!   ◀──────────────── ready, or what failed
//!   answers, exits                           serves
//! ```
//!
//! Invariant: a launcher that ends before it answered, for whatever reason, leaves no PID 1.

use super::step::{StepError, StepExt};
use super::{Launched, lockdown, namespaces, root, seccomp, socket, sys, tun};
use handler_types::launch::{LaunchAnswer, LaunchPlan};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, WaitOptions};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

/// What the child says when all is done, and why it is not transparent behind it; anything else is a failure as JSON.
const READY: &[u8] = b"ready";
const MAX_REPORT: u64 = 64 * 1024;

/// The two pipes between launcher and PID 1.
struct Pipes {
    go: (File, File),
    report: (File, File),
}

/// Launches. In the launcher this returns the answer; in PID 1 it never returns.
pub(super) fn start(plan: &LaunchPlan, serve: impl FnOnce(Launched) -> i32) -> LaunchAnswer {
    let listener = match socket::listen(&plan.socket) {
        Ok(listener) => listener,
        Err(error) => return error.into_answer(),
    };
    let answer = prepare_and_fork(plan, listener, serve);
    if !matches!(answer, Ok(LaunchAnswer::Ready { .. })) {
        socket::forget(&plan.socket);
    }
    answer.unwrap_or_else(StepError::into_answer)
}

fn prepare_and_fork(
    plan: &LaunchPlan,
    listener: UnixListener,
    serve: impl FnOnce(Launched) -> i32,
) -> Result<LaunchAnswer, StepError> {
    let log = socket::open_log(&plan.log)?;
    socket::join_cgroups(&plan.cgroups)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    namespaces::enter(plan.uid, plan.gid)?;
    let pipes = Pipes {
        go: pipe()?,
        report: pipe()?,
    };
    match sys::fork().step(|| "start PID 1")? {
        Some(pid) => supervise(pid, pipes),
        None => become_init(plan, listener, log, pipes, serve),
    }
}

fn pipe() -> Result<(File, File), StepError> {
    let (read, write): (OwnedFd, OwnedFd) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step(|| "make a pipe")?;
    Ok((File::from(read), File::from(write)))
}

/// The launcher's side after the fork.
fn supervise(pid: Pid, pipes: Pipes) -> Result<LaunchAnswer, StepError> {
    let Pipes {
        go: (go_read, mut go),
        report: (report, report_write),
    } = pipes;
    drop((go_read, report_write));
    let ticks = start_ticks(pid);
    if ticks.is_ok() {
        // A child that is gone already shows by its empty report.
        let _ = go.write_all(b"g");
    }
    drop(go);
    let mut said = Vec::new();
    let read = report.take(MAX_REPORT).read_to_end(&mut said);
    if let (Ok(_), Ok(ticks), Some(rest)) = (&read, &ticks, said.strip_prefix(READY)) {
        return Ok(ready(pid, *ticks, rest));
    }
    let _ = rustix::process::kill_process(pid, Signal::KILL);
    let ended = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    ticks?;
    if let Ok(failed @ LaunchAnswer::Failed { .. }) = serde_json::from_slice(&said) {
        return Ok(failed);
    }
    let how = ended
        .ok()
        .flatten()
        .map_or_else(String::new, |(_, status)| format!(": {status:?}"));
    Err(StepError::new(
        "PID 1",
        format!("it ended before it was ready{how}; see the log"),
    ))
}

/// The answer to `READY` and what was said behind it: the device's state in one byte, then the obstacle.
fn ready(pid: Pid, start_ticks: u64, rest: &[u8]) -> LaunchAnswer {
    let (transparent, obstacle) = match rest.split_first() {
        Some((b'+', _)) => (true, None),
        Some((_, text)) if !text.is_empty() => {
            (false, Some(String::from_utf8_lossy(text).into_owned()))
        }
        _ => (false, None),
    };
    LaunchAnswer::Ready {
        pid: pid.as_raw_nonzero().get(),
        start_ticks,
        transparent,
        obstacle,
    }
}

/// PID 1's side: everything until it serves, then serving. Ends the process.
fn become_init(
    plan: &LaunchPlan,
    listener: UnixListener,
    log: File,
    pipes: Pipes,
    serve: impl FnOnce(Launched) -> i32,
) -> ! {
    let Pipes {
        go: (mut go, go_write),
        report: (report_read, mut report),
    } = pipes;
    drop((go_write, report_read));
    let (device, obstacle) = match enter_sandbox(plan, &mut go, log) {
        Ok(entered) => entered,
        Err(error) => {
            let text = serde_json::to_vec(&error.into_answer()).unwrap_or_default();
            let _ = report.write_all(&text);
            sys::exit_now(1);
        }
    };
    drop(go);
    let state = if device.is_some() { b"+" } else { b"-" };
    let obstacle = obstacle.unwrap_or_default();
    let said = [READY, state, obstacle.as_bytes()].concat();
    let told = rustix::process::set_parent_process_death_signal(None).is_ok()
        && report.write_all(&said).is_ok();
    drop(report);
    let code = if told {
        serve(Launched { listener, device })
    } else {
        1
    };
    sys::exit_now(code)
}

/// Makes the sandbox around this process. Gives the device of transparent mode, or why it is wanted but not there.
fn enter_sandbox(
    plan: &LaunchPlan,
    go: &mut File,
    log: File,
) -> Result<(Option<OwnedFd>, Option<String>), StepError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .step(|| "die with the launcher")?;
    // The launcher may have died between the fork and the line above: then this reads nothing.
    go.read_exact(&mut [0]).step(|| "wait for the launcher")?;
    rustix::process::setsid().step(|| "own session")?;
    redirect_stdio(log)?;
    namespaces::enter_mounts()?;
    // While the host's device node can still be opened and this process may still change the network.
    let (device, obstacle) = tun::of_plan(plan)?;
    match device {
        Some(_) => root::build(&tun::with_name_server(plan))?,
        None => root::build(plan)?,
    }
    namespaces::furnish(&plan.hostname)?;
    // A missing working folder is the first command's error, not the sandbox's.
    let _ = rustix::process::chdir(plan.workdir.as_str());
    let filter = seccomp::filter()?;
    lockdown::apply(plan.open_files)?;
    seccomp::install(&filter)?;
    Ok((device, obstacle))
}

fn redirect_stdio(log: File) -> Result<(), StepError> {
    let step = || "standard streams";
    let null = File::open("/dev/null").step(step)?;
    rustix::stdio::dup2_stdin(&null).step(step)?;
    rustix::stdio::dup2_stdout(&log).step(step)?;
    rustix::stdio::dup2_stderr(&log).step(step)
}

/// Field 22 of `/proc/<pid>/stat`: with the pid, the identity of a process.
fn start_ticks(pid: Pid) -> Result<u64, StepError> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(&path).step(|| format!("read {path}"))?;
    parse_start_ticks(&text).ok_or_else(|| StepError::new(format!("read {path}"), "odd content"))
}

/// The name (field 2) may hold spaces and brackets, so fields are counted from its last bracket.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_ticks_are_found_after_a_name_with_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        assert_eq!(parse_start_ticks(stat), Some(98765));
        assert_eq!(parse_start_ticks("7 (a"), None);
    }
}
