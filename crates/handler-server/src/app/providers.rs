//! Rules of providers: from a template or whole; the key goes to the secret store and nowhere else.

use super::agents::row_error;
use super::contexts;
use super::secrets::store_error;
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::providers::ProviderFileError;
use handler_store::rows::AgentRow;
use handler_types::api::{ProviderRequest, ProviderTemplate, ProviderView};
use handler_types::provider::{PROVIDER_VERSION, Provider, ProviderFilesOf, SecretRef};
use handler_types::{AgentId, ProblemCode, SecretValue};

/// Where a provider's own key is kept.
#[must_use]
pub fn key_path(name: &str) -> String {
    format!("providers/{name}/apiKey")
}

/// All, broken files included.
///
/// # Errors
/// An unreadable folder.
pub async fn list(app: &App) -> ApiResult<Vec<ProviderView>> {
    let entries = app.providers.list().map_err(|e| provider_error(&e))?;
    let agents = app.store.agents().all().await.map_err(row_error)?;
    let mut views = Vec::with_capacity(entries.len());
    for entry in entries {
        let mut shown = match entry.provider {
            Ok(provider) => view(app, &entry.name, &provider).await,
            Err(problems) => broken(entry.name, problems),
        };
        shown.agents = listing(&agents, &shown.name);
        views.push(shown);
    }
    Ok(views)
}

/// The agents that list a provider.
fn listing(agents: &[AgentRow], name: &str) -> Vec<AgentId> {
    let lists = |agent: &&AgentRow| {
        let mut models = agent.settings.models.iter();
        models.any(|access| access.provider.as_deref() == Some(name))
    };
    let found = agents.iter().filter(lists);
    found.map(|agent| agent.id.clone()).collect()
}

async fn one(app: &App, name: &str) -> ApiResult<ProviderView> {
    let all = list(app).await?;
    let found = all.into_iter().find(|view| view.name == name);
    found.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> ApiError {
    let shown: String = name.chars().take(80).collect();
    let detail = format!("there is no provider `{shown}`; `handler provider list` shows them");
    ApiError::titled(ProblemCode::NotFound, "provider not found", detail)
}

fn conflict(title: &str, detail: impl Into<String>) -> ApiError {
    ApiError::titled(ProblemCode::Conflict, title, detail)
}

fn provider_error(error: &ProviderFileError) -> ApiError {
    let code = match error {
        ProviderFileError::Io { .. } => ProblemCode::BackendFailed,
        _ => ProblemCode::Invalid,
    };
    ApiError::new(code, chain(error))
}

fn broken(name: String, problems: Vec<String>) -> ProviderView {
    ProviderView {
        name,
        description: None,
        endpoints: std::collections::BTreeMap::new(),
        models: Vec::new(),
        key: None,
        status: "invalid".to_owned(),
        problems,
        harnesses: Vec::new(),
        files: ProviderFilesOf::new(),
        contexts: Vec::new(),
        agents: Vec::new(),
    }
}

async fn view(app: &App, name: &str, provider: &Provider) -> ProviderView {
    let mut problems = Vec::new();
    // Commands and files are not run just to be listed: only the store is asked.
    if let Some(SecretRef::Secret(path)) = &provider.api_key
        && super::secrets::resolve(app, &SecretRef::Secret(path.clone()))
            .await
            .is_err()
    {
        problems.push(format!(
            "its key has no value; set it with `handler secret set {path}`"
        ));
    }
    ProviderView {
        name: name.to_owned(),
        description: provider.description.clone(),
        endpoints: provider.endpoints.clone(),
        models: provider.models.clone(),
        key: provider.api_key.as_ref().map(|key| key.source().to_owned()),
        status: if problems.is_empty() {
            "ready"
        } else {
            "incomplete"
        }
        .to_owned(),
        problems,
        harnesses: handler_harness::usable_harnesses(&provider.endpoints),
        files: provider.files.clone(),
        contexts: provider.contexts.clone(),
        agents: Vec::new(),
    }
}

/// What its template says, where the request says nothing.
fn template(request: &ProviderRequest) -> ApiResult<Option<&'static ProviderTemplate>> {
    let Some(name) = &request.template else {
        return Ok(None);
    };
    let found = handler_harness::template(name).ok_or_else(|| {
        let known: Vec<_> = handler_harness::templates()
            .iter()
            .map(|t| t.name.as_str())
            .collect();
        let known = known.join(", ");
        let detail = format!("there is no template `{name}`; there are: {known}");
        ApiError::new(ProblemCode::Invalid, detail)
    });
    found.map(Some)
}

/// The provider that a request says; `key` is where its key is kept, `files` those it has.
fn asked(
    request: &ProviderRequest,
    template: Option<&ProviderTemplate>,
    key: Option<SecretRef>,
    files: ProviderFilesOf,
) -> Provider {
    let mut endpoints = template.map(|t| t.endpoints.clone()).unwrap_or_default();
    endpoints.extend(request.endpoints.clone());
    let models = match request.models.is_empty() {
        true => template.map(|t| t.models.clone()).unwrap_or_default(),
        false => request.models.clone(),
    };
    Provider {
        api_version: PROVIDER_VERSION.to_owned(),
        description: request
            .description
            .clone()
            .or_else(|| template.map(|t| t.description.clone()))
            .filter(|text| !text.is_empty()),
        endpoints,
        api_key: key,
        models,
        files: request.files.clone().unwrap_or(files),
        contexts: contexts::once(&request.contexts),
    }
}

/// Whether its files are for places that its harnesses read.
fn check_files(files: &ProviderFilesOf) -> ApiResult<()> {
    for (harness, slots) in files {
        let known = super::harnesses::descriptor(harness)?;
        let odd = slots
            .keys()
            .find(|slot| !known.config_files.contains_key(*slot));
        if let Some(odd) = odd {
            let places: Vec<&str> = known.config_files.keys().map(String::as_str).collect();
            let detail = match places.is_empty() {
                true => format!("files.{harness}: it reads no config files of a provider's"),
                false => format!(
                    "files.{harness}: no place `{odd}`; there are: {}",
                    places.join(", ")
                ),
            };
            return Err(ApiError::new(ProblemCode::Invalid, detail));
        }
    }
    Ok(())
}

fn check(app: &App, provider: &Provider) -> ApiResult<()> {
    check_files(&provider.files)?;
    contexts::known(app, &provider.contexts)
}

/// Adds one.
///
/// # Errors
/// 409 for a name that is taken; an unknown template or context, a provider without endpoint or model, a bad name.
pub async fn add(app: &App, request: ProviderRequest) -> ApiResult<ProviderView> {
    let _turn = app.agents_turn.lock().await;
    let template = template(&request)?;
    let name = request.name.clone();
    name_is_free(app, &name, "cannot create the provider")?;
    let own = SecretRef::Secret(key_path(&name));
    let has_stored = super::secrets::resolve(app, &own).await.is_ok();
    let needs_key = template.is_some_and(|t| t.needs_key);
    let has_key = (request.key.is_some() || needs_key || has_stored) && !request.remove_key;
    let provider = asked(
        &request,
        template,
        has_key.then_some(own),
        ProviderFilesOf::new(),
    );
    check(app, &provider)?;
    write(app, &name, &provider, request.key).await
}

/// State folders are named after either, and so are commands.
fn name_is_free(app: &App, name: &str, title: &str) -> ApiResult<()> {
    match app.providers.get(name) {
        Ok(None) => {}
        Err(error @ ProviderFileError::InvalidName { .. }) => return Err(provider_error(&error)),
        _ => {
            let detail = format!(
                "there is a provider `{name}` already: change it with `handler provider set {name}`, or choose another name"
            );
            return Err(conflict(title, detail));
        }
    }
    if matches!(app.accounts.get(name), Ok(None)) {
        return Ok(());
    }
    let detail = format!("there is an account `{name}` already: choose another name");
    Err(conflict(title, detail))
}

/// Says something else of one, whole. Its key stays where it is kept, unless another or none is said.
///
/// # Errors
/// 404; 409 for another name that is taken, or while an agent lists it; as [`add`].
pub async fn update(app: &App, name: &str, request: ProviderRequest) -> ApiResult<ProviderView> {
    let _turn = app.agents_turn.lock().await;
    let before = match app.providers.get(name) {
        Ok(Some(provider)) => Some(provider),
        Ok(None) | Err(ProviderFileError::InvalidName { .. }) => return Err(missing(name)),
        // Written over: that is one way to mend it.
        Err(ProviderFileError::Invalid { .. }) => None,
        Err(error) => return Err(provider_error(&error)),
    };
    if request.key.is_some() && request.remove_key {
        let detail = "key and removeKey: say one of them";
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    let (from, to) = (SecretRef::Secret(key_path(name)), request.name.clone());
    let kept = before
        .as_ref()
        .and_then(|provider| provider.api_key.clone());
    let key = match (&request.key, request.remove_key) {
        (Some(_), _) => Some(SecretRef::Secret(key_path(&to))),
        (None, true) => None,
        (None, false) if kept.as_ref() == Some(&from) => Some(SecretRef::Secret(key_path(&to))),
        (None, false) => kept.clone(),
    };
    let files = before.map(|provider| provider.files).unwrap_or_default();
    let template = template(&request)?;
    let provider = asked(&request, template, key, files);
    check(app, &provider)?;
    let is_renamed = to != name;
    let mut value = request.key;
    if is_renamed {
        may_rename(app, name, &to).await?;
        if value.is_none() && !request.remove_key && kept.as_ref() == Some(&from) {
            let own = super::secrets::resolve(app, &from).await;
            value = own.ok().map(|own| own.expose().to_owned());
        }
    }
    let view = write(app, &to, &provider, value).await?;
    let has_own = |at: &str| provider.api_key == Some(SecretRef::Secret(key_path(at)));
    if is_renamed {
        app.providers.remove(name).map_err(|e| provider_error(&e))?;
    }
    if is_renamed || !has_own(name) {
        // Nobody's any more.
        let gone = app.secrets.remove(&key_path(name)).await;
        gone.map_err(|e| store_error(&e))?;
    }
    Ok(view)
}

async fn may_rename(app: &App, name: &str, to: &str) -> ApiResult<()> {
    name_is_free(app, to, "cannot rename the provider")?;
    let agents = app.store.agents().all().await.map_err(row_error)?;
    let users = listing(&agents, name);
    if users.is_empty() {
        return Ok(());
    }
    let users: Vec<&str> = users.iter().map(AgentId::as_str).collect();
    let detail = format!("these agents list it: {}", users.join(", "));
    Err(conflict("provider in use: cannot rename it", detail))
}

/// Writes its file, then its key.
async fn write(
    app: &App,
    name: &str,
    provider: &Provider,
    key: Option<String>,
) -> ApiResult<ProviderView> {
    let written = app.providers.put(name, provider);
    written.map_err(|e| provider_error(&e))?;
    if let Some(key) = key {
        let path = key_path(name);
        let kept = app.secrets.set(&path, SecretValue::new(key), None).await;
        kept.map_err(|e| store_error(&e))?;
    }
    one(app, name).await
}

/// Removes one and its key.
///
/// # Errors
/// 404 when there is none.
pub async fn remove(app: &App, name: &str) -> ApiResult<()> {
    let _turn = app.agents_turn.lock().await;
    match app.providers.remove(name) {
        Ok(true) => {}
        Ok(false) | Err(ProviderFileError::InvalidName { .. }) => return Err(missing(name)),
        Err(error) => return Err(provider_error(&error)),
    }
    let gone = app.secrets.remove(&key_path(name)).await;
    gone.map(|_| ()).map_err(|e| store_error(&e))
}

/// All whose files can be read.
///
/// # Errors
/// An unreadable folder.
pub fn readable(app: &App) -> ApiResult<Vec<(String, Provider)>> {
    let entries = app.providers.list().map_err(|e| provider_error(&e))?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| entry.provider.ok().map(|provider| (entry.name, provider)))
        .collect())
}

/// One that can be used.
///
/// # Errors
/// 424 when it is missing or its file is broken, with what to do.
pub fn usable(app: &App, name: &str) -> ApiResult<Provider> {
    match app.providers.get(name) {
        Ok(Some(provider)) => Ok(provider),
        Ok(None) => Err(ApiError::new(
            ProblemCode::NotConfigured,
            format!("there is no provider `{name}`; add one with `handler provider add`"),
        )),
        Err(error) => Err(ApiError::new(ProblemCode::NotConfigured, chain(&error))),
    }
}
