//! What an agent's model calls go through, resolved: values become stand-ins, files are read.

use crate::app::{accounts, providers, sandboxes::phantom_of, secrets};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::account::Account;
use handler_types::agent::Through;
use handler_types::harness::{
    AccountAccess, AccountLogin, HarnessDescriptor, ModelAccess, ProviderAccess,
};
use handler_types::network::AllowEntry;
use handler_types::provider::{FileSource, Provider, SecretRef};
use handler_types::sandbox::PhantomBinding;
use handler_types::{ProblemCode, SecretValue};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

/// What stands in a launch for the file of an account's login, which is put into the sandbox by its guest.
pub(super) const LOGIN_PLACE: &str = "/a-login-stands-here";
/// Longest config file of a provider, bytes (contract E).
const MAX_FILE: u64 = 1 << 20;

/// What the model calls of an agent go through.
#[derive(Debug, Clone)]
pub enum ModelUse<'a> {
    /// A provider, with one of its models.
    Provider {
        /// Its name.
        name: &'a str,
        /// The provider.
        provider: Provider,
        /// One of its models.
        model: &'a str,
    },
    /// An account.
    Account {
        /// Its name.
        name: &'a str,
        /// The account.
        account: Account,
        /// A model that the program knows; none: its own choice.
        model: Option<&'a str>,
    },
}

impl<'a> ModelUse<'a> {
    /// What is named, as it is now. On an account an empty `model` is the program's own choice.
    ///
    /// # Errors
    /// 424 when it is missing or wrong, with what to do.
    pub fn of(app: &App, through: Through<'a>, model: &'a str) -> ApiResult<Self> {
        Ok(match through {
            Through::Provider(name) => Self::Provider {
                name,
                provider: providers::usable(app, name)?,
                model,
            },
            Through::Account(name) => Self::Account {
                name,
                account: accounts::usable(app, name)?,
                model: Some(model).filter(|model| !model.is_empty()),
            },
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        match self {
            Self::Provider { name, .. } | Self::Account { name, .. } => name,
        }
    }

    /// The contexts it is made for.
    #[must_use]
    pub fn contexts(&self) -> &[String] {
        match self {
            Self::Provider { provider, .. } => &provider.contexts,
            Self::Account { account, .. } => &account.contexts,
        }
    }

    /// The hosts that a harness reaches through it.
    #[must_use]
    pub fn hosts(&self, descriptor: &HarnessDescriptor) -> Vec<AllowEntry> {
        match self {
            Self::Account { .. } => descriptor
                .login
                .as_ref()
                .map(|login| login.hosts.clone())
                .unwrap_or_default(),
            Self::Provider { provider, .. } => {
                let mut protocols = descriptor.provider_protocols.iter();
                let endpoint = protocols.find_map(|p| provider.endpoints.get(p));
                let endpoint = endpoint.and_then(|url| handler_harness::Endpoint::parse(url).ok());
                endpoint.map(|one| one.allow).into_iter().collect()
            }
        }
    }

    /// The values behind it as far as they can be had, to be taken out of texts.
    pub async fn values(&self, app: &App, descriptor: &HarnessDescriptor) -> Vec<SecretValue> {
        match self {
            Self::Provider { provider, .. } => match &provider.api_key {
                Some(key) => secrets::resolve(app, key).await.into_iter().collect(),
                None => Vec::new(),
            },
            Self::Account { name, account, .. } if account.token.is_some() => {
                let token = accounts::token(app, name, account, descriptor).await;
                token.into_iter().map(|(_, value)| value).collect()
            }
            Self::Account { name, .. } => {
                let tokens = accounts::file_tokens(app, name).await;
                tokens.unwrap_or_default()
            }
        }
    }

    /// As `render` takes it, with something in the place of every value that is not looked up.
    pub(super) fn without_values(&self, descriptor: &HarnessDescriptor) -> ModelAccess {
        match self {
            Self::Provider {
                name,
                provider,
                model,
            } => {
                let key = provider.api_key.as_ref();
                let files = provider.files.get(&descriptor.name);
                let named = files.into_iter().flat_map(BTreeMap::keys);
                provided(
                    name,
                    provider,
                    model,
                    key.map(|_| "a-key-stands-here".to_owned()),
                    named.map(|slot| (slot.clone(), String::new())).collect(),
                )
            }
            Self::Account {
                name,
                account,
                model,
            } => {
                let login = descriptor.login.as_ref();
                let token = login.filter(|login| login.token.is_some()).map(|login| {
                    let prefix = login.token_prefix.as_deref().unwrap_or_default();
                    AccountLogin::Token(format!("{prefix}a-token-stands-here"))
                });
                let login = token.unwrap_or_else(|| AccountLogin::File(LOGIN_PLACE.to_owned()));
                on_account(name, account, *model, login)
            }
        }
    }
}

fn provided(
    name: &str,
    provider: &Provider,
    model: &str,
    key: Option<String>,
    files: BTreeMap<String, String>,
) -> ModelAccess {
    ModelAccess::Provider(ProviderAccess {
        name: name.to_owned(),
        provider: provider.clone(),
        model: model.to_owned(),
        key,
        files,
    })
}

fn on_account(
    name: &str,
    account: &Account,
    model: Option<&str>,
    login: AccountLogin,
) -> ModelAccess {
    ModelAccess::Account(AccountAccess {
        name: name.to_owned(),
        login,
        plan: account.plan.clone(),
        connectors: account.connectors,
        model: model.map(str::to_owned),
    })
}

/// With values behind it.
pub(super) struct Resolved {
    pub(super) access: ModelAccess,
    /// What stands for the key or token, without its hosts yet.
    pub(super) binding: Option<PhantomBinding>,
    /// Values that must not appear in any log.
    pub(super) redact: Vec<SecretValue>,
    /// The stored login whose file it needs.
    pub(super) login: Option<String>,
}

/// Looks its values up.
///
/// # Errors
/// 424 for a key or token without a value, an account that is not logged in, a file that cannot be read.
pub(super) async fn resolve(
    app: &App,
    used: &ModelUse<'_>,
    descriptor: &HarnessDescriptor,
) -> ApiResult<Resolved> {
    match used {
        ModelUse::Provider {
            name,
            provider,
            model,
        } => {
            let (binding, redact) = match &provider.api_key {
                None => (None, Vec::new()),
                Some(key) => {
                    let value = secrets::resolve(app, key).await?;
                    let binding = bind(providers::key_path(name), key.clone(), &value)?;
                    (Some(binding), vec![value])
                }
            };
            let key = binding.as_ref().map(|one| one.phantom.clone());
            let files = files(name, provider, descriptor).await?;
            Ok(Resolved {
                access: provided(name, provider, model, key, files),
                binding,
                redact,
                login: None,
            })
        }
        ModelUse::Account {
            name,
            account,
            model,
        } => on(app, name, account, *model, descriptor).await,
    }
}

async fn on(
    app: &App,
    name: &str,
    account: &Account,
    model: Option<&str>,
    descriptor: &HarnessDescriptor,
) -> ApiResult<Resolved> {
    let is_token = descriptor
        .login
        .as_ref()
        .is_some_and(|login| login.token.is_some());
    if !is_token {
        let redact = accounts::file_tokens(app, name).await?;
        let login = AccountLogin::File(LOGIN_PLACE.to_owned());
        return Ok(Resolved {
            access: on_account(name, account, model, login),
            binding: None,
            redact,
            login: Some(accounts::stored(name)),
        });
    }
    let (reference, value) = accounts::token(app, name, account, descriptor).await?;
    let binding = bind(accounts::token_path(name), reference, &value)?;
    let login = AccountLogin::Token(binding.phantom.clone());
    Ok(Resolved {
        access: on_account(name, account, model, login),
        binding: Some(binding),
        redact: vec![value],
        login: None,
    })
}

fn bind(name: String, secret: SecretRef, value: &SecretValue) -> ApiResult<PhantomBinding> {
    let phantom = phantom_of(value.expose(), &name)?;
    Ok(PhantomBinding {
        name,
        secret,
        env: None,
        phantom,
        hosts: Vec::new(),
    })
}

/// The provider's config files for a harness, read.
async fn files(
    name: &str,
    provider: &Provider,
    descriptor: &HarnessDescriptor,
) -> ApiResult<BTreeMap<String, String>> {
    let mut read = BTreeMap::new();
    let named = provider.files.get(&descriptor.name).into_iter().flatten();
    for (slot, source) in named {
        let content = match source {
            FileSource::Content(text) => Ok(text.clone()),
            FileSource::Env(variable) => std::env::var(variable)
                .map_err(|_| format!("variable {variable} is not set in the daemon's environment")),
            FileSource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                read.unwrap_or_else(|_| Err("the daemon is stopping".to_owned()))
            }
        };
        let content = content.map_err(|why| {
            let detail = format!("provider `{name}`: its file {slot} cannot be had: {why}");
            ApiError::new(ProblemCode::NotConfigured, detail)
        })?;
        read.insert(slot.clone(), content);
    }
    Ok(read)
}

fn read_file(path: &str) -> Result<String, String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let full = match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None => path.to_owned(),
    };
    let failed = |error: std::io::Error| format!("{path}: {error}");
    // Not waiting for a writer, should the name be a pipe's.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(full)
        .map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("{path} is no regular file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("{path} is larger than 1 MiB"));
    }
    Ok(text)
}
