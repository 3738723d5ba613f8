//! Runs the command of a secret reference and takes its output, within bounds of time and length.
//!
//! Invariant: when the call ends, for whatever reason, nothing of the command's process group runs on.

use super::MAX_VALUE;
use super::resolve::ResolveError;
use rustix::process::{Pid, Signal, kill_process_group};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout};
use zeroize::Zeroizing;

/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `argv` without a shell and gives its standard output.
pub(super) async fn run(argv: &[String]) -> Result<Zeroizing<Vec<u8>>, ResolveError> {
    run_within(argv, TIMEOUT).await
}

pub(super) async fn run_within(
    argv: &[String],
    timeout: Duration,
) -> Result<Zeroizing<Vec<u8>>, ResolveError> {
    let (program, arguments) = argv.split_first().ok_or(ResolveError::EmptyCommand)?;
    let spawned = handler_base::proc::command(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = spawned.map_err(|source| ResolveError::CommandNotRun {
        program: program.clone(),
        source,
    })?;
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let finished = tokio::time::timeout(timeout, output(&mut child)).await;
    let result = match finished {
        Ok(result) => result,
        Err(_) => Err(Failure::Timeout),
    };
    if !matches!(result, Err(Failure::Timeout | Failure::TooLong)) {
        // The leader was reaped: its id may already be another's.
        group.0 = None;
    }
    drop(group);
    result.map_err(|failure| failure.named(program, timeout))
}

enum Failure {
    Timeout,
    TooLong,
    Code(Option<i32>),
    Io(std::io::Error),
}

impl Failure {
    fn named(self, program: &str, timeout: Duration) -> ResolveError {
        let program = program.to_owned();
        match self {
            Self::Timeout => ResolveError::CommandTimeout {
                program,
                secs: timeout.as_secs(),
            },
            Self::TooLong => ResolveError::CommandTooLong { program },
            Self::Code(code) => ResolveError::CommandFailed {
                program,
                how: code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}")),
            },
            Self::Io(source) => ResolveError::CommandNotRun { program, source },
        }
    }
}

/// Output until its end, then the exit.
async fn output(child: &mut Child) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let stdout = child.stdout.take();
    let bytes = match stdout {
        Some(stdout) => read(stdout).await?,
        None => Zeroizing::new(Vec::new()),
    };
    let status = child.wait().await.map_err(Failure::Io)?;
    if status.success() {
        Ok(bytes)
    } else {
        Err(Failure::Code(status.code()))
    }
}

async fn read(mut stdout: ChildStdout) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // Full size from the start: a buffer that grows would leave copies behind. One byte more than
    // allowed, to notice what is too long; two for an end of line that is not part of the value.
    let mut buffer = Zeroizing::new(vec![0; MAX_VALUE + 3]);
    let mut filled = 0;
    loop {
        let read = stdout
            .read(&mut buffer[filled..])
            .await
            .map_err(Failure::Io)?;
        if read == 0 {
            buffer.truncate(filled);
            return Ok(buffer);
        }
        filled += read;
        if filled == buffer.len() {
            return Err(Failure::TooLong);
        }
    }
}

/// Kills the process group when dropped, also when the caller stops waiting.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}
