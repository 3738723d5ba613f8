//! The sandboxes the filter knows. Settings are put whole: rules and listener change together, or not at all.

use crate::accept;
use crate::authority::AuthorityError;
use crate::listener::{ListenError, listen};
use crate::sandbox::{Sandbox, Shared};
use crate::settings::{Rules, SettingsError};
use handler_types::egress::EgressSettings;
use handler_types::observe::EgressTraffic;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

const LONGEST_ID: usize = 128;
const MOST_SANDBOXES: usize = 16 * 1024;

/// Why settings were not put. Never shows a value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutError {
    /// Not an id.
    #[error("a sandbox id has 1 to {LONGEST_ID} printable characters")]
    Id,
    /// Too many.
    #[error("the filter knows {MOST_SANDBOXES} sandboxes already")]
    Full,
    /// Unusable settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No listener.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// All sandboxes.
#[derive(Debug)]
pub(crate) struct Registry {
    shared: Arc<Shared>,
    generation: AtomicU64,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
}

impl Registry {
    /// None yet.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            generation: AtomicU64::new(0),
            sandboxes: Mutex::default(),
        }
    }

    /// What all share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Makes or replaces a sandbox's settings; gives its authority's certificate.
    pub(crate) async fn put(&self, id: &str, settings: EgressSettings) -> Result<String, PutError> {
        if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(PutError::Id);
        }
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        let (rules, path) = Rules::new(settings, generation)?;
        let mut sandboxes = self.sandboxes.lock().await;
        let known = sandboxes.get(id).cloned();
        if known.is_none() && sandboxes.len() >= MOST_SANDBOXES {
            return Err(PutError::Full);
        }
        let place = match &known {
            Some(sandbox) if sandbox.listens_at(&path) => None,
            _ => Some(listen(&path)?),
        };
        let secrets = rules.secrets.len();
        let sandbox = match known {
            Some(sandbox) => {
                sandbox.replace_rules(rules);
                sandbox
            }
            None => Sandbox::new(id, self.shared.clone(), rules)?,
        };
        if let Some((listener, listening, end)) = place {
            accept::start(&sandbox, listener, end);
            sandbox.set_listening(Some(listening));
        }
        let pem = sandbox.authority.pem().to_owned();
        sandboxes.insert(id.to_owned(), sandbox);
        tracing::info!(sandbox = id, generation, secrets, "settings put");
        Ok(pem)
    }

    /// Closes and forgets a sandbox; nothing to do if it is not known.
    pub(crate) async fn remove(&self, id: &str) {
        let gone = self.sandboxes.lock().await.remove(id);
        if let Some(sandbox) = gone {
            sandbox.close().await;
            self.shared.events.retire(id);
            tracing::info!(sandbox = id, "removed");
        }
        // Also one that this filter never heard of: the filter before it has.
        self.shared.keep.remove(id);
    }

    /// What went through for each.
    pub(crate) async fn traffic(&self) -> BTreeMap<String, EgressTraffic> {
        let sandboxes = self.sandboxes.lock().await;
        let each = sandboxes.iter();
        each.map(|(id, sandbox)| (id.clone(), sandbox.traffic.read()))
            .collect()
    }

    /// Ids, sorted.
    pub(crate) async fn list(&self) -> Vec<String> {
        self.sandboxes.lock().await.keys().cloned().collect()
    }

    /// Whether there is no sandbox.
    pub(crate) async fn is_empty(&self) -> bool {
        self.sandboxes.lock().await.is_empty()
    }

    /// Closes everything.
    pub(crate) async fn close(&self) {
        let gone = std::mem::take(&mut *self.sandboxes.lock().await);
        futures::future::join_all(gone.values().map(|sandbox| sandbox.close())).await;
    }
}
