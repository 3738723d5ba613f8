//! Registries: the OCI distribution protocol over HTTPS, as a client that believes nothing it is told.
//!
//! Plain HTTP is spoken with this machine only. Whatever has a digest is checked against it by whoever asked;
//! error texts never hold an address a registry sent us on to, since those carry tokens.

mod auth;
mod exchange;
mod tls;

pub(crate) use exchange::Registry;

use crate::name::Name;
use crate::store::StoreConfig;
use handler_engine::images::ImageError;
use reqwest::redirect::{Attempt, Policy};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::OnceCell;

const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// A registry that sends nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);
const MOST_REDIRECTS: usize = 8;

/// How registries are reached.
#[derive(Debug)]
pub(crate) struct Registries {
    extra_ca_file: Option<PathBuf>,
    auth_files: Vec<PathBuf>,
    /// Made when first needed: reading all authorities takes a while.
    far: OnceCell<reqwest::Client>,
    near: OnceCell<reqwest::Client>,
}

impl Registries {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        Self {
            extra_ca_file: config.extra_ca_file.clone(),
            auth_files: config.auth_files.clone(),
            far: OnceCell::new(),
            near: OnceCell::new(),
        }
    }

    /// The registry an image is in.
    pub(crate) async fn of(&self, name: &Name) -> Result<Registry, ImageError> {
        let is_near = is_loopback(name.api());
        let cell = if is_near { &self.near } else { &self.far };
        let client = cell.get_or_try_init(|| self.client(is_near)).await?.clone();
        let scheme = if is_near { "http" } else { "https" };
        let login = auth::login(&self.auth_files, name).await;
        Ok(Registry::new(client, scheme, name.clone(), login))
    }

    async fn client(&self, is_near: bool) -> Result<reqwest::Client, ImageError> {
        let failed = |error: String| {
            ImageError::Unavailable(format!("registries cannot be reached: {error}"))
        };
        let builder = reqwest::Client::builder()
            .user_agent(concat!("handler/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENCE)
            .redirect(Policy::custom(move |attempt| redirect(attempt, is_near)));
        let extra = self.extra_ca_file.clone();
        let tls = tokio::task::spawn_blocking(move || tls::config(extra.as_deref(), is_near))
            .await
            .map_err(|error| failed(error.to_string()))?
            .map_err(failed)?;
        let builder = builder.tls_backend_preconfigured(tls);
        // What is on this machine is never asked for through a proxy.
        let builder = if is_near { builder.no_proxy() } else { builder };
        builder.build().map_err(|error| failed(error.to_string()))
    }
}

/// Follows to HTTPS only, or within this machine.
fn redirect(attempt: Attempt<'_>, is_near: bool) -> reqwest::redirect::Action {
    let url = attempt.url();
    let host = url.host_str().unwrap_or_default();
    let is_allowed = url.scheme() == "https" || (is_near && is_loopback(host));
    if !is_allowed {
        return attempt.error("the registry sends on to an address without encryption");
    }
    if attempt.previous().len() > MOST_REDIRECTS {
        return attempt.error("the registry sends on too often");
    }
    attempt.follow()
}

/// Whether `host[:port]` is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Option<std::net::IpAddr> = bare.parse().ok();
    bare == "localhost" || address.is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_without_encryption() {
        for near in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:5000",
        ] {
            assert!(is_loopback(near), "{near}");
        }
        for far in [
            "localhost.example.org",
            "127.0.0.1.example.org",
            "10.0.0.1",
            "[::2]:1",
            "example.org:443",
            "",
        ] {
            assert!(!is_loopback(far), "{far}");
        }
    }
}
