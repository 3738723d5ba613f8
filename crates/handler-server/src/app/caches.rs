//! Rules of caches (contract D.8, A.9): what the toolbox declares, kept for a project alone or for many, shown in their
//! agents' sandboxes.
//!
//! Invariant: a cache is emptied only while no sandbox has it: a start holds `caches_turn` shared from when it is given
//! its caches until its sandbox is in the store, a clearing holds it alone.

use super::projects::{self, project_ref};
use super::sessions::store_error;
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_engine::driver::FolderOwner;
use handler_store::caches::{self as files, CacheError, Declared, is_cache_name};
use handler_store::rows::ProjectRow;
use handler_types::cache::{
    CacheSizes, CacheView, CachesInfo, CachesRequest, GlobalCaches, OwnCaches,
};
use handler_types::project::CachesChoice;
use handler_types::sandbox::SandboxState;
use handler_types::{ProblemCode, ProjectId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn manifest(app: &App) -> PathBuf {
    super::images::toolbox::folder(app).join("toolbox.toml")
}

fn refused(error: &CacheError) -> ApiError {
    let code = match error {
        CacheError::Invalid { .. } => ProblemCode::Invalid,
        CacheError::Io { .. } => ProblemCode::BackendFailed,
    };
    ApiError::titled(code, "caches refused", chain(error))
}

fn declared(app: &App) -> ApiResult<Declared> {
    files::read(&manifest(app)).map_err(|error| refused(&error))
}

fn own_folder(app: &App, project: &ProjectId) -> PathBuf {
    app.settings.layout.project_caches_dir(project)
}

/// Names of the caches in a folder: declared ones, and others.
fn kept(folder: &Path, declared: &Declared) -> (Vec<String>, Vec<String>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_cache_name(name))
        .collect();
    names.sort();
    names
        .into_iter()
        .partition(|name| declared.contains_key(name))
}

/// What is declared, what is kept, and where.
///
/// # Errors
/// 400 for a broken `toolbox.toml`.
pub async fn info(app: &App) -> ApiResult<CachesInfo> {
    let declared = declared(app)?;
    let rows = projects::rows(app).await?;
    let choosing = |choice: CachesChoice| {
        let chosen = rows.iter().filter(move |row| row.settings.caches == choice);
        chosen.map(project_ref).collect()
    };
    let folder = &app.settings.layout.cache;
    let (caches, removed) = kept(folder, &declared);
    let global = GlobalCaches {
        folder: folder.to_string_lossy().into_owned(),
        caches,
        removed,
        projects: choosing(CachesChoice::Global),
    };
    let own = rows.iter().filter_map(|row| {
        let folder = own_folder(app, &row.id);
        let (caches, removed) = kept(&folder, &declared);
        let is_shown = row.settings.caches == CachesChoice::Project
            || !caches.is_empty()
            || !removed.is_empty();
        is_shown.then(|| OwnCaches {
            project_id: row.id.clone(),
            name: project_ref(row).name,
            folder: folder.to_string_lossy().into_owned(),
            caches,
            removed,
        })
    });
    Ok(CachesInfo {
        own: own.collect(),
        off: choosing(CachesChoice::Off),
        global,
        caches: declared
            .into_iter()
            .map(|(name, cache)| CacheView {
                name,
                target: cache.target,
                about: cache.about,
                general: cache.general,
            })
            .collect(),
    })
}

/// Declares caches; what is kept of others stays until it is cleared. Counts for new sessions.
///
/// # Errors
/// 400 with everything that is wrong.
pub async fn declare(app: &App, request: CachesRequest) -> ApiResult<CachesInfo> {
    let problems = taken(&request.caches);
    if !problems.is_empty() {
        return Err(refused(&CacheError::Invalid { problems }));
    }
    files::write(&manifest(app), &request.caches).map_err(|error| refused(&error))?;
    info(app).await
}

/// Caches that would lie where an agent program keeps its own state.
fn taken(declared: &Declared) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, cache) in declared {
        for harness in handler_harness::descriptors() {
            let holds = |target: &str| Path::new(&cache.target).starts_with(target);
            if harness.state_slots.values().any(|slot| holds(&slot.target)) {
                wrong.push(format!(
                    "{name}: {} is where {} keeps its own state",
                    cache.target, harness.product
                ));
            }
        }
    }
    wrong
}

/// What a session's sandbox is given, its folders made: path in the home → folder. Without an agent, nothing: a folder
/// that others write to as well is nobody's default.
///
/// # Errors
/// A broken `toolbox.toml`; a folder that cannot be made.
pub(super) async fn for_session(
    app: &App,
    agent: Option<&handler_types::AgentId>,
    owner: Option<FolderOwner>,
) -> ApiResult<BTreeMap<String, String>> {
    let Some(agent) = agent else {
        return Ok(BTreeMap::new());
    };
    let row = app.store.agents().get(agent).await.map_err(store_error)?;
    let Some(row) = row else {
        return Ok(BTreeMap::new());
    };
    let folder = match &row.project {
        None => app.settings.layout.cache.clone(),
        Some(id) => {
            let project = app.store.projects().get(id).await.map_err(store_error)?;
            match project.map(|project| project.settings.caches) {
                Some(CachesChoice::Project) => own_folder(app, id),
                Some(CachesChoice::Global) => app.settings.layout.cache.clone(),
                Some(CachesChoice::Off) | None => return Ok(BTreeMap::new()),
            }
        }
    };
    let mut caches = BTreeMap::new();
    for (name, cache) in declared(app)? {
        let source = folder.join(&name);
        handler_base::fs::create_private_dir(&source)
            .and_then(|()| super::agent::give(&source, owner))
            .map_err(|error| {
                let detail = format!("the cache {name} cannot be made: {error}");
                ApiError::new(ProblemCode::BackendFailed, detail)
            })?;
        caches.insert(cache.target, source.to_string_lossy().into_owned());
    }
    Ok(caches)
}

/// Bytes on disk of all that is kept.
///
/// # Errors
/// 502 when one cannot be measured.
pub async fn sizes(app: &App) -> ApiResult<CacheSizes> {
    let declared = declared(app)?;
    let mut sizes = CacheSizes {
        global: measured(app, &app.settings.layout.cache, &declared).await?,
        ..CacheSizes::default()
    };
    for row in projects::rows(app).await? {
        let own = measured(app, &own_folder(app, &row.id), &declared).await?;
        if !own.is_empty() {
            sizes.own.insert(row.id.to_string(), own);
        }
    }
    Ok(sizes)
}

async fn measured(
    app: &App,
    folder: &Path,
    declared: &Declared,
) -> ApiResult<BTreeMap<String, u64>> {
    let (names, removed) = kept(folder, declared);
    let mut sizes = BTreeMap::new();
    for name in names.into_iter().chain(removed) {
        let path = folder.join(&name);
        let mut why = String::new();
        for driver in app.engine.drivers() {
            match driver.folder_size(&path).await {
                Ok(size) => {
                    sizes.insert(name.clone(), size);
                    break;
                }
                Err(error) if why.is_empty() => why = chain(&error),
                Err(_) => {}
            }
        }
        if !sizes.contains_key(&name) {
            let detail = format!("{}: {why}", path.display());
            let title = "cannot measure the caches";
            return Err(ApiError::titled(ProblemCode::BackendFailed, title, detail));
        }
    }
    Ok(sizes)
}

/// Empties the shared caches, or one of them.
///
/// # Errors
/// 404 for a name that is neither declared nor kept, 409 while a sandbox has one.
pub async fn clear_global(app: &App, name: Option<&str>) -> ApiResult<()> {
    clear(app, &app.settings.layout.cache, name).await
}

/// Empties a project's own caches, or one of them.
///
/// # Errors
/// As [`clear_global`]; 404 for the project.
pub async fn clear_own(app: &App, project: &str, name: Option<&str>) -> ApiResult<()> {
    let row: ProjectRow = projects::find_row(app, project).await?;
    clear(app, &own_folder(app, &row.id), name).await
}

async fn clear(app: &App, folder: &Path, name: Option<&str>) -> ApiResult<()> {
    let declared = declared(app)?;
    let (there, removed) = kept(folder, &declared);
    let all: Vec<&String> = there.iter().chain(&removed).collect();
    let chosen: Vec<&String> = match name {
        None => all,
        Some(name) => {
            let found: Vec<&String> = all.into_iter().filter(|kept| *kept == name).collect();
            if found.is_empty() && !declared.contains_key(name) {
                let shown: String = name.chars().take(64).collect();
                let detail =
                    format!("there is no cache `{shown}`; `handler cache list` shows them");
                return Err(ApiError::titled(
                    ProblemCode::NotFound,
                    "cache not found",
                    detail,
                ));
            }
            found
        }
    };
    let _alone = app.caches_turn.write().await;
    for name in &chosen {
        not_used(app, &folder.join(name)).await?;
    }
    for name in chosen {
        let path = folder.join(name);
        empty(app, &path).await?;
        if removed.contains(name) {
            // Nobody declares it: empty, it is nothing.
            std::fs::remove_dir(&path).ok();
        }
    }
    Ok(())
}

/// Refuses while a sandbox that has an instance mounts the folder or one inside it.
async fn not_used(app: &App, folder: &Path) -> ApiResult<()> {
    let all = app.store.sandboxes().all_even_broken().await;
    for row in all.map_err(store_error)?.rows {
        let has_none = matches!(row.state, SandboxState::Stopped | SandboxState::Failed);
        let mounts = |mount: &handler_types::sandbox::MountSpec| {
            Path::new(&mount.source).starts_with(folder)
        };
        if !has_none && row.spec.mounts.iter().any(mounts) {
            let whose = match row.session_id {
                Some(session) => {
                    format!("session {session}: stop it with `handler session stop {session}`")
                }
                None => format!("sandbox {}", row.id),
            };
            let detail = format!("{} is used by {whose}", folder.display());
            return Err(ApiError::titled(
                ProblemCode::Conflict,
                "cache in use",
                detail,
            ));
        }
    }
    Ok(())
}

/// Empties a folder that sandboxes wrote to, with whatever rights that takes; it stays.
async fn empty(app: &App, folder: &Path) -> ApiResult<()> {
    let mut why = String::new();
    for driver in app.engine.drivers() {
        match driver.empty_folder(folder).await {
            Ok(()) => return Ok(()),
            Err(error) if why.is_empty() => why = chain(&error),
            Err(_) => {}
        }
    }
    let detail = format!("{} cannot be emptied: {why}", folder.display());
    Err(ApiError::new(ProblemCode::BackendFailed, detail))
}

/// Removes the caches of a project that is gone. What a sandbox still has stays, until the daemon's next start.
pub(super) async fn remove_own(app: &App, project: &ProjectId) {
    let folder = own_folder(app, project);
    if !folder.exists() {
        return;
    }
    let _alone = app.caches_turn.write().await;
    let removed = async {
        not_used(app, &folder).await?;
        empty(app, &folder).await?;
        std::fs::remove_dir(&folder).map_err(|error| {
            ApiError::new(
                ProblemCode::BackendFailed,
                format!("its folder stays: {error}"),
            )
        })
    };
    if let Err(error) = removed.await {
        let why = error.0.detail;
        tracing::warn!(%project, why, "the caches of a removed project are still there");
    }
}

/// At the daemon's start: removes what a project's removal that broke off left.
pub async fn tidy(app: &App) {
    let Ok(rows) = projects::rows(app).await else {
        return;
    };
    let entries = std::fs::read_dir(app.settings.layout.caches_dir());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(id) = name
            .to_str()
            .and_then(|name| name.parse::<ProjectId>().ok())
            && rows.iter().all(|row| row.id != id)
        {
            remove_own(app, &id).await;
        }
    }
}
