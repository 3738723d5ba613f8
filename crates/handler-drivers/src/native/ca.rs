//! The certificate bundle of a sandbox: the system's authorities and its own; and the same for Java.

use super::java;
use super::system::CA_BUNDLES;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest file of authorities that is read, in bytes.
const MAX_ROOTS: u64 = 16 * 1024 * 1024;

/// Where the store for Java lies, beside the bundle.
pub(crate) fn java_store(bundle: &Path) -> PathBuf {
    bundle.with_extension("jks")
}

/// Writes the bundle and, beside it, [`java_store`]. `extra`: one more file of authorities (a company's), if configured.
///
/// Not flushed to the disk: it is written anew at each start.
pub(crate) fn write(path: &Path, extra: Option<&Path>, own: Option<&str>) -> io::Result<()> {
    let mut bundle = Vec::new();
    let system = CA_BUNDLES
        .iter()
        .map(PathBuf::from)
        .find(|file| file.is_file());
    let same = |file: &&Path| system.as_deref().is_none_or(|system| system != *file);
    for file in system.as_deref().into_iter().chain(extra.filter(same)) {
        append(&mut bundle, file)?;
    }
    bundle.extend_from_slice(own.unwrap_or_default().as_bytes());
    let store = java_store(path);
    if store.is_file() && std::fs::read(path).is_ok_and(|before| before == bundle) {
        return Ok(());
    }
    // The bundle last: when it is found to be the same, the store is, too.
    replace(&store, &java::trust_store(&bundle))?;
    replace(path, &bundle)
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644);
    options.open(&fresh)?.write_all(content)?;
    std::fs::rename(fresh, path)
}

fn append(bundle: &mut Vec<u8>, file: &Path) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    std::fs::File::open(file)
        .map_err(named)?
        .take(MAX_ROOTS)
        .read_to_end(bundle)
        .map_err(named)?;
    if bundle.last().is_some_and(|byte| *byte != b'\n') {
        bundle.push(b'\n');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_authority_comes_after_the_configured_ones() {
        let folder = tempfile::tempdir().expect("temp");
        let extra = folder.path().join("extra.pem");
        std::fs::write(&extra, "EXTRA").expect("writes");
        let bundle = folder.path().join("ca-bundle.pem");
        for _again in 0..2 {
            write(&bundle, Some(&extra), Some("OWN\n")).expect("writes");
            let text = std::fs::read_to_string(&bundle).expect("reads");
            assert!(text.ends_with("EXTRA\nOWN\n"));
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 3);
        assert!(write(&bundle, Some(Path::new("/proc/nonexistent")), None).is_err());
    }
}
