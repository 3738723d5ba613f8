//! Which agent programs run, told from a table of processes, and which programs to look for on the `PATH`.
//!
//! A process is an agent by its own name or by the script its interpreter was given, never because a name appears
//! somewhere in its arguments: `grep claude`, an editor on `codex.md` or the look-up itself are none.

use crate::catalogue;
use crate::rules::Harness;
use handler_types::observe::{AgentFace, RunningAgent};
use std::collections::BTreeMap;

/// Most parents followed from a process upwards.
const MOST_PARENTS: usize = 64;
/// Options of interpreters that take the next argument as their value.
const WITH_VALUE: &[&str] = &[
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
    "-C",
    "--conditions",
    "--env-file",
    "-W",
    "-X",
    "--title",
    "--cwd",
];
/// Options after which there is no script.
const WITHOUT_SCRIPT: &[&str] = &[
    "-e", "--eval", "-p", "--print", "-c", "-m", "-", "--run", "--test",
];

/// What is known of a process.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// Its id.
    pub pid: i32,
    /// Its parent's.
    pub ppid: i32,
    /// What the kernel calls it (at most 15 bytes).
    pub comm: &'a str,
    /// Program and arguments.
    pub argv: &'a [String],
}

/// A harness as far as programs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub harness: &'static str,
    /// Its product's name.
    pub product: &'static str,
    /// Programs that are its installation; the first found on the `PATH` counts.
    pub programs: &'static [String],
}

/// The harnesses known, sorted by name.
pub fn catalogue() -> impl Iterator<Item = Known> {
    catalogue::harnesses().iter().map(|harness| Known {
        harness: &harness.harness,
        product: &harness.product,
        programs: &harness.programs.path,
    })
}

/// The harness a process is a program of, helpers included.
#[must_use]
pub fn harness_of(process: &Process<'_>) -> Option<&'static str> {
    let (harness, _) = recognise(process)?;
    Some(&harness.harness)
}

/// The agents that run: of each tree of processes of one harness only the topmost. Helpers alone are none.
#[must_use]
pub fn running(processes: &[Process<'_>]) -> BTreeMap<&'static str, Vec<RunningAgent>> {
    let all: BTreeMap<i32, &Process<'_>> = processes.iter().map(|p| (p.pid, p)).collect();
    let found: BTreeMap<i32, (&'static Harness, Match)> = processes
        .iter()
        .filter_map(|process| Some((process.pid, recognise(process)?)))
        .collect();
    let mut running: BTreeMap<&'static str, Vec<RunningAgent>> = BTreeMap::new();
    for (pid, (harness, how)) in &found {
        let is_same = |pid: &i32| {
            found
                .get(pid)
                .is_some_and(|(other, _)| other.harness == harness.harness)
        };
        if how.is_helper || parents(&all, *pid).any(|parent| is_same(&parent)) {
            continue;
        }
        running
            .entry(&harness.harness)
            .or_default()
            .push(RunningAgent {
                pid: *pid,
                face: how.face,
            });
    }
    running
}

/// A process's parents, nearest first; circles made by ids used again end.
fn parents<'p>(
    all: &'p BTreeMap<i32, &Process<'_>>,
    pid: i32,
) -> impl Iterator<Item = i32> + use<'p> {
    let parent_of = |pid: &i32| all.get(pid).map(|p| p.ppid).filter(|parent| *parent > 0);
    let mut next = parent_of(&pid);
    std::iter::from_fn(move || {
        let now = next?;
        next = all.get(&now).map(|p| p.ppid).filter(|parent| *parent > 0);
        Some(now)
    })
    .take(MOST_PARENTS)
}

/// How a process was recognised.
#[derive(Debug, Clone, Copy)]
struct Match {
    face: AgentFace,
    is_helper: bool,
}

fn recognise(process: &Process<'_>) -> Option<(&'static Harness, Match)> {
    let comm = process.comm.trim();
    let program = process.argv.first().map_or("", |arg| base(arg.trim()));
    let script = is_interpreter(program, comm)
        .then(|| script(process.argv))
        .flatten();
    catalogue::harnesses().iter().find_map(|harness| {
        let programs = &harness.programs;
        let (name, rest) = match script {
            Some((at, path)) => {
                let name = programs
                    .scripts
                    .iter()
                    .find(|known| ends_with(path, known))?;
                (name, &process.argv[at + 1..])
            }
            None => {
                let is_named = |known: &&String| program == *known || is_comm(comm, known);
                let name = programs.names.iter().find(is_named)?;
                // A title written over the arguments leaves none.
                (name, process.argv.get(1..).unwrap_or_default())
            }
        };
        let speaks = programs.acp.contains(name)
            || rest
                .iter()
                .take(4)
                .any(|arg| programs.acp_args.contains(arg));
        let is_helper = programs.helper_names.contains(name)
            || rest
                .first()
                .is_some_and(|arg| programs.helper_args.contains(arg));
        let face = if speaks {
            AgentFace::Acp
        } else {
            AgentFace::Terminal
        };
        Some((harness, Match { face, is_helper }))
    })
}

/// Whether the kernel's name for a process, which is cut, is this one. An interpreter's own is none.
fn is_comm(comm: &str, known: &str) -> bool {
    let cut = known.get(..15).unwrap_or(known);
    comm == cut
}

fn is_interpreter(program: &str, comm: &str) -> bool {
    let is = |name: &str| {
        matches!(
            name,
            "node" | "nodejs" | "bun" | "deno" | "python" | "pypy3"
        ) || name
            .strip_prefix("python3")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    };
    is(program) || (program.is_empty() && is(comm))
}

/// The script an interpreter was given, and which argument it is.
fn script(argv: &[String]) -> Option<(usize, &str)> {
    let mut at = 1;
    while let Some(arg) = argv.get(at) {
        if WITHOUT_SCRIPT.contains(&arg.as_str()) {
            return None;
        }
        if !arg.starts_with('-') {
            return Some((at, arg));
        }
        at += 1 + usize::from(WITH_VALUE.contains(&arg.as_str()));
    }
    None
}

/// Whether a path is a known script: its file's name, or whole last parts of it.
fn ends_with(path: &str, known: &str) -> bool {
    let path = [".js", ".mjs", ".cjs", ".ts", ".py"]
        .iter()
        .find_map(|end| path.strip_suffix(end))
        .unwrap_or(path);
    path.strip_suffix(known)
        .is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
