//! Rules of sandboxes: what a request becomes before the engine sees it.

use crate::app::audit;
use crate::app::git::keep;
use crate::app::quick_files::Load;
use crate::http::problem::{ApiError, ApiResult};
use crate::http::sandboxes::ListQuery;
use crate::state::App;
use handler_engine::CreateArgs;
use handler_engine::EngineError;
use handler_engine::guest::{GuestCallError, GuestHandle};
use handler_engine::make_phantom;
use handler_store::rows::{PageRequest, SandboxFilter};
use handler_types::ProblemCode;
use handler_types::api::Page;
use handler_types::git::{ForkKept, ForkOf};
use handler_types::guest::GuestErrorCode;
use handler_types::network::NetworkPolicy;
use handler_types::provider::SecretRef;
use handler_types::sandbox::{
    CreateSandbox, Lifetime, MountSpec, PhantomBinding, SandboxSpec, SandboxView, SecretGrant,
};
use std::path::Path;

/// Home inside every native sandbox.
pub const HOME: &str = "/home/agent";

/// The engine's refusal as ours; the log gets the chain.
#[must_use]
pub fn engine_error(error: EngineError) -> ApiError {
    let problem = error.to_problem();
    if problem.code == ProblemCode::Internal {
        tracing::error!(error = %crate::http::problem::chain(&error), "engine");
    }
    ApiError(problem)
}

/// The guest's refusal as ours.
#[must_use]
pub fn guest_error(error: GuestCallError) -> ApiError {
    let code = match &error {
        GuestCallError::Refused(refused) => match refused.code {
            GuestErrorCode::NotFound => ProblemCode::NotFound,
            GuestErrorCode::Exists => ProblemCode::Conflict,
            GuestErrorCode::Denied => ProblemCode::Forbidden,
            GuestErrorCode::Invalid => ProblemCode::Invalid,
            GuestErrorCode::NoSpace => ProblemCode::NoSpace,
            GuestErrorCode::Limit => ProblemCode::TooLarge,
            GuestErrorCode::Io => ProblemCode::BackendFailed,
        },
        GuestCallError::Invalid(_) => ProblemCode::Conflict,
        GuestCallError::Timeout(_) => ProblemCode::Timeout,
        GuestCallError::Lost(_) => ProblemCode::BackendFailed,
        GuestCallError::Source(_) => ProblemCode::Invalid,
    };
    ApiError::new(code, error.to_string())
}

/// Makes a sandbox.
///
/// # Errors
/// Bad names and paths, folders outside the work folders, secrets without a value, and what the engine refuses.
pub async fn create(app: &App, request: CreateSandbox) -> ApiResult<SandboxView> {
    create_with(app, request, None).await
}

/// As [`create`]; a fork's folder is one of ours and no work folder.
///
/// # Errors
/// As [`create`].
pub async fn create_with(
    app: &App,
    request: CreateSandbox,
    fork: Option<ForkOf>,
) -> ApiResult<SandboxView> {
    let request = super::presets::applied(app, request)?;
    super::lifetime::check_new(&request)?;
    let mut load = Load::of(app, &request).await?;
    let scope = match (&fork, &request.scope) {
        (Some(_), scope) => scope.clone(),
        (None, Some(path)) => Some(work_folder(app, path)?),
        (None, None) => None,
    };
    let mounts = request
        .mounts
        .iter()
        .map(|m| {
            let source = work_folder(app, &m.source)?;
            Ok(MountSpec {
                source,
                target: m.target.clone(),
                read_only: m.read_only,
            })
        })
        .collect::<ApiResult<Vec<_>>>()?;
    let network = request.network.clone().unwrap_or_default();
    let mut env = request.env.clone();
    let mut phantoms = Vec::new();
    for (variable, grant) in request.secrets.clone() {
        let (value, binding) = grant_secret(app, &variable, grant, &network).await?;
        env.insert(variable, value);
        phantoms.extend(binding);
    }
    let mut spec = SandboxSpec {
        backend: request
            .backend
            .clone()
            .unwrap_or_else(|| "native".to_owned()),
        name: request.name.clone(),
        workdir: scope.clone().unwrap_or_else(|| HOME.to_owned()),
        scope,
        home: HOME.to_owned(),
        mounts,
        files: Vec::new(),
        env,
        network,
        resources: request.resources,
        strict_limits: !request.best_effort_limits,
        lifetime: Lifetime::Kept,
        labels: request.labels.clone(),
        phantoms,
        fork,
        ttl_seconds: request.ttl_seconds,
        idle: request.idle,
        metadata: request.metadata.clone(),
        project: request.project.clone(),
        ..SandboxSpec::default()
    };
    super::containers::fill(app, &request, &mut spec).await?;
    let granted = super::logins::grant(app, &request.logins, &spec.network).await?;
    granted.put_into(&mut spec, &mut load);
    let made = app.engine.create(CreateArgs {
        spec,
        label: String::new(),
    });
    let made = made.await.map_err(engine_error);
    granted.end(app, made.is_ok()).await;
    let view = made?;
    audit::made(app, &view).await;
    if load.is_empty() {
        return Ok(view);
    }
    let filled = match app.engine.guest(&view.id).map_err(engine_error) {
        Ok(guest) => load.put_into(&guest).await,
        Err(error) => Err(error),
    };
    if let Err(error) = filled {
        // Handed over whole or not at all.
        app.engine.delete(&view.id).await.ok();
        return Err(error);
    }
    Ok(view)
}

/// A host folder that agents may work in, canonical.
///
/// # Errors
/// What the work folders say.
pub fn work_folder(app: &App, path: &str) -> ApiResult<String> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            format!("`{path}`: give an absolute path"),
        ));
    }
    let folder = app
        .folders
        .check(Path::new(path))
        .map_err(|e| super::host::folder_error(&e))?;
    folder
        .into_os_string()
        .into_string()
        .map_err(|_| ApiError::new(ProblemCode::Invalid, "the folder's name is not UTF-8"))
}

/// A secret as the sandbox gets it: a phantom bound to the value; the value itself is never handed in.
pub(super) async fn grant_secret(
    app: &App,
    variable: &str,
    grant: SecretGrant,
    network: &NetworkPolicy,
) -> ApiResult<(String, Option<PhantomBinding>)> {
    if grant.hosts.is_empty() {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            format!("secret for {variable}: name at least one host it is given to"),
        ));
    }
    let secret = SecretRef::Secret(grant.secret.clone());
    let value = super::secrets::resolve(app, &secret).await?;
    let phantom = phantom_of(value.expose(), &grant.secret)?;
    let binding = PhantomBinding {
        name: grant.secret,
        secret,
        env: Some(variable.to_owned()),
        phantom: phantom.clone(),
        hosts: grant.hosts,
    };
    // Without a network nothing can be reached: the phantom alone is enough.
    Ok((phantom, network.needs_egress().then_some(binding)))
}

/// A stand-in for a value.
///
/// # Errors
/// When the value cannot have one; it is then not handed in at all.
pub fn phantom_of(value: &str, name: &str) -> ApiResult<String> {
    make_phantom(value, || handler_base::random::bytes::<1>()[0]).ok_or_else(|| {
        ApiError::new(
            ProblemCode::Unenforceable,
            format!(
                "secret `{name}` cannot be kept out of the sandbox: it is shorter than 8 characters or has \
                 others than printable ASCII"
            ),
        )
    })
}

/// A page of sandboxes.
///
/// # Errors
/// A bad cursor.
pub async fn list(app: &App, query: ListQuery) -> ApiResult<Page<SandboxView>> {
    let label = match query.label.as_deref().map(|l| l.split_once('=')) {
        None => None,
        Some(Some((key, value))) => Some((key.to_owned(), value.to_owned())),
        Some(None) => {
            return Err(ApiError::new(
                ProblemCode::Invalid,
                "label: write key=value",
            ));
        }
    };
    let filter = SandboxFilter {
        state: query.state,
        backend: query.backend,
        labels: label.into_iter().collect(),
        name: None,
        search: query.search.filter(|text| !text.is_empty()),
        project: query.project,
    };
    let cursor = (!query.cursor.is_empty()).then_some(query.cursor);
    let page = PageRequest {
        cursor,
        limit: query.limit,
    };
    let page = app
        .store
        .sandboxes()
        .list_ids(filter, page)
        .await
        .map_err(super::sessions::store_error)?;
    // The rows say which; the engine says how they are now. One removed meanwhile is left out.
    let items = page
        .items
        .iter()
        .filter_map(|id| app.engine.get(id).ok())
        .collect();
    Ok(Page {
        items,
        next_cursor: page.next_cursor,
    })
}

/// One sandbox, by id, unique prefix or name.
///
/// # Errors
/// 404, 409 when several fit.
pub async fn find(app: &App, text: &str) -> ApiResult<SandboxView> {
    app.engine.find(text).map_err(engine_error)
}

/// The guest of a running sandbox.
///
/// # Errors
/// As [`find`]; 409 when it does not run.
pub async fn guest(app: &App, text: &str) -> ApiResult<GuestHandle> {
    Ok(view_and_guest(app, text).await?.1)
}

/// A sandbox that is used now, and its guest; one that its idle policy put to rest is woken first.
///
/// # Errors
/// As [`guest`].
pub async fn view_and_guest(app: &App, text: &str) -> ApiResult<(SandboxView, GuestHandle)> {
    let view = find(app, text).await?;
    let guest = app
        .engine
        .awake_guest(&view.id)
        .await
        .map_err(engine_error)?;
    Ok((view, guest))
}

/// The guest of a sandbox that runs, only looked at: this is no use of it and wakes nothing.
///
/// # Errors
/// As [`find`]; 409 when it does not run.
pub async fn peek_guest(app: &App, text: &str) -> ApiResult<GuestHandle> {
    let view = find(app, text).await?;
    app.engine.guest(&view.id).map_err(engine_error)
}

/// Starts a stopped sandbox.
///
/// # Errors
/// What the engine refuses.
pub async fn start(app: &App, text: &str) -> ApiResult<SandboxView> {
    let view = find(app, text).await?;
    app.engine
        .start_sandbox(&view.id)
        .await
        .map_err(engine_error)
}

/// Stops a sandbox.
///
/// # Errors
/// What the engine refuses.
pub async fn stop(app: &App, text: &str) -> ApiResult<SandboxView> {
    let view = find(app, text).await?;
    app.engine.stop(&view.id).await.map_err(engine_error)
}

/// Removes a sandbox. One that belongs to a session is the session's to remove.
///
/// # Errors
/// What the engine refuses.
pub async fn delete(app: &App, text: &str) -> ApiResult<()> {
    remove(app, text, false).await.map(|_| ())
}

/// As [`delete`]; tells what was kept of a fork. Forced: also when a fork's work cannot be kept.
///
/// # Errors
/// As [`delete`]; 409 when a fork's work cannot be kept.
pub async fn remove(app: &App, text: &str, is_forced: bool) -> ApiResult<ForkKept> {
    let view = find(app, text).await?;
    let kept = match view.fork {
        None => ForkKept::default(),
        Some(_) => match keep::save(app, &view).await {
            Err(error) if !is_forced => return Err(error),
            outcome => outcome.unwrap_or_default(),
        },
    };
    app.engine.delete(&view.id).await.map_err(engine_error)?;
    app.egress_events.forget(view.id.as_str());
    app.learned.forget(view.id.as_str());
    keep::remove_folder(app, &view);
    Ok(kept)
}
