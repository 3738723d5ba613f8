//! What is reported about one request: each secret given once, a leak once.

use crate::decide::Reason;
use crate::sandbox::Sandbox;
use crate::settings::Rules;
use crate::target::Target;
use crate::traffic::Traffic;
use handler_types::egress::{EgressDecision, Renews};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Reports about one request, from wherever its bytes are looked at.
#[derive(Debug)]
pub(crate) struct RequestReport {
    sandbox: Arc<Sandbox>,
    rules: Arc<Rules>,
    target: Target,
    given: Mutex<Vec<usize>>,
    leak: OnceLock<usize>,
    traffic: Arc<Traffic>,
    undecodable: OnceLock<()>,
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
            traffic: Arc::default(),
            undecodable: OnceLock::new(),
        }
    }

    /// Bytes of the request's body came from the sandbox.
    pub(crate) fn sent(&self, bytes: usize) {
        self.traffic.sent(bytes);
    }

    /// What counts the request.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
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
            self.report_given(*secret);
        }
    }

    /// The logins whose refresh tokens were given, each once.
    pub(crate) fn renews(&self) -> Vec<Renews> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Renews> = Vec::new();
        for secret in given.iter().filter_map(|at| self.rules.secrets.get(*at)) {
            if let Some(renews) = &secret.renews
                && !all.contains(renews)
            {
                all.push(renews.clone());
            }
        }
        all
    }

    /// A phantom was going out where it must not; `place` says in which part of the request.
    pub(crate) fn leaked(&self, secret: usize, place: &'static str) {
        if self.leak.set(secret).is_ok() {
            self.report_leak(secret, place);
        }
    }

    /// The body does not follow its coding, and goes no further.
    pub(crate) fn undecodable(&self) {
        if self.undecodable.set(()).is_ok() {
            let (host, reason) = (self.target.to_string(), Reason::Coding.as_str());
            self.sandbox.report(
                &self.rules,
                EgressDecision::Denied,
                host,
                None,
                Some(reason),
            );
        }
    }

    /// Whether the body did not follow its coding.
    pub(crate) fn is_undecodable(&self) -> bool {
        self.undecodable.get().is_some()
    }

    /// The name of the secret whose phantom was found, if one was.
    pub(crate) fn leak(&self) -> Option<&str> {
        let secret = self.rules.secrets.get(*self.leak.get()?)?;
        Some(&secret.name)
    }

    fn report_given(&self, secret: usize) {
        let secret = self.rules.secrets.get(secret);
        self.sandbox.report_rule(
            &self.rules,
            EgressDecision::Injected,
            self.target.to_string(),
            secret.map(|secret| secret.name.clone()),
            secret.and_then(|secret| secret.rule(&self.target)),
        );
    }

    fn report_leak(&self, secret: usize, place: &'static str) {
        let secret = self.rules.secrets.get(secret);
        self.sandbox.report(
            &self.rules,
            EgressDecision::Leak,
            self.target.to_string(),
            secret.map(|secret| secret.name.clone()),
            Some(place),
        );
    }
}
