//! The host's npm: where its program is, so that a sandbox can run it, and which registry it uses.

use crate::http::problem::{ApiError, ApiResult};
use handler_types::ProblemCode;
use handler_types::network::AllowEntry;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Folders that every native sandbox shows.
const SHOWN: &[&str] = &["/usr/", "/bin/", "/lib/", "/opt/", "/nix/"];

/// What is needed to run npm inside.
#[derive(Debug)]
pub(super) struct HostNpm {
    /// Node.js.
    pub(super) node: PathBuf,
    /// npm's own script.
    pub(super) script: PathBuf,
    /// Folders to show read-only at the same path, for installations outside the system's folders.
    pub(super) extra: Vec<PathBuf>,
    /// The registry's address, as configured.
    pub(super) registry: String,
    /// Its destination.
    pub(super) allow: AllowEntry,
}

/// Asks the host; `cache` is where npm may keep things.
///
/// # Errors
/// 424 when Node.js or npm is missing, or its registry is no http(s) address.
pub(super) async fn find(cache: &Path) -> ApiResult<HostNpm> {
    let node = on_path("node")?;
    let script = on_path("npm")?;
    let extra = [&node, &script]
        .iter()
        .filter_map(|path| root_to_show(path))
        .collect();
    let registry = ask_registry(&node, &script, cache).await?;
    let allow = destination(&registry, "npm's registry", "npm config get registry")?;
    Ok(HostNpm {
        node,
        script,
        extra,
        registry,
        allow,
    })
}

fn on_path(program: &str) -> ApiResult<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find_map(|candidate| candidate.canonicalize().ok().filter(|p| p.is_file()))
        .ok_or_else(|| {
            ApiError::new(
                ProblemCode::NotConfigured,
                format!("`{program}` is not on the daemon's PATH; install Node.js with npm"),
            )
        })
}

/// The installation around a program that no system folder shows: the parent of its `bin` or `lib`.
pub(super) fn root_to_show(program: &Path) -> Option<PathBuf> {
    if SHOWN.iter().any(|shown| program.starts_with(shown)) {
        return None;
    }
    program
        .ancestors()
        .find(|folder| folder.ends_with("bin") || folder.ends_with("lib"))
        .and_then(Path::parent)
        .filter(|root| root.components().count() > 2)
        .map(Path::to_owned)
}

async fn ask_registry(node: &Path, script: &Path, cache: &Path) -> ApiResult<String> {
    let mut command = handler_base::proc::command(node);
    command
        .arg(script)
        .args(["config", "get", "registry"])
        // Asking must leave nothing in the person's home.
        .env("npm_config_cache", cache.join(".host-npm"))
        .env("npm_config_logs_max", "0")
        .current_dir("/");
    let output = tokio::time::timeout(Duration::from_secs(30), command.output()).await;
    let Ok(Ok(output)) = output else {
        return Err(ApiError::new(
            ProblemCode::NotConfigured,
            "npm does not answer on this host",
        ));
    };
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The destination of a registry's address; `what` and `shown_by` are for the person.
pub(super) fn destination(registry: &str, what: &str, shown_by: &str) -> ApiResult<AllowEntry> {
    let wrong = || {
        ApiError::new(
            ProblemCode::NotConfigured,
            format!("{what} is not an http(s) address; see `{shown_by}`"),
        )
    };
    let (scheme, rest) = registry.split_once("://").ok_or_else(wrong)?;
    let default_port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err(wrong()),
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        // The address goes into the sandbox; what signs in must not.
        return Err(ApiError::new(
            ProblemCode::NotConfigured,
            format!(
                "the address of {what} holds a user name or password, which cannot be kept out of the sandbox; \
                 use an address without one"
            ),
        ));
    }
    let entry = if host.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:{default_port}")
    };
    entry.parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_is_read_from_the_registry_address() {
        let destination = |url: &str| destination(url, "the registry", "npm config get registry");
        let port = |url: &str| destination(url).expect(url).to_string();
        assert_eq!(
            port("https://registry.example.org/"),
            "registry.example.org:443"
        );
        assert_eq!(
            port("http://packages.example.org:8081/npm/"),
            "packages.example.org:8081"
        );
        assert!(destination("http://user:pw@packages.example.org:8081/npm/").is_err());
        assert!(destination("undefined").is_err());
        assert!(destination("ftp://a.example.org/").is_err());
    }

    #[test]
    fn an_installation_in_a_home_is_shown_by_its_root_only() {
        assert_eq!(root_to_show(Path::new("/usr/bin/node")), None);
        assert_eq!(
            root_to_show(Path::new("/home/x/.nvm/versions/node/v22/bin/node")),
            Some(PathBuf::from("/home/x/.nvm/versions/node/v22"))
        );
        assert_eq!(root_to_show(Path::new("/bin-less/node")), None);
    }
}
