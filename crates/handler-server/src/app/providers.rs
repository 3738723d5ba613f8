//! Rules of providers: from a template or whole; the key goes to the secret store and nowhere else.

use super::secrets::store_error;
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::providers::ProviderFileError;
use handler_types::api::{ProviderRequest, ProviderView};
use handler_types::provider::{PROVIDER_VERSION, Provider, SecretRef};
use handler_types::{ProblemCode, SecretValue};

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
    let mut views = Vec::with_capacity(entries.len());
    for entry in entries {
        views.push(match entry.provider {
            Ok(provider) => view(app, &entry.name, &provider).await,
            Err(problems) => broken(entry.name, problems),
        });
    }
    Ok(views)
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
    }
}

/// Adds or replaces one.
///
/// # Errors
/// An unknown template, a provider without endpoint or model, a bad name.
pub async fn add(app: &App, request: ProviderRequest) -> ApiResult<ProviderView> {
    let template = match &request.template {
        None => None,
        Some(name) => Some(handler_harness::template(name).ok_or_else(|| {
            let known: Vec<_> = handler_harness::templates()
                .iter()
                .map(|t| t.name.as_str())
                .collect();
            ApiError::new(
                ProblemCode::Invalid,
                format!(
                    "there is no template `{name}`; there are: {}",
                    known.join(", ")
                ),
            )
        })?),
    };
    let mut endpoints = template.map(|t| t.endpoints.clone()).unwrap_or_default();
    endpoints.extend(request.endpoints.clone());
    let models = if request.models.is_empty() {
        template.map(|t| t.models.clone()).unwrap_or_default()
    } else {
        request.models.clone()
    };
    let has_stored = super::secrets::resolve(app, &SecretRef::Secret(key_path(&request.name)))
        .await
        .is_ok();
    let needs_key = template.is_some_and(|t| t.needs_key);
    let provider = Provider {
        api_version: PROVIDER_VERSION.to_owned(),
        description: request
            .description
            .clone()
            .or_else(|| template.map(|t| t.description.clone())),
        endpoints,
        api_key: (request.key.is_some() || needs_key || has_stored)
            .then(|| SecretRef::Secret(key_path(&request.name))),
        models,
    };
    app.providers
        .put(&request.name, &provider)
        .map_err(|e| provider_error(&e))?;
    if let Some(key) = request.key {
        app.secrets
            .set(&key_path(&request.name), SecretValue::new(key), None)
            .await
            .map_err(|e| store_error(&e))?;
    }
    Ok(view(app, &request.name, &provider).await)
}

/// Removes one and its key.
///
/// # Errors
/// 404 when there is none.
pub async fn remove(app: &App, name: &str) -> ApiResult<()> {
    if !app.providers.remove(name).map_err(|e| provider_error(&e))? {
        return Err(ApiError::new(
            ProblemCode::NotFound,
            format!("there is no provider `{name}`"),
        ));
    }
    app.secrets
        .remove(&key_path(name))
        .await
        .map(|_| ())
        .map_err(|e| store_error(&e))
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
