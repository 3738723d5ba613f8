//! Which agent programs a sandbox has and runs. Looked at on request, at most every quarter of a minute; a sandbox
//! that does not run is not woken for it.

use crate::app::sandboxes::{engine_error, find, guest_error};
use crate::http::problem::ApiResult;
use crate::state::App;
use handler_activity::agents::{Process, catalogue, running};
use handler_engine::guest::{GuestHandle, StreamItem};
use handler_types::SandboxId;
use handler_types::guest::{FileKind, ProcessSpec, SystemProcess};
use handler_types::observe::{AgentList, AgentView};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the keys of our own processes begin with: they are not written down.
pub(super) const OWN_KEY: &str = "observe-";
/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(15);
/// How long the look-up of the `PATH` may take, milliseconds.
const LOOKUP_MS: u64 = 5000;
/// Longest `PATH` taken, bytes, and most folders of it.
const LONGEST_PATH: usize = 16 * 1024;
const MOST_FOLDERS: usize = 64;

/// Where programs usually are, if the sandbox does not say.
const USUAL: &str = "/usr/local/bin:/usr/bin:/bin";

#[derive(Debug, Clone)]
struct Kept {
    boot: String,
    folders: Vec<String>,
    seen: Option<(Instant, AgentList)>,
}

/// Answers, and the `PATH` of each sandbox, which is asked for once per start.
#[derive(Debug, Default)]
pub struct AgentCache(Mutex<HashMap<SandboxId, Kept>>);

impl AgentCache {
    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, Kept>> {
        // Short sections without waiting; a panic elsewhere leaves whole entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, id: &SandboxId) {
        self.all().remove(id);
    }

    fn of(&self, id: &SandboxId, boot: &str) -> Option<Kept> {
        self.all().get(id).filter(|kept| kept.boot == boot).cloned()
    }
}

/// The agents of a sandbox.
///
/// # Errors
/// 404; 409 when it does not run.
pub async fn list(app: &App, text: &str) -> ApiResult<AgentList> {
    let id = find(app, text).await?.id;
    let guest = app.engine.guest(&id).map_err(engine_error)?;
    let kept = app.observe.agents.of(&id, guest.boot());
    if let Some((at, list)) = kept.as_ref().and_then(|kept| kept.seen.clone())
        && at.elapsed() < KEPT
    {
        return Ok(list);
    }
    let folders = match kept {
        Some(kept) => kept.folders,
        None => path_folders(&guest).await,
    };
    let table = guest.table().await.map_err(guest_error)?;
    let list = AgentList {
        agents: look(&guest, &folders, &table).await,
        seen_at: handler_base::clock::rfc3339(handler_base::clock::now_ms()),
    };
    let kept = Kept {
        boot: guest.boot().to_owned(),
        folders,
        seen: Some((Instant::now(), list.clone())),
    };
    app.observe.agents.all().insert(id, kept);
    Ok(list)
}

async fn look(guest: &GuestHandle, folders: &[String], table: &[SystemProcess]) -> Vec<AgentView> {
    let mut running = running(&processes(table));
    let mut agents = Vec::new();
    for known in catalogue() {
        let path = installed(guest, folders, known.programs).await;
        agents.push(AgentView {
            harness: known.harness.to_owned(),
            product: known.product.to_owned(),
            installed: path.is_some(),
            path,
            running: running.remove(known.harness).unwrap_or_default(),
        });
    }
    agents
}

/// A table of processes as the rules read it.
pub(super) fn processes(table: &[SystemProcess]) -> Vec<Process<'_>> {
    table
        .iter()
        .map(|process| Process {
            pid: process.pid,
            ppid: process.ppid,
            comm: &process.comm,
            argv: &process.argv,
        })
        .collect()
}

/// Where the first of a harness's programs is, on the `PATH`.
async fn installed(guest: &GuestHandle, folders: &[String], programs: &[String]) -> Option<String> {
    for program in programs {
        let mut asked = Vec::new();
        for folder in folders {
            asked.push(is_program(guest.clone(), format!("{folder}/{program}")));
        }
        let found = futures::future::join_all(asked).await;
        if let Some(path) = found.into_iter().flatten().next() {
            return Some(path);
        }
    }
    None
}

/// The path, if a program is there.
async fn is_program(guest: GuestHandle, path: String) -> Option<String> {
    let entry = guest.stat(&path).await.ok()?;
    let is_program = match entry.kind {
        FileKind::File => entry.mode & 0o111 != 0,
        FileKind::Link => true,
        FileKind::Folder | FileKind::Other => false,
    };
    is_program.then_some(path)
}

/// The folders of the `PATH` that programs inside get.
async fn path_folders(guest: &GuestHandle) -> Vec<String> {
    let text = ask_path(guest).await.unwrap_or_else(|| USUAL.to_owned());
    text.split(':')
        .filter(|folder| folder.starts_with('/') && !folder.contains('\0'))
        .take(MOST_FOLDERS)
        .map(str::to_owned)
        .collect()
}

async fn ask_path(guest: &GuestHandle) -> Option<String> {
    let spec = ProcessSpec {
        key: format!("{OWN_KEY}{}", handler_base::random::hex(8)),
        argv: ["sh", "-c", "printf %s \"$PATH\""]
            .map(str::to_owned)
            .to_vec(),
        timeout_ms: Some(LOOKUP_MS),
        ..ProcessSpec::default()
    };
    let process = guest.start(spec).await.ok()?.process;
    let gather = async {
        let mut stream = guest.attach(process, 0).await.ok()?;
        let mut text = Vec::new();
        loop {
            match stream.next().await {
                StreamItem::Chunk { bytes, offset, .. } => {
                    text.extend_from_slice(&bytes);
                    stream.ack(offset + bytes.len() as u64);
                    if text.len() > LONGEST_PATH {
                        return None;
                    }
                }
                StreamItem::Exited(_) => {}
                StreamItem::End { .. } => return String::from_utf8(text).ok(),
                StreamItem::Lost(_) => return None,
            }
        }
    };
    let limit = Duration::from_millis(LOOKUP_MS * 2);
    let text = tokio::time::timeout(limit, gather).await.ok().flatten();
    guest.forget(process).await.ok();
    text.filter(|text| !text.is_empty())
}
