//! Rules of secrets: values go in and never come out of the API.

use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use async_trait::async_trait;
use handler_engine::filter::{LoginToken, SecretResolver};
use handler_store::logins::LoginStore;
use handler_store::secrets::{SecretError, SecretStore};
use handler_types::api::{SecretRequest, SecretView};
use handler_types::provider::SecretRef;
use handler_types::sandbox::LoginBinding;
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
/// A bad path or value; 409 for an account's.
pub async fn set(app: &App, path: &str, request: SecretRequest) -> ApiResult<SecretView> {
    not_an_accounts(path)?;
    let SecretRequest { value, description } = request;
    app.secrets
        .set(path, SecretValue::new(value), description)
        .await
        .map_err(|e| store_error(&e))
}

/// Removes one.
///
/// # Errors
/// 404 when there is none; 409 for an account's.
pub async fn remove(app: &App, path: &str) -> ApiResult<()> {
    not_an_accounts(path)?;
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

/// A token is checked and its account told when it is given: that is the account's work.
fn not_an_accounts(path: &str) -> ApiResult<()> {
    let Some(rest) = path.strip_prefix("accounts/") else {
        return Ok(());
    };
    let name: String = rest
        .split('/')
        .next()
        .unwrap_or_default()
        .chars()
        .take(80)
        .collect();
    Err(ApiError::titled(
        ProblemCode::Conflict,
        "an account's login is set on it",
        format!("give it with `handler account token {name}`"),
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
    follow(&app.secrets, reference).await.map_err(|reason| {
        let hint = match reference {
            SecretRef::Secret(path) => format!("; set it with `handler secret set {path}`"),
            _ => String::new(),
        };
        ApiError::new(ProblemCode::NotConfigured, format!("{reason}{hint}"))
    })
}

/// The one street secrets walk: from the store to the filter's settings.
#[derive(Debug, Clone)]
pub struct Resolver {
    /// Secrets.
    pub secrets: SecretStore,
    /// Logins.
    pub logins: LoginStore,
}

async fn follow(secrets: &SecretStore, reference: &SecretRef) -> Result<SecretValue, String> {
    let env = |name: &str| std::env::var(name).ok();
    let found = secrets.resolve(reference, env).await;
    found.map_err(|e| chain(&e))
}

#[async_trait]
impl SecretResolver for Resolver {
    async fn resolve(&self, secret: &SecretRef) -> Result<SecretValue, String> {
        follow(&self.secrets, secret).await
    }

    async fn login(&self, binding: &LoginBinding) -> Result<Vec<LoginToken>, String> {
        let found = self.logins.get(&binding.login).await;
        let mut login = found.map_err(|e| chain(&e))?.ok_or_else(|| {
            let name = &binding.login;
            format!("there is no login `{name}` any more: add it with `handler login add {name}`")
        })?;
        let stand_ins = login.grants.remove(&binding.grant).ok_or_else(|| {
            let name = &binding.login;
            format!("login `{name}` was removed and made anew since: make the sandbox anew, too")
        })?;
        Ok(stand_ins
            .into_iter()
            .map(|one| LoginToken {
                field: one.field,
                phantom: one.phantom,
                value: SecretValue::new(one.value.to_string()),
            })
            .collect())
    }
}
