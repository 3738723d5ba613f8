//! Which harness, provider and model a request means: what was said, else the only thing that fits.

use crate::app::{accounts, harnesses, providers};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::ProblemCode;
use handler_types::agent::Through;
use handler_types::harness::{HarnessDescriptor, PermissionMode};
use handler_types::provider::Provider;
use handler_types::session::CreateSession;

/// What will run.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) descriptor: &'static HarnessDescriptor,
    /// The account its calls go through, instead of a provider.
    pub(crate) account: Option<String>,
    /// The provider; empty on an account.
    pub(crate) provider_name: String,
    /// Empty: the program's own choice (on an account only).
    pub(crate) model: String,
    pub(crate) permissions: PermissionMode,
    /// The backend whose harness image is used; none: native.
    pub(crate) backend: Option<String>,
    /// What the image says is in it.
    pub(crate) version: Option<String>,
}

impl Choice {
    /// What its calls go through.
    pub(crate) fn through(&self) -> Through<'_> {
        match &self.account {
            Some(account) => Through::Account(account),
            None => Through::Provider(&self.provider_name),
        }
    }
}

/// Decides.
///
/// # Errors
/// What is missing or cannot be told apart, with the choices and the command that helps.
pub(crate) async fn choose(app: &App, request: &CreateSession) -> ApiResult<Choice> {
    let backend = request
        .backend
        .clone()
        .filter(|backend| backend != "native");
    if let Some(name) = &request.account {
        return on_account(app, request, name, backend).await;
    }
    let (provider_name, provider) = provider(app, request)?;
    let descriptor = harness(app, request, backend.as_deref(), &provider_name, &provider).await?;
    let version = version(app, backend.as_deref(), descriptor).await?;
    let model = match &request.model {
        Some(model) => model.clone(),
        None => provider
            .models
            .first()
            .map(|m| m.id.clone())
            .ok_or_else(|| {
                ApiError::new(
                    ProblemCode::NotConfigured,
                    format!("provider `{provider_name}` has no model"),
                )
            })?,
    };
    let permissions = request.permissions.unwrap_or_default();
    Ok(Choice {
        descriptor,
        account: None,
        provider_name,
        model,
        permissions,
        backend,
        version,
    })
}

/// What an image says is in it; none: native, where the program must be installed.
async fn version(
    app: &App,
    backend: Option<&str>,
    descriptor: &HarnessDescriptor,
) -> ApiResult<Option<String>> {
    let Some(backend) = backend else {
        harnesses::installed(app, descriptor)?;
        return Ok(None);
    };
    let image = harnesses::image(app, backend, descriptor).await?;
    Ok(crate::app::images::versions::of(app, &image.id))
}

/// An account brings its program.
async fn on_account(
    app: &App,
    request: &CreateSession,
    name: &str,
    backend: Option<String>,
) -> ApiResult<Choice> {
    let unusable =
        |detail: String| ApiError::titled(ProblemCode::Invalid, "model access unusable", detail);
    if request.provider.is_some() {
        let detail = "name an account or a provider, and not both";
        return Err(unusable(detail.to_owned()));
    }
    let account = accounts::usable(app, name)?;
    if let Some(harness) = &request.harness
        && *harness != account.harness
    {
        let own = &account.harness;
        return Err(unusable(format!(
            "account `{name}` is one of {own}, not of {harness}"
        )));
    }
    let descriptor = harnesses::descriptor(&account.harness)?;
    let version = version(app, backend.as_deref(), descriptor).await?;
    Ok(Choice {
        descriptor,
        account: Some(name.to_owned()),
        provider_name: String::new(),
        model: request.model.clone().unwrap_or_default(),
        permissions: request.permissions.unwrap_or_default(),
        backend,
        version,
    })
}

fn provider(app: &App, request: &CreateSession) -> ApiResult<(String, Provider)> {
    if let Some(name) = &request.provider {
        return Ok((name.clone(), providers::usable(app, name)?));
    }
    let wanted = request
        .harness
        .as_deref()
        .map(harnesses::descriptor)
        .transpose()?;
    let fits = |provider: &Provider| match wanted {
        Some(descriptor) => descriptor
            .provider_protocols
            .iter()
            .any(|p| provider.endpoints.contains_key(p)),
        None => true,
    };
    let mut fitting: Vec<(String, Provider)> = providers::readable(app)?
        .into_iter()
        .filter(|(_, p)| fits(p))
        .collect();
    match fitting.len() {
        1 => Ok(fitting.remove(0)),
        0 => Err(ApiError::new(
            ProblemCode::NotConfigured,
            "no provider fits: say where the model is with `handler provider add` (templates: \
             `handler provider templates`), or name an account with --account",
        )),
        _ => {
            let names: Vec<_> = fitting.iter().map(|(name, _)| name.as_str()).collect();
            Err(ApiError::new(
                ProblemCode::Invalid,
                format!(
                    "several providers fit; choose one with --provider: {}",
                    names.join(", ")
                ),
            ))
        }
    }
}

async fn harness(
    app: &App,
    request: &CreateSession,
    backend: Option<&str>,
    provider_name: &str,
    provider: &Provider,
) -> ApiResult<&'static HarnessDescriptor> {
    if let Some(name) = &request.harness {
        return harnesses::descriptor(name);
    }
    let usable = handler_harness::usable_harnesses(&provider.endpoints);
    // Several: the first of the catalogue, which is the order of `handler harness list`.
    for descriptor in usable
        .iter()
        .filter_map(|name| handler_harness::descriptor(name))
    {
        let is_ready = match backend {
            None => harnesses::installed(app, descriptor).is_ok(),
            Some(backend) => harnesses::image(app, backend, descriptor).await.is_ok(),
        };
        if is_ready {
            return Ok(descriptor);
        }
    }
    match backend {
        _ if usable.is_empty() => Err(ApiError::new(
            ProblemCode::Invalid,
            format!("no agent program speaks a protocol of provider `{provider_name}`"),
        )),
        Some(backend) => Err(ApiError::new(
            ProblemCode::NotConfigured,
            format!(
                "no agent program that can use `{provider_name}` has an image on {backend}; build one with \
                 `handler image rebuild NAME --backend {backend}`: {}",
                usable.join(", ")
            ),
        )),
        None => Err(ApiError::new(
            ProblemCode::NotConfigured,
            format!(
                "no agent program that can use `{provider_name}` is installed; install one with \
                 `handler harness install NAME`: {}",
                usable.join(", ")
            ),
        )),
    }
}
