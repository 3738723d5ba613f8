//! Rules of commands: what a request becomes for the guest, and how a buffered answer is gathered.

use crate::app::sandboxes::guest_error;
use crate::http::problem::{ApiError, ApiResult};
use bytes::Bytes;
use handler_engine::guest::{GuestHandle, StreamItem};
use handler_types::ProblemCode;
use handler_types::api::{ExecRequest, ExecResult, ProcessView};
use handler_types::guest::{Exit, ProcessInfo, ProcessSpec, Stream};
use std::time::Instant;

/// Bytes of each stream in a buffered answer, unless asked otherwise.
const DEFAULT_OUTPUT: u64 = 8 * 1024 * 1024;
/// Most that can be asked for.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;

/// A process as shown.
#[must_use]
pub fn view(info: &ProcessInfo) -> ProcessView {
    ProcessView {
        process: info.process,
        pid: info.pid,
        argv: info.argv.clone(),
        tag: info.tag.clone(),
        tty: info.tty,
        exit: info.exit,
        started_ms: info.started_ms,
        output_bytes: info.produced,
    }
}

fn spec(request: ExecRequest) -> ApiResult<ProcessSpec> {
    let names_program = request.argv.first().is_some_and(|first| !first.is_empty());
    let has_line = request.shell.as_ref().is_some_and(|line| !line.is_empty());
    if names_program == has_line || (has_line && !request.argv.is_empty()) {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "give argv (at least the program) or shell (a command line), one of them",
        ));
    }
    let has_nul = |text: &String| text.contains('\0');
    let single = [&request.shell, &request.user, &request.cwd];
    if request.argv.iter().any(has_nul)
        || single.into_iter().flatten().any(has_nul)
        || request
            .env
            .iter()
            .any(|(k, v)| has_nul(k) || has_nul(v) || k.is_empty() || k.contains('='))
    {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "argv, shell, user, cwd and env cannot hold NUL; names no `=`",
        ));
    }
    Ok(ProcessSpec {
        key: handler_base::random::hex(12),
        argv: request.argv,
        env: request.env,
        cwd: request.cwd,
        stdin: request.open_stdin || request.stdin.is_some(),
        tty: None,
        timeout_ms: request.timeout_ms,
        tag: request.tag,
        shell: request.shell,
        user: request.user,
    })
}

/// Runs a command to its end.
///
/// # Errors
/// What the guest refuses (no such program, no such folder), or a lost sandbox.
pub async fn buffered(guest: &GuestHandle, mut request: ExecRequest) -> ApiResult<ExecResult> {
    let limit = request.max_output.unwrap_or(DEFAULT_OUTPUT).min(MAX_OUTPUT);
    let input = request.stdin.take();
    request.open_stdin = input.is_some();
    let began = Instant::now();
    let info = guest.start(spec(request)?).await.map_err(guest_error)?;
    let feed = async {
        if let Some(input) = input {
            let bytes = Bytes::from(input);
            // A command may end without reading its input: that is its right.
            if guest.write_stdin(info.process, 0, bytes).await.is_ok() {
                guest.close_stdin(info.process).await.ok();
            }
        }
        std::future::pending::<()>().await;
    };
    let gathered = tokio::select! {
        () = feed => unreachable!("feeding never ends by itself"),
        gathered = gather(guest, info.process, limit) => gathered,
    };
    let mut result = gathered?;
    result.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    // The answer does not wait for the guest to forget it.
    let (guest, process) = (guest.clone(), info.process);
    handler_base::tasks::spawn_named("forget", async move {
        guest.forget(process).await.ok();
    });
    Ok(result)
}

/// Reads all output; beyond `limit` a stream is counted and left out.
async fn gather(guest: &GuestHandle, process: u32, limit: u64) -> ApiResult<ExecResult> {
    let mut stream = guest.attach(process, 0).await.map_err(guest_error)?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut total = 0_u64;
    let mut is_cut = false;
    let mut ended: Option<Exit> = stream.info().exit;
    let exit = loop {
        match stream.next().await {
            StreamItem::Chunk {
                offset,
                stream: which,
                bytes,
            } => {
                let end = offset + bytes.len() as u64;
                total = end;
                let target = if which == Stream::Stderr {
                    &mut stderr
                } else {
                    &mut stdout
                };
                let room = usize::try_from(limit)
                    .unwrap_or(usize::MAX)
                    .saturating_sub(target.len());
                target.extend_from_slice(&bytes[..bytes.len().min(room)]);
                is_cut |= bytes.len() > room;
                stream.ack(end);
            }
            StreamItem::Exited(how) => ended = Some(how),
            StreamItem::End { .. } => match ended {
                Some(exit) => break exit,
                // Its output ended but its end was told before we attached: the guest knows it.
                None => {
                    break guest
                        .process(process)
                        .await
                        .ok()
                        .and_then(|p| p.exit)
                        .ok_or_else(|| {
                            ApiError::new(
                                ProblemCode::BackendFailed,
                                "the command's end is unknown",
                            )
                        })?;
                }
            },
            StreamItem::Lost(reason) => {
                return Err(ApiError::new(
                    ProblemCode::BackendFailed,
                    format!("the sandbox was lost while the command ran: {reason}"),
                ));
            }
        }
    };
    Ok(ExecResult {
        exit,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        truncated: is_cut,
        output_bytes: total,
        duration_ms: 0,
    })
}

/// Starts a command whose input, if any, is given by the time it is asked for: the rest is written while it runs.
///
/// # Errors
/// As [`buffered`].
pub async fn start_fed(guest: &GuestHandle, mut request: ExecRequest) -> ApiResult<ProcessView> {
    let input = request.stdin.take();
    request.open_stdin = input.is_some();
    let info = guest.start(spec(request)?).await.map_err(guest_error)?;
    if let Some(input) = input {
        let (guest, process) = (guest.clone(), info.process);
        handler_base::tasks::spawn_named("input of a command", async move {
            // A command may end without reading its input: that is its right.
            let bytes = Bytes::from(input);
            if guest.write_stdin(process, 0, bytes).await.is_ok() {
                guest.close_stdin(process).await.ok();
            }
        });
    }
    Ok(view(&info))
}

/// Starts a process that is kept.
///
/// # Errors
/// As [`buffered`].
pub async fn start(guest: &GuestHandle, mut request: ExecRequest) -> ApiResult<ProcessView> {
    let input = request.stdin.take();
    request.open_stdin |= input.is_some();
    let keeps_open = request.open_stdin && input.is_none();
    let info = guest.start(spec(request)?).await.map_err(guest_error)?;
    if let Some(input) = input {
        write_stdin(
            guest,
            info.process,
            Some(0),
            Bytes::from(input),
            !keeps_open,
        )
        .await?;
    }
    Ok(view(&info))
}

/// All processes the guest knows.
///
/// # Errors
/// A lost sandbox.
pub async fn list(guest: &GuestHandle) -> ApiResult<Vec<ProcessView>> {
    let all = guest.processes().await.map_err(guest_error)?;
    Ok(all.iter().map(view).collect())
}

/// One process.
///
/// # Errors
/// 404 for an unknown number.
pub async fn find(guest: &GuestHandle, process: u32) -> ApiResult<ProcessInfo> {
    let all = guest.processes().await.map_err(guest_error)?;
    all.into_iter()
        .find(|info| info.process == process)
        .ok_or_else(|| ApiError::new(ProblemCode::NotFound, format!("no process {process} here")))
}

/// Writes to a process's input.
///
/// # Errors
/// 404 for an unknown number, 409 for an offset beyond what it has.
pub async fn write_stdin(
    guest: &GuestHandle,
    process: u32,
    offset: Option<u64>,
    bytes: Bytes,
    closes: bool,
) -> ApiResult<()> {
    let offset = match offset {
        Some(offset) => offset,
        None => find(guest, process).await?.received,
    };
    if !bytes.is_empty() {
        guest
            .write_stdin(process, offset, bytes)
            .await
            .map_err(guest_error)?;
    }
    if closes {
        guest.close_stdin(process).await.map_err(guest_error)?;
    }
    Ok(())
}
