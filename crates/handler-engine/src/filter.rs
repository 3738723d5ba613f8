//! The egress filter as the engine sees it, and the pure building of one sandbox's settings.
//!
//! Invariant: values of secrets exist in this crate only between the resolver and the filter; they are
//! asked for anew each time settings are put, and never kept.

use crate::error::EngineError;
use async_trait::async_trait;
use handler_types::egress::{EgressSettings, Injection, Renews};
use handler_types::login::is_refresh;
use handler_types::network::NetworkPolicy;
use handler_types::provider::SecretRef;
use handler_types::sandbox::{LoginBinding, PhantomBinding, SandboxSpec};
use handler_types::{SandboxId, SecretValue};
use std::path::Path;
use tokio::sync::watch;

/// Why the filter could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(pub String);

/// Operates the egress filter. Calls are idempotent.
#[async_trait]
pub trait EgressControl: Send + Sync + std::fmt::Debug {
    /// Makes or replaces a sandbox's settings; answers its CA certificate (PEM).
    async fn put(
        &self,
        sandbox: &SandboxId,
        settings: EgressSettings,
    ) -> Result<String, FilterError>;
    /// Closes a sandbox's listener and forgets its secrets. Done also when it is not known.
    async fn remove(&self, sandbox: &SandboxId) -> Result<(), FilterError>;
    /// Sandboxes the filter knows.
    async fn list(&self) -> Result<Vec<String>, FilterError>;
    /// Changes whenever a new filter process has taken over, which knows nothing: put everything again.
    fn generation(&self) -> watch::Receiver<u64>;
}

/// Finds values of secrets.
#[async_trait]
pub trait SecretResolver: Send + Sync {
    /// The value, or why there is none, in words without the value.
    async fn resolve(&self, secret: &SecretRef) -> Result<SecretValue, String>;
    /// The stand-ins of a login in a sandbox and what they stand for now, the newest last; or why there are none.
    async fn login(&self, binding: &LoginBinding) -> Result<Vec<LoginToken>, String>;
}

/// A login's token with its stand-in.
#[derive(Debug)]
pub struct LoginToken {
    /// Its field in the file, a JSON pointer.
    pub field: String,
    /// The stand-in.
    pub phantom: String,
    /// The token, exactly as long.
    pub value: SecretValue,
}

/// The policy the filter enforces: what was asked for, and the hosts that secrets are given to.
#[must_use]
pub fn effective_policy(spec: &SandboxSpec) -> NetworkPolicy {
    let mut policy = spec.network.clone();
    if let NetworkPolicy::Filtered { allow, .. } = &mut policy {
        let logins = spec.logins.iter().flat_map(|binding| &binding.hosts);
        let secrets = spec.phantoms.iter().flat_map(|binding| &binding.hosts);
        for host in secrets.chain(logins) {
            if !allow.contains(host) {
                allow.push(host.clone());
            }
        }
    }
    policy
}

/// Binds one phantom to its secret's value.
fn bind(binding: &PhantomBinding, value: &SecretValue) -> Result<Injection, EngineError> {
    if value.expose().len() != binding.phantom.len() {
        return Err(EngineError::Secret {
            secret: binding.name.clone(),
            reason:
                "its value has another length than when the sandbox was made; make a new sandbox"
                    .to_owned(),
        });
    }
    Ok(Injection {
        name: binding.name.clone(),
        phantom: binding.phantom.clone(),
        value: value.expose().to_owned(),
        hosts: binding.hosts.clone(),
        renews: None,
    })
}

fn bind_login(binding: &LoginBinding, token: &LoginToken) -> Injection {
    Injection {
        name: format!("logins/{}", binding.login),
        phantom: token.phantom.clone(),
        value: token.value.expose().to_owned(),
        hosts: binding.hosts.clone(),
        renews: is_refresh(&token.field).then(|| Renews {
            login: binding.login.clone(),
            field: token.field.clone(),
        }),
    }
}

/// Builds a sandbox's settings, resolving its secrets. With `strict` a secret without a usable value is an
/// error; else it is left out with a warning in the log (its phantom then stays a phantom).
///
/// # Errors
/// [`EngineError::Secret`].
pub async fn build_settings(
    spec: &SandboxSpec,
    label: &str,
    listen: &Path,
    resolver: &dyn SecretResolver,
    strict: bool,
) -> Result<EgressSettings, EngineError> {
    let mut injections = Vec::with_capacity(spec.phantoms.len());
    for binding in &spec.phantoms {
        let bound = match resolver.resolve(&binding.secret).await {
            Ok(value) => bind(binding, &value),
            Err(reason) => Err(EngineError::Secret {
                secret: binding.name.clone(),
                reason,
            }),
        };
        match bound {
            Ok(injection) => injections.push(injection),
            Err(error) if strict => return Err(error),
            Err(error) => tracing::warn!(%error, "a secret is not given to a running sandbox"),
        }
    }
    for binding in &spec.logins {
        match resolver.login(binding).await {
            Ok(tokens) => injections.extend(tokens.iter().map(|t| bind_login(binding, t))),
            Err(reason) if strict => {
                let secret = format!("logins/{}", binding.login);
                return Err(EngineError::Secret { secret, reason });
            }
            Err(reason) => {
                tracing::warn!(login = binding.login, %reason, "a login is not given to a running sandbox");
            }
        }
    }
    Ok(EgressSettings {
        listen: listen.to_string_lossy().into_owned(),
        policy: effective_policy(spec),
        injections,
        label: label.to_owned(),
    })
}
