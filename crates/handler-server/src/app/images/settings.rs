//! `images.toml` in the config folder: what builds on this machine need. Nothing of it is left in an image.
//!
//! Read anew for each build. What it does not say comes from the daemon's environment.

use crate::state::App;
use handler_engine::images::ImageError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Name of the file.
pub const FILE: &str = "images.toml";
/// What the toolbox is built on unless the file says otherwise.
const BASE_IMAGE: &str = "debian:13";
/// Largest file read, bytes.
const MAX: u64 = 64 * 1024;

/// Proxy variables, as programs look for them.
pub const PROXY_VARIABLES: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// As written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    backend: Option<String>,
    base_image: Option<String>,
    ca_bundle: Option<String>,
    versions: Option<String>,
    npm_registry: Option<String>,
    proxy: Option<Proxy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proxy {
    http: Option<String>,
    https: Option<String>,
    no: Option<String>,
}

/// Resolved.
#[derive(Clone)]
pub struct ImageSettings {
    /// Whose store images are built in; none: the first that can.
    pub backend: Option<String>,
    /// Base image of the toolbox.
    pub base_image: String,
    /// Certificates trusted while building.
    pub ca_bundle: Option<PathBuf>,
    /// `latest` or `tested`.
    pub versions: String,
    /// Proxy variables while building.
    pub proxy: BTreeMap<String, String>,
    /// Where npm gets packages while building; none: its own default.
    pub npm_registry: Option<String>,
    /// Whether the bundle was asked for by name, and not only the environment's.
    is_bundle_said: bool,
}

impl std::fmt::Debug for ImageSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Proxies may hold passwords.
        f.debug_struct("ImageSettings")
            .field("backend", &self.backend)
            .field("base_image", &self.base_image)
            .field("ca_bundle", &self.ca_bundle)
            .finish_non_exhaustive()
    }
}

impl ImageSettings {
    /// The bundle for a backend. Docker's builder cannot be lent one: the environment's is then left out, and
    /// one that the file names is refused by the store.
    #[must_use]
    pub fn ca_bundle_for(&self, backend: &str) -> Option<PathBuf> {
        let can = backend != "docker" || self.is_bundle_said;
        self.ca_bundle.clone().filter(|_| can)
    }

    /// Small files that builds of Handler's own images are lent.
    #[must_use]
    pub fn lent(&self) -> BTreeMap<String, String> {
        let npmrc = self
            .npm_registry
            .as_ref()
            .map(|url| format!("registry={url}\n"));
        npmrc
            .map(|text| ("npmrc".to_owned(), text))
            .into_iter()
            .collect()
    }
}

/// Reads them.
///
/// # Errors
/// A file that cannot be understood, with the place.
pub fn read(app: &App) -> Result<ImageSettings, ImageError> {
    let path = app.settings.layout.config.join(FILE);
    let text = match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Ok(data) if data.len() > MAX => {
            return Err(ImageError::Invalid(format!("{FILE}: larger than 64 KiB")));
        }
        _ => std::fs::read_to_string(&path)
            .map_err(|error| ImageError::Invalid(format!("{}: {error}", path.display())))?,
    };
    resolve(
        &text,
        app.settings.extra_ca_file.clone(),
        &app.settings.proxy,
    )
    .map_err(ImageError::Invalid)
}

fn resolve(
    text: &str,
    environment_bundle: Option<PathBuf>,
    environment_proxy: &BTreeMap<String, String>,
) -> Result<ImageSettings, String> {
    // The parser's own words would show the line, and a proxy's password in it.
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        format!("{FILE}, line {line}: {}", error.message())
    })?;
    let versions = file.versions.unwrap_or_else(|| "latest".to_owned());
    if versions != "latest" && versions != "tested" {
        return Err(format!("{FILE}: versions is `latest` or `tested`"));
    }
    let is_address = |url: &String| {
        (url.starts_with("http://") || url.starts_with("https://"))
            && !url.contains(|c: char| c.is_control() || c.is_whitespace() || c == '@')
    };
    if file
        .npm_registry
        .as_ref()
        .is_some_and(|url| !is_address(url))
    {
        return Err(format!(
            "{FILE}: npmRegistry is an http(s) address without user name and password"
        ));
    }
    let is_bundle_said = file.ca_bundle.is_some();
    let ca_bundle = match file.ca_bundle.as_deref() {
        Some("") => None,
        Some(path) if path.starts_with('/') => Some(PathBuf::from(path)),
        Some(_) => {
            return Err(format!(
                "{FILE}: caBundle is an absolute path, or empty for none"
            ));
        }
        None => environment_bundle.filter(|path| path.is_file()),
    };
    let mut proxy = environment_proxy.clone();
    if let Some(said) = file.proxy {
        for (name, value) in [("http", said.http), ("https", said.https), ("no", said.no)] {
            let Some(value) = value else { continue };
            if value.contains(char::is_control) {
                return Err(format!("{FILE}: proxy.{name} has control characters"));
            }
            let lower = format!("{name}_proxy");
            for variable in [lower.to_uppercase(), lower] {
                if value.is_empty() {
                    proxy.remove(&variable);
                } else {
                    proxy.insert(variable, value.clone());
                }
            }
        }
    }
    Ok(ImageSettings {
        backend: file.backend,
        base_image: file.base_image.unwrap_or_else(|| BASE_IMAGE.to_owned()),
        ca_bundle,
        versions,
        proxy,
        npm_registry: file.npm_registry,
        is_bundle_said,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_does_not_say_comes_from_the_environment() {
        let environment = BTreeMap::from([("https_proxy".to_owned(), "http://e:1".to_owned())]);
        let settings = resolve("", None, &environment).expect("settings");
        assert_eq!(settings.base_image, BASE_IMAGE);
        assert_eq!(settings.versions, "latest");
        assert_eq!(settings.proxy, environment);
        let text = "baseImage = \"mine:1\"\n[proxy]\nhttps = \"http://f:2\"\nno = \"\"\n";
        let settings = resolve(text, None, &environment).expect("settings");
        assert_eq!(settings.base_image, "mine:1");
        assert_eq!(settings.proxy["https_proxy"], "http://f:2");
        assert_eq!(settings.proxy["HTTPS_PROXY"], "http://f:2");
        assert!(!settings.proxy.contains_key("no_proxy"));
    }

    #[test]
    fn a_bundle_of_the_environment_is_not_forced_on_docker() {
        let own = PathBuf::from("/proc/self/cmdline");
        let settings = resolve("", Some(own.clone()), &BTreeMap::new()).expect("settings");
        assert_eq!(settings.ca_bundle_for("podman"), Some(own.clone()));
        assert_eq!(settings.ca_bundle_for("docker"), None);
        let said = resolve("caBundle = \"/a\"", Some(own.clone()), &BTreeMap::new());
        assert_eq!(
            said.expect("settings").ca_bundle_for("docker"),
            Some("/a".into())
        );
        let none = resolve("caBundle = \"\"", Some(own), &BTreeMap::new()).expect("settings");
        assert_eq!(none.ca_bundle_for("podman"), None);
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_without_values() {
        let none = BTreeMap::new();
        let error = resolve("\nbase = \"x\"", None, &none).expect_err("a mistake");
        assert!(
            error.contains("line 2") && error.contains("base"),
            "{error}"
        );
        let secret = "[proxy]\nhttp = \"http://u:secret@h\nx";
        let error = resolve(secret, None, &none).expect_err("a mistake");
        assert!(!error.contains("secret"), "{error}");
        assert!(resolve("npmRegistry = \"https://u:p@h/\"", None, &none).is_err());
        assert!(resolve("versions = \"old\"", None, &none).is_err());
        assert!(resolve("caBundle = \"rel\"", None, &none).is_err());
    }
}
