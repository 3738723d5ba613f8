//! What an agent's model calls use: a provider (its model, endpoint and key) or an account (its login).

use super::error::shown;
use super::{Provided, RenderError, Rendered, Request, expand};
use crate::endpoint::Endpoint;
use crate::nearest::nearest;
use handler_types::harness::{
    AccountAccess, AccountLogin, HarnessDescriptor, HarnessLogin, ModelAccess, ProviderAccess,
};
use handler_types::launch::{LaunchFile, LaunchMount};
use handler_types::network::AllowEntry;
use handler_types::provider::{Protocol, ProviderModel};
use std::collections::BTreeMap;

/// What stands for the key of a provider without one: the harnesses insist on some value.
const NO_KEY: &str = "none";

/// Longest provider file, bytes.
const MAX_FILE: usize = 1 << 20;

/// Checked.
pub(super) struct Access<'a> {
    pub(super) provided: Option<Provided<'a>>,
    /// Environment of an account.
    pub(super) env: BTreeMap<String, String>,
    /// An account's login file.
    pub(super) mounts: Vec<LaunchMount>,
    pub(super) egress: Vec<AllowEntry>,
    /// The stand-in for the key or token.
    pub(super) secret: Option<&'a str>,
}

pub(super) fn check<'a>(
    descriptor: &'a HarnessDescriptor,
    access: &'a ModelAccess,
) -> Result<Access<'a>, RenderError> {
    match access {
        ModelAccess::Provider(provider) => provided(descriptor, provider),
        ModelAccess::Account(account) => logged_in(descriptor, account),
    }
}

fn provided<'a>(
    descriptor: &HarnessDescriptor,
    access: &'a ProviderAccess,
) -> Result<Access<'a>, RenderError> {
    let model = find_model(access)?;
    let (protocol, endpoint) = find_endpoint(descriptor, access)?;
    Ok(Access {
        env: BTreeMap::new(),
        mounts: Vec::new(),
        egress: vec![endpoint.allow.clone()],
        secret: access.key.as_deref(),
        provided: Some(Provided {
            name: &access.name,
            provider: &access.provider,
            model,
            protocol,
            endpoint,
            key: checked_key(access)?,
            files: &access.files,
        }),
    })
}

fn find_model(access: &ProviderAccess) -> Result<&ProviderModel, RenderError> {
    let models = &access.provider.models;
    let model = models
        .iter()
        .find(|model| model.id == access.model && !model.id.contains(char::is_control))
        .ok_or_else(|| RenderError::Model {
            provider: access.name.clone(),
            model: access.model.chars().take(128).collect(),
            nearest: nearest(&access.model, models.iter().map(|model| model.id.as_str()))
                .map(str::to_owned),
            has: models.iter().take(20).map(|m| m.id.clone()).collect(),
        })?;
    for (field, value) in [
        ("contextWindow", model.context_window),
        ("maxOutput", model.max_output),
    ] {
        if let Some(value) = value.filter(|value| !(1..=100_000_000).contains(value)) {
            return Err(RenderError::Limit {
                model: model.id.clone(),
                field,
                value,
            });
        }
    }
    Ok(model)
}

/// The first protocol of the harness that the provider has an endpoint for.
fn find_endpoint(
    descriptor: &HarnessDescriptor,
    access: &ProviderAccess,
) -> Result<(Protocol, Endpoint), RenderError> {
    let endpoints = &access.provider.endpoints;
    let (protocol, url) = descriptor
        .provider_protocols
        .iter()
        .find_map(|protocol| Some((*protocol, endpoints.get(protocol)?)))
        .ok_or_else(|| RenderError::Protocol {
            product: descriptor.product.clone(),
            provider: access.name.clone(),
            accepts: descriptor.provider_protocols.clone(),
            offers: endpoints.keys().copied().collect(),
        })?;
    let endpoint = Endpoint::parse(url).map_err(|source| RenderError::Endpoint {
        provider: access.name.clone(),
        protocol,
        source,
    })?;
    Ok((protocol, endpoint))
}

fn is_header_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

fn checked_key(access: &ProviderAccess) -> Result<&str, RenderError> {
    match &access.key {
        None => Ok(NO_KEY),
        Some(key) if is_header_value(key) => Ok(key),
        Some(_) => Err(RenderError::Key {
            provider: access.name.clone(),
        }),
    }
}

fn logged_in<'a>(
    descriptor: &'a HarnessDescriptor,
    access: &'a AccountAccess,
) -> Result<Access<'a>, RenderError> {
    let refuse = |problem: String| RenderError::Account {
        product: descriptor.product.clone(),
        account: access.name.clone(),
        problem,
    };
    let login = descriptor.login.as_ref().ok_or_else(|| {
        refuse("it has no accounts; give the agent a provider instead".to_owned())
    })?;
    let mut env = BTreeMap::new();
    let (secret, mounts) = credential(descriptor, login, access, &mut env).map_err(&refuse)?;
    env.extend(plan(login, access).map_err(&refuse)?);
    if access.connectors {
        if descriptor.account_connectors.is_empty() {
            return Err(refuse(
                "its accounts have no connectors; turn them off for it".to_owned(),
            ));
        }
        env.extend(descriptor.account_connectors.clone());
    }
    Ok(Access {
        provided: None,
        env,
        mounts,
        egress: login.hosts.clone(),
        secret,
    })
}

type Credential<'a> = (Option<&'a str>, Vec<LaunchMount>);

/// The token's variable, or the mount of the login file.
fn credential<'a>(
    descriptor: &HarnessDescriptor,
    login: &HarnessLogin,
    access: &'a AccountAccess,
    env: &mut BTreeMap<String, String>,
) -> Result<Credential<'a>, String> {
    let slot = login
        .file
        .as_ref()
        .and_then(|f| descriptor.state_slots.get(f));
    match (&access.login, &login.token, slot) {
        (AccountLogin::Token(token), Some(variable), _) => {
            let prefix = login.token_prefix.as_deref().unwrap_or_default();
            if !is_header_value(token) || !token.starts_with(prefix) {
                let command = login.token_command.as_deref().unwrap_or_default();
                return Err(format!(
                    "its token does not start with `{prefix}`; log in again with what `{command}` prints"
                ));
            }
            env.insert(variable.clone(), token.clone());
            Ok((Some(token), Vec::new()))
        }
        (AccountLogin::File(source), _, Some(slot)) if source.starts_with('/') => {
            let mount = LaunchMount {
                source: source.clone(),
                target: expand(&descriptor.home, &slot.target),
                read_only: slot.read_only,
            };
            Ok((None, vec![mount]))
        }
        (AccountLogin::Token(_), ..) => {
            Err("it logs in with a file, not a token; log in again".to_owned())
        }
        (AccountLogin::File(_), ..) => {
            Err("it logs in with a token, not a file; log in again".to_owned())
        }
    }
}

fn plan(login: &HarnessLogin, access: &AccountAccess) -> Result<Option<(String, String)>, String> {
    let Some(plan) = &access.plan else {
        return Ok(None);
    };
    match &login.plan_env {
        Some(variable) if login.plans.contains(plan) => Ok(Some((variable.clone(), plan.clone()))),
        Some(_) => Err(format!(
            "there is no plan `{}`; choose one of: {}",
            shown(plan, 64),
            login.plans.join(", ")
        )),
        None => Err("its accounts have no plans; remove the plan".to_owned()),
    }
}

/// The model of an account, chosen over ACP.
pub(super) fn model_choice(
    descriptor: &HarnessDescriptor,
    access: &ModelAccess,
) -> Result<BTreeMap<String, String>, RenderError> {
    let ModelAccess::Account(AccountAccess {
        model: Some(model), ..
    }) = access
    else {
        return Ok(BTreeMap::new());
    };
    let option = descriptor.model_option.as_ref();
    let option = option.ok_or_else(|| RenderError::Lacks {
        product: descriptor.product.clone(),
        lacks: "has no option for the model".to_owned(),
        remedy: "leave the model out",
    })?;
    Ok(BTreeMap::from([(option.clone(), model.clone())]))
}

/// The provider's own files for this harness.
pub(super) fn files(
    request: &Request<'_>,
    rendered: &Rendered,
) -> Result<Vec<LaunchFile>, RenderError> {
    let Some(provided) = &request.provided else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for (slot, content) in provided.files {
        let refuse = |problem: String| RenderError::ProviderFile {
            product: request.descriptor.product.clone(),
            provider: provided.name.to_owned(),
            slot: shown(slot, 64),
            problem,
        };
        let known = &request.descriptor.config_files;
        let config = known.get(slot).ok_or_else(|| {
            let names: Vec<_> = known.keys().map(String::as_str).collect();
            refuse(format!("it reads: {}", names.join(", ")))
        })?;
        let file = request.file(&config.target, content.clone(), config.seed);
        if rendered.files.iter().any(|f| f.target == file.target) {
            return Err(refuse(
                "it is written from the provider's other settings; remove it".to_owned(),
            ));
        }
        if content.len() > MAX_FILE {
            return Err(refuse("it is longer than 1 MiB; shorten it".to_owned()));
        }
        files.push(file);
    }
    Ok(files)
}
