//! Who we are to a registry: nobody, or whoever logged in; and what it wants to hear.

use crate::name::Name;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::PathBuf;

/// Longest file of credentials, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Name and password of a registry. Never shown.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: HashMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
}

/// The login of the first file that knows the registry.
pub(super) async fn login(files: &[PathBuf], name: &Name) -> Option<Login> {
    for path in files {
        let size = tokio::fs::metadata(path).await.map_or(0, |meta| meta.len());
        if size == 0 || size > MAX_FILE {
            continue;
        }
        let text = tokio::fs::read(path).await.unwrap_or_default();
        let found = serde_json::from_slice::<File>(&text).map(|file| find(&file, name));
        match found {
            Ok(Some(login)) => return Some(login),
            Ok(None) => {}
            // Its text may hold a password: only its name is said.
            Err(_) => tracing::warn!(path = %path.display(), "this file of logins cannot be read"),
        }
    }
    None
}

/// The longest fitting entry: `host/some/path`, then `host`; for the default registry also its old address.
fn find(file: &File, name: &Name) -> Option<Login> {
    let whole = format!("{}/{}", name.host, name.repository);
    let mut keys: Vec<String> = whole
        .char_indices()
        .filter(|(_, c)| *c == '/')
        .map(|(at, _)| whole[..at].to_owned())
        .collect();
    keys.push(whole);
    keys.reverse();
    keys.push(format!("https://{}", name.host));
    if name.host == "docker.io" {
        keys.push("https://index.docker.io/v1/".to_owned());
    }
    keys.iter().find_map(|key| decode(file.auths.get(key)?))
}

fn decode(entry: &Entry) -> Option<Login> {
    let bytes = STANDARD.decode(entry.auth.as_deref()?).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Login {
        user: user.to_owned(),
        password: password.trim_end_matches('\0').to_owned(),
    })
}

/// What a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token from this address for this service and scope.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// Reads a `WWW-Authenticate` header.
pub(super) fn challenge(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut values = parameters(rest);
    Some(Challenge::Bearer {
        realm: values.remove("realm")?,
        service: values.remove("service"),
        scope: values.remove("scope"),
    })
}

/// `key="value", key=value`; commas may be in quoted values.
fn parameters(mut text: &str) -> HashMap<String, String> {
    let mut values = HashMap::new();
    while let Some((key, rest)) = text.split_once('=') {
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        let key = key.trim_matches([' ', ',']).to_ascii_lowercase();
        values.insert(key, value.to_owned());
        text = after;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_in_all_their_forms() {
        let bearer =
            challenge(r#"Bearer realm="https://a/t",service="s",scope="repository:x:pull,push""#);
        let expected = Challenge::Bearer {
            realm: "https://a/t".to_owned(),
            service: Some("s".to_owned()),
            scope: Some("repository:x:pull,push".to_owned()),
        };
        assert_eq!(bearer, Some(expected));
        assert_eq!(challenge("Basic realm=\"x\""), Some(Challenge::Basic));
        assert!(matches!(
            challenge("bearer realm=https://a, service=s"),
            Some(Challenge::Bearer {
                service: Some(_),
                ..
            })
        ));
        for crooked in [
            "",
            "Bearer",
            "Bearer =",
            "Bearer realm",
            "Digest realm=x",
            "Bearer service=\"x",
        ] {
            assert_eq!(challenge(crooked), None, "{crooked}");
        }
    }

    #[test]
    fn the_longest_fitting_login_counts_and_none_is_ever_shown() {
        let auth = |text: &str| STANDARD.encode(text);
        let text = format!(
            r#"{{"auths":{{"h.x":{{"auth":"{}"}},"h.x/team":{{"auth":"{}"}},"https://index.docker.io/v1/":{{"auth":"{}"}}}}}}"#,
            auth("a:1"),
            auth("b:s:ecret"),
            auth("c:3")
        );
        let file: File = serde_json::from_str(&text).expect("reads");
        let user =
            |name: &str| find(&file, &Name::parse(name).expect("name")).map(|login| login.user);
        assert_eq!(user("h.x/other/i").as_deref(), Some("a"));
        assert_eq!(user("h.x/team/i").as_deref(), Some("b"));
        assert_eq!(user("debian").as_deref(), Some("c"));
        assert_eq!(user("other.x/i"), None);
        let login = find(&file, &Name::parse("h.x/team/i").expect("name")).expect("known");
        assert_eq!(login.password, "s:ecret");
        assert!(!format!("{login:?}").contains("ecret"));
    }
}
