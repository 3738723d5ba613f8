//! A filter that only remembers its settings, and secrets that are fixed.

use crate::filter::{EgressControl, FilterError, LoginToken, SecretResolver};
use async_trait::async_trait;
use handler_types::egress::EgressSettings;
use handler_types::provider::SecretRef;
use handler_types::sandbox::LoginBinding;
use handler_types::{SandboxId, SecretValue};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

#[derive(Debug)]
struct Inner {
    known: Mutex<BTreeMap<String, EgressSettings>>,
    failing: Mutex<Option<String>>,
    generation: watch::Sender<u64>,
}

/// Remembers settings; lives as long as any clone.
#[derive(Debug, Clone)]
pub struct FakeFilter(Arc<Inner>);

impl Default for FakeFilter {
    fn default() -> Self {
        Self(Arc::new(Inner {
            known: Mutex::default(),
            failing: Mutex::default(),
            generation: watch::Sender::new(1),
        }))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeFilter {
    /// The settings it has now.
    #[must_use]
    pub fn now(&self) -> BTreeMap<String, EgressSettings> {
        lock(&self.0.known).clone()
    }

    /// As if its process had died and a new one had taken over.
    pub fn restart(&self) {
        lock(&self.0.known).clear();
        self.0.generation.send_modify(|generation| *generation += 1);
    }

    /// From now on every put fails with this text, or none does.
    pub fn fail_puts(&self, message: Option<&str>) {
        *lock(&self.0.failing) = message.map(ToOwned::to_owned);
    }
}

#[async_trait]
impl EgressControl for FakeFilter {
    async fn put(
        &self,
        sandbox: &SandboxId,
        settings: EgressSettings,
    ) -> Result<String, FilterError> {
        if let Some(message) = lock(&self.0.failing).clone() {
            return Err(FilterError(message));
        }
        lock(&self.0.known).insert(sandbox.to_string(), settings);
        Ok(format!("authority {}", *self.0.generation.borrow()))
    }

    async fn remove(&self, sandbox: &SandboxId) -> Result<(), FilterError> {
        lock(&self.0.known).remove(sandbox.as_str());
        Ok(())
    }

    async fn list(&self) -> Result<Vec<String>, FilterError> {
        Ok(lock(&self.0.known).keys().cloned().collect())
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }
}

/// Secrets by their path in the store; can be changed while in use.
#[derive(Debug, Clone, Default)]
pub struct FixedSecrets(Arc<Mutex<BTreeMap<String, String>>>);

impl FixedSecrets {
    /// Sets a value.
    pub fn set(&self, path: &str, value: &str) {
        lock(&self.0).insert(path.to_owned(), value.to_owned());
    }

    /// Removes a value.
    pub fn unset(&self, path: &str) {
        lock(&self.0).remove(path);
    }
}

#[async_trait]
impl SecretResolver for FixedSecrets {
    async fn resolve(&self, secret: &SecretRef) -> Result<SecretValue, String> {
        let SecretRef::Secret(path) = secret else {
            return Err("only stored secrets are known here".to_owned());
        };
        let value = lock(&self.0).get(path).cloned();
        value
            .map(SecretValue::new)
            .ok_or_else(|| "it has no value".to_owned())
    }

    async fn login(&self, binding: &LoginBinding) -> Result<Vec<LoginToken>, String> {
        Err(format!("there is no login `{}`", binding.login))
    }
}
