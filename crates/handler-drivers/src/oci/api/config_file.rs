//! Settings added to the user's Podman: the gVisor runtime with what the guest's socket needs.
//!
//! Podman 4.6 and newer take additions in a file of their own; older ones read one file *instead of* all others, so
//! they get all of them merged as Podman merges them, and the additions last.

use std::io;
use std::path::{Path, PathBuf};

/// Names of gVisor in Podman's settings: for sandboxes without a network of the engine, and with one.
pub(crate) const RUNSC: [&str; 2] = ["handler-runsc", "handler-runsc-open"];
/// What they are told of the network.
const RUNSC_NETWORK: [&str; 2] = ["--network=none", "--network=sandbox"];
/// What gVisor must be told: let the guest make its socket on the host side and reach the filter's; leave limits
/// alone where it cannot set them.
const RUNSC_FLAGS: &[&str] = &[RUNSC_NEEDS, "--ignore-cgroups"];
/// Without it the guest cannot be spoken to.
pub(crate) const RUNSC_NEEDS: &str = "--host-uds=all";

/// Writes what is to be added, if anything; answers the variable that names the file.
pub(super) async fn write(folder: &Path) -> io::Result<Option<(&'static str, PathBuf)>> {
    let Some(runsc) = find_program("runsc") else {
        return Ok(None);
    };
    let mut runtimes = toml::Table::new();
    for (name, network) in RUNSC.iter().zip(RUNSC_NETWORK) {
        let wrapper = folder.join(name);
        let script = format!(
            "#!/bin/sh\nexec '{}' {} {network} \"$@\"\n",
            runsc.display(),
            RUNSC_FLAGS.join(" ")
        );
        handler_base::fs::write_atomic(&wrapper, script.as_bytes(), 0o700)?;
        let paths = vec![toml::Value::String(wrapper.to_string_lossy().into_owned())];
        runtimes.insert((*name).to_owned(), toml::Value::Array(paths));
    }
    let addition = nest("engine", nest("runtimes", runtimes));
    let (variable, table) = if takes_additions().await {
        ("CONTAINERS_CONF_OVERRIDE", addition)
    } else {
        let mut all = toml::Table::new();
        for file in user_files() {
            merge(&mut all, read(&file)?);
        }
        merge(&mut all, addition);
        ("CONTAINERS_CONF", all)
    };
    let path = folder.join("containers.conf");
    handler_base::fs::write_atomic(&path, table.to_string().as_bytes(), 0o600)?;
    Ok(Some((variable, path)))
}

fn nest(name: &str, table: toml::Table) -> toml::Table {
    toml::Table::from_iter([(name.to_owned(), toml::Value::Table(table))])
}

/// Later values replace earlier ones; tables are merged.
fn merge(into: &mut toml::Table, from: toml::Table) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

fn read(path: &Path) -> io::Result<toml::Table> {
    match std::fs::read_to_string(path) {
        Ok(text) => text.parse().map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {error}", path.display()),
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(toml::Table::new()),
        Err(error) => Err(error),
    }
}

/// What Podman reads, in its order.
fn user_files() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("CONTAINERS_CONF") {
        return vec![path.into()];
    }
    let mut files = vec![
        PathBuf::from("/usr/share/containers/containers.conf"),
        PathBuf::from("/etc/containers/containers.conf"),
    ];
    files.extend(in_folder(Path::new("/etc/containers/containers.conf.d")));
    let config = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")));
    if let Some(config) = config.filter(|_| !rustix::process::geteuid().is_root()) {
        files.push(config.join("containers/containers.conf"));
        files.extend(in_folder(&config.join("containers/containers.conf.d")));
    }
    files
}

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "conf"))
        .collect();
    files.sort();
    files
}

/// Whether Podman reads additions besides its own files (4.6 and newer).
async fn takes_additions() -> bool {
    let run = handler_base::proc::command("podman")
        .arg("--version")
        .output();
    let Ok(Ok(output)) = tokio::time::timeout(std::time::Duration::from_secs(10), run).await else {
        return false;
    };
    version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|version| version >= (4, 6))
}

/// Major and minor number of `podman version 4.3.1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_ascii_whitespace().last()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A program on `PATH` or in the folders of system programs.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| {
            use std::os::unix::fs::PermissionsExt;
            let data = std::fs::metadata(file);
            data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_merged_as_podman_does() {
        let mut all: toml::Table = "[containers]\na=1\n[engine]\nruntime=\"runc\"\nx=[1]"
            .parse()
            .expect("toml");
        merge(
            &mut all,
            "[engine]\nx=[2]\n[engine.runtimes]\nr=[\"/r\"]"
                .parse()
                .expect("toml"),
        );
        assert_eq!(all["containers"]["a"].as_integer(), Some(1));
        assert_eq!(all["engine"]["runtime"].as_str(), Some("runc"));
        assert_eq!(all["engine"]["x"][0].as_integer(), Some(2));
        assert_eq!(all["engine"]["runtimes"]["r"][0].as_str(), Some("/r"));
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version("podman version 4.3.1\n"), Some((4, 3)));
        assert_eq!(version("podman version 5.0.0-dev"), Some((5, 0)));
        assert_eq!(version(""), None);
    }
}
