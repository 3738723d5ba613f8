//! Logins at rest: credential files, and what stands for their tokens in which sandbox.
//!
//! Invariant: a login and all its stand-ins are one sealed value, so that a renewal is kept whole or not at all.

use crate::secrets::{SecretError, SecretStore};
use handler_types::SecretValue;
use handler_types::api::SecretView;
use handler_types::network::AllowEntry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

/// Longest sealed login with its stand-ins, bytes.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// Most logins.
const MOST_LOGINS: usize = 64;

/// A login.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Login {
    /// Its file as a program would have it, real tokens in it.
    #[serde(with = "wiped")]
    pub file: Zeroizing<String>,
    /// Where its tokens are given to when a sandbox names no hosts.
    #[serde(default)]
    pub hosts: Vec<AllowEntry>,
    /// When its file was given last, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_ms: Option<i64>,
    /// When a sandbox's request renewed it last, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_ms: Option<i64>,
    /// What stands for its tokens, by the grant of a sandbox.
    #[serde(default)]
    pub grants: BTreeMap<String, Vec<StandIn>>,
}

/// One text in a sandbox that stands for a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StandIn {
    /// The token's field, a JSON pointer; empty: a token of before, which is only to be known.
    pub field: String,
    /// The stand-in.
    pub phantom: String,
    /// What it stands for now.
    #[serde(with = "wiped")]
    pub value: Zeroizing<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("hosts", &self.hosts)
            .field("grants", &self.grants.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandIn")
            .field("field", &self.field)
            .finish_non_exhaustive()
    }
}

/// The logins; clones share them. A sealed file of their own, opened with the key of the secrets.
#[derive(Debug, Clone)]
pub struct LoginStore {
    sealed: SecretStore,
    /// Held while one is changed on the ground of what it is.
    turn: Arc<Mutex<()>>,
}

impl LoginStore {
    /// Logins in a sealed file with its key in another; neither needs to exist.
    #[must_use]
    pub fn new(file: PathBuf, key: PathBuf) -> Self {
        Self {
            sealed: SecretStore::holding(file, key, MOST_BYTES),
            turn: Arc::default(),
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn get(&self, name: &str) -> Result<Option<Login>, SecretError> {
        match self.sealed.get(name).await? {
            Some(value) => open(&value).map(Some),
            None => Ok(None),
        }
    }

    /// Their names and times, without values.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn list(&self) -> Result<Vec<SecretView>, SecretError> {
        self.sealed.list().await
    }

    /// Changes one, or makes it, if `work` says so by `Ok`; nothing is kept of what it did otherwise.
    ///
    /// # Errors
    /// [`SecretError`] outside, that of `work` inside.
    pub async fn change<T, E>(
        &self,
        name: &str,
        work: impl FnOnce(Option<Login>) -> Result<(Login, T), E>,
    ) -> Result<Result<T, E>, SecretError> {
        let _turn = self.turn.lock().await;
        let known = self.get(name).await?;
        if known.is_none() && self.sealed.list().await?.len() >= MOST_LOGINS {
            return Err(SecretError::TooMany);
        }
        match work(known) {
            Ok((login, outcome)) => {
                self.sealed.set(name, seal(&login), None).await?;
                Ok(Ok(outcome))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Removes one; says whether it was there.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn remove(&self, name: &str) -> Result<bool, SecretError> {
        let _turn = self.turn.lock().await;
        self.sealed.remove(name).await
    }

    /// Forgets the stand-ins of sandboxes that are not among those `there`, which is asked while nothing changes.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn keep_grants(
        &self,
        there: impl FnOnce() -> BTreeSet<String>,
    ) -> Result<(), SecretError> {
        let _turn = self.turn.lock().await;
        let names = self.list().await?;
        if names.is_empty() {
            return Ok(());
        }
        let there = there();
        for name in names {
            let Some(mut login) = self.get(&name.path).await? else {
                continue;
            };
            let before = login.grants.len();
            login.grants.retain(|grant, _| there.contains(grant));
            if login.grants.len() < before {
                self.sealed.set(&name.path, seal(&login), None).await?;
            }
        }
        Ok(())
    }

    /// Every token there is or was, to be taken out of texts.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn values(
        &self,
        tokens_of: impl Fn(&str) -> Vec<String>,
    ) -> Result<Vec<SecretValue>, SecretError> {
        let mut all = BTreeSet::new();
        for name in self.list().await? {
            if let Some(login) = self.get(&name.path).await? {
                all.extend(tokens_of(&login.file));
                let known = login.grants.values().flatten();
                all.extend(known.map(|one| one.value.to_string()));
            }
        }
        Ok(all.into_iter().map(SecretValue::new).collect())
    }
}

/// Texts that are wiped, as texts.
mod wiped {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use zeroize::Zeroizing;

    pub(super) fn serialize<S: Serializer>(
        text: &Zeroizing<String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Zeroizing<String>, D::Error> {
        String::deserialize(from).map(Zeroizing::new)
    }
}

fn seal(login: &Login) -> SecretValue {
    // Texts and numbers with text keys can always be written.
    SecretValue::new(serde_json::to_string(login).unwrap_or_default())
}

fn open(value: &SecretValue) -> Result<Login, SecretError> {
    serde_json::from_str(value.expose()).map_err(|_| SecretError::BadFile {
        file: PathBuf::from("logins"),
        reason: "a login in it has another form",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(value: &str) -> Login {
        let one = StandIn {
            field: "/token".to_owned(),
            phantom: "phantom-1".to_owned(),
            value: Zeroizing::new(value.to_owned()),
        };
        Login {
            file: Zeroizing::new(format!("{{\"token\":\"{value}\"}}")),
            hosts: vec!["a.com:443".parse().expect("entry")],
            given_ms: None,
            renewed_ms: None,
            grants: BTreeMap::from([("g1".to_owned(), vec![one])]),
        }
    }

    #[tokio::test]
    async fn a_login_is_kept_whole_sealed_and_loses_grants_of_sandboxes_that_are_gone() {
        let dir = tempfile::tempdir().expect("folder");
        let (file, key) = (dir.path().join("logins"), dir.path().join("key"));
        let store = LoginStore::new(file.clone(), key.clone());
        let made = store.change("codex", |known| {
            assert!(known.is_none());
            Ok::<_, ()>((login("planted-value"), ()))
        });
        made.await.expect("store").expect("made");
        let sealed = std::fs::read_to_string(&file).expect("file");
        assert!(!sealed.contains("planted"), "{sealed}");
        let left = store.change("codex", |known| {
            assert_eq!(known.expect("there").grants.len(), 1);
            Err::<(Login, ()), _>("no")
        });
        assert_eq!(left.await.expect("store"), Err("no"));
        let again = LoginStore::new(file, key);
        let values = again.values(|file| vec![file.len().to_string()]).await;
        let values = values.expect("values");
        let shown: Vec<_> = values.iter().map(SecretValue::expose).collect();
        assert_eq!(shown, ["25", "planted-value"]);
        let keep = |name: &str| BTreeSet::from([name.to_owned()]);
        again.keep_grants(|| keep("g1")).await.expect("kept");
        assert_eq!(
            again
                .get("codex")
                .await
                .expect("get")
                .expect("there")
                .grants
                .len(),
            1
        );
        again.keep_grants(|| keep("g2")).await.expect("kept");
        let login = again.get("codex").await.expect("get").expect("there");
        assert!(login.grants.is_empty());
        assert!(!format!("{login:?}").contains("planted"));
        assert!(again.remove("codex").await.expect("removed"));
        assert!(again.list().await.expect("list").is_empty());
    }
}
