//! What is reported about one request: each secret given once, a leak once.

use crate::sandbox::Sandbox;
use crate::settings::Rules;
use crate::target::Target;
use handler_types::egress::EgressDecision;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Reports about one request, from wherever its bytes are looked at.
#[derive(Debug)]
pub(crate) struct RequestReport {
    sandbox: Arc<Sandbox>,
    rules: Arc<Rules>,
    target: Target,
    given: Mutex<Vec<usize>>,
    leak: OnceLock<usize>,
}

impl RequestReport {
    /// Nothing reported yet.
    pub(crate) fn new(sandbox: Arc<Sandbox>, rules: Arc<Rules>, target: Target) -> Self {
        Self {
            sandbox,
            rules,
            target,
            given: Mutex::default(),
            leak: OnceLock::new(),
        }
    }

    /// Values of these secrets are being given.
    pub(crate) fn given(&self, secrets: &[usize]) {
        for secret in secrets {
            let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            if given.contains(secret) {
                continue;
            }
            given.push(*secret);
            drop(given);
            self.report(EgressDecision::Injected, *secret, None);
        }
    }

    /// A phantom was going out where it must not; `place` says in which part of the request.
    pub(crate) fn leaked(&self, secret: usize, place: &'static str) {
        if self.leak.set(secret).is_ok() {
            self.report(EgressDecision::Leak, secret, Some(place));
        }
    }

    /// The name of the secret whose phantom was found, if one was.
    pub(crate) fn leak(&self) -> Option<&str> {
        let secret = self.rules.secrets.get(*self.leak.get()?)?;
        Some(&secret.name)
    }

    fn report(&self, decision: EgressDecision, secret: usize, reason: Option<&'static str>) {
        let name = self
            .rules
            .secrets
            .get(secret)
            .map(|secret| secret.name.clone());
        self.sandbox
            .report(&self.rules, decision, self.target.to_string(), name, reason);
    }
}
