//! Rules of secrets: values go in and never come out of the API.

use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use async_trait::async_trait;
use handler_engine::filter::SecretResolver;
use handler_store::secrets::{SecretError, SecretStore};
use handler_types::api::{SecretRequest, SecretView};
use handler_types::provider::SecretRef;
use handler_types::{ProblemCode, SecretValue};

/// All, without values.
///
/// # Errors
/// An unreadable store.
pub async fn list(app: &App) -> ApiResult<Vec<SecretView>> {
    app.secrets.list().await.map_err(|e| store_error(&e))
}

/// Stores one.
///
/// # Errors
/// A bad path or value.
pub async fn set(app: &App, path: &str, request: SecretRequest) -> ApiResult<SecretView> {
    let SecretRequest { value, description } = request;
    app.secrets
        .set(path, SecretValue::new(value), description)
        .await
        .map_err(|e| store_error(&e))
}

/// Removes one.
///
/// # Errors
/// 404 when there is none.
pub async fn remove(app: &App, path: &str) -> ApiResult<()> {
    if app
        .secrets
        .remove(path)
        .await
        .map_err(|e| store_error(&e))?
    {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemCode::NotFound,
        format!("there is no secret `{path}`"),
    ))
}

pub(super) fn store_error(error: &SecretError) -> ApiError {
    let code = match error {
        SecretError::InvalidPath { .. }
        | SecretError::InvalidLength { .. }
        | SecretError::LongDescription
        | SecretError::TooMany => ProblemCode::Invalid,
        _ => ProblemCode::NotConfigured,
    };
    ApiError::new(code, chain(error))
}

/// The value behind a reference.
///
/// # Errors
/// `not_configured` with what to do; never the value.
pub async fn resolve(app: &App, reference: &SecretRef) -> ApiResult<SecretValue> {
    Resolver(app.secrets.clone())
        .resolve(reference)
        .await
        .map_err(|reason| {
            let hint = match reference {
                SecretRef::Secret(path) => format!("; set it with `handler secret set {path}`"),
                _ => String::new(),
            };
            ApiError::new(ProblemCode::NotConfigured, format!("{reason}{hint}"))
        })
}

/// The one street secrets walk: from the store to the filter's settings.
#[derive(Debug, Clone)]
pub struct Resolver(pub SecretStore);

#[async_trait]
impl SecretResolver for Resolver {
    async fn resolve(&self, secret: &SecretRef) -> Result<SecretValue, String> {
        let env = |name: &str| std::env::var(name).ok();
        self.0.resolve(secret, env).await.map_err(|e| chain(&e))
    }
}
