//! One sandbox's settings as the filter holds them: checked, indexed, values wiped when dropped.
//!
//! Invariant: phantom and value of a secret have the same length and are printable ASCII, so that
//! swapping them changes no length and breaks no header.

use crate::decide::Policy;
use crate::index::AllowIndex;
use crate::target::Target;
use handler_types::egress::{EgressSettings, Injection, Renews};
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroizing;

const SHORTEST_SECRET: usize = 8;
const LONGEST_SECRET: usize = 16 * 1024;
const MOST_SECRETS: usize = 256;
const LONGEST_TEXT: usize = 512;

/// Why settings cannot be used. Never shows a value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsError {
    /// Phantom or value cannot be swapped.
    #[error(
        "injection `{0}`: phantom and value must be 8 to 16384 characters of printable ASCII without space"
    )]
    Unprintable(String),
    /// Not equally long.
    #[error("injection `{0}`: phantom and value must be equally long and different")]
    Length(String),
    /// Nowhere to give it to.
    #[error("injection `{0}`: at least one host is needed")]
    NoHosts(String),
    /// One phantom for two values.
    #[error("injection `{0}`: its phantom stands for another value as well")]
    Ambiguous(String),
    /// Too much.
    #[error(
        "at most {MOST_SECRETS} injections, and at most {LONGEST_TEXT} bytes of label and name"
    )]
    TooMuch,
}

/// A secret of a sandbox.
pub(crate) struct Secret {
    /// What events call it.
    pub(crate) name: String,
    /// The stand-in.
    pub(crate) phantom: Zeroizing<String>,
    /// What it stands for.
    pub(crate) value: Zeroizing<String>,
    /// The login that it renews, if it is a refresh token.
    pub(crate) renews: Option<Renews>,
    hosts: AllowIndex,
}

impl Secret {
    /// Whether the value may be given to this destination.
    pub(crate) fn is_for(&self, target: &Target) -> bool {
        self.hosts.lists(target)
    }

    /// The entry of its hosts that is this destination's.
    pub(crate) fn rule(&self, target: &Target) -> Option<String> {
        self.hosts.rule(target)
    }
}

/// Everything that is decided by for one sandbox, at one time.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Counts up with each change.
    pub(crate) generation: u64,
    /// Shown in events.
    pub(crate) label: String,
    /// What may be reached.
    pub(crate) policy: Policy,
    /// What is swapped.
    pub(crate) secrets: Vec<Secret>,
}

impl Rules {
    /// Checks settings; gives the rules and where to listen.
    pub(crate) fn new(
        settings: EgressSettings,
        generation: u64,
    ) -> Result<(Self, PathBuf), SettingsError> {
        let mut secrets: Vec<Secret> = settings.injections.into_iter().map(Secret::from).collect();
        let long = |text: &str| text.len() > LONGEST_TEXT;
        if secrets.len() > MOST_SECRETS
            || long(&settings.label)
            || secrets.iter().any(|secret| long(&secret.name))
        {
            return Err(SettingsError::TooMuch);
        }
        for (position, secret) in secrets.iter().enumerate() {
            check(secret, &secrets[..position])?;
        }
        let policy = Policy::new(&settings.policy);
        if matches!(policy, Policy::None) {
            // Nothing goes out, so nothing needs them.
            secrets.clear();
        }
        let rules = Self {
            generation,
            label: settings.label,
            policy,
            secrets,
        };
        Ok((rules, PathBuf::from(settings.listen)))
    }

    /// Rules of a sandbox that is gone: nothing is allowed, nothing is known.
    pub(crate) fn nothing(generation: u64) -> Self {
        Self {
            generation,
            label: String::new(),
            policy: Policy::None,
            secrets: Vec::new(),
        }
    }

    /// Whether a secret is given to this destination: its tunnels are looked into.
    pub(crate) fn injects_to(&self, target: &Target) -> bool {
        self.secrets.iter().any(|secret| secret.is_for(target))
    }

    /// Whether the same secrets are known under `other`, and the same given to this destination.
    pub(crate) fn gives_alike(&self, other: &Self, target: &Target) -> bool {
        let alike = |(one, two): (&Secret, &Secret)| {
            one.phantom == two.phantom
                && one.value == two.value
                && one.is_for(target) == two.is_for(target)
        };
        self.secrets.len() == other.secrets.len()
            && self.secrets.iter().zip(&other.secrets).all(alike)
    }
}

impl From<Injection> for Secret {
    fn from(injection: Injection) -> Self {
        Self {
            name: injection.name,
            phantom: Zeroizing::new(injection.phantom),
            value: Zeroizing::new(injection.value),
            renews: injection.renews,
            hosts: AllowIndex::new(&injection.hosts),
        }
    }
}

fn check(secret: &Secret, before: &[Secret]) -> Result<(), SettingsError> {
    let name = || secret.name.clone();
    let printable = |text: &str| {
        (SHORTEST_SECRET..=LONGEST_SECRET).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if !printable(&secret.phantom) || !printable(&secret.value) {
        return Err(SettingsError::Unprintable(name()));
    }
    if secret.phantom.len() != secret.value.len() || secret.phantom == secret.value {
        return Err(SettingsError::Length(name()));
    }
    if secret.hosts.is_empty() {
        return Err(SettingsError::NoHosts(name()));
    }
    let ambiguous = |other: &Secret| other.phantom == secret.phantom && other.value != secret.value;
    if before.iter().any(ambiguous) {
        return Err(SettingsError::Ambiguous(name()));
    }
    Ok(())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use handler_types::network::NetworkPolicy;

    /// Settings that allow everything public and hold these secrets: name, phantom, value, host.
    pub(crate) fn settings(secrets: &[(&str, &str, &str, &str)]) -> EgressSettings {
        EgressSettings {
            listen: "/nowhere/proxy.sock".to_owned(),
            policy: NetworkPolicy::Open,
            injections: secrets
                .iter()
                .map(|(name, phantom, value, host)| Injection {
                    name: (*name).to_owned(),
                    phantom: (*phantom).to_owned(),
                    value: (*value).to_owned(),
                    hosts: host
                        .split_terminator(' ')
                        .map(|host| host.parse().expect(host))
                        .collect(),
                    renews: None,
                })
                .collect(),
            label: String::new(),
        }
    }

    #[test]
    fn secrets_that_cannot_be_swapped_are_refused_without_showing_them() {
        for (phantom, value, host) in [
            ("short", "sHORT", "a.com:443"),
            ("phantom-1", "longer-value", "a.com:443"),
            ("phantom-1", "with space", "a.com:443"),
            ("phantom-1", "with\nline", "a.com:443"),
            ("phantom-1", "vâlue-12", "a.com:443"),
            ("same-text", "same-text", "a.com:443"),
            ("phantom-1", "vALUE-abc", ""),
        ] {
            let error =
                Rules::new(settings(&[("path", phantom, value, host)]), 1).expect_err("unusable");
            assert!(!error.to_string().contains(value), "{error}");
            assert!(error.to_string().contains("path"));
        }
        let two = [
            ("one", "phantom-1", "value-abc", "a.com:443"),
            ("two", "phantom-1", "value-xyz", "b.com:443"),
        ];
        assert!(matches!(
            Rules::new(settings(&two), 1),
            Err(SettingsError::Ambiguous(_))
        ));
    }

    #[test]
    fn nothing_that_is_printed_for_debugging_shows_a_value() {
        let (rules, _) = Rules::new(
            settings(&[("path", "phantom-1", "value-abc", "a.com:443")]),
            1,
        )
        .expect("settings");
        let text = format!("{rules:?}");
        assert!(text.contains("path") && !text.contains("value-abc"));
    }
}
