//! The rules of work folders, over canonical paths. Pure.

use std::path::{Component, Path, PathBuf};

/// Folders of the system: neither they nor anything in them.
const SYSTEM: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin",
    "/sys", "/usr",
];
/// Folders shared by all: not they, but what lies in them may be made a root.
const SHARED: &[&str] = &[
    "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/lib",
    "/var/tmp",
];

/// Why a root does not cover a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It lies elsewhere.
    Outside,
    /// The root is the home, and the folder lies in this hidden folder of it.
    Hidden(PathBuf),
}

/// Whether a folder may never be given, and why.
pub(super) fn system(path: &Path) -> Option<&'static str> {
    if path == Path::new("/") {
        return Some("is the whole file system");
    }
    if SYSTEM.iter().any(|folder| path.starts_with(folder)) {
        return Some("is a folder of the system");
    }
    if SHARED.iter().any(|folder| path == Path::new(folder)) {
        return Some("is a folder shared by everything on this machine");
    }
    None
}

/// Whether a root covers a folder. A root covers itself and what is in it; the home as a root covers
/// neither itself nor hidden folders right below it.
pub(super) fn covers(root: &Path, path: &Path, home: &Path) -> Result<(), Refusal> {
    let rest = path.strip_prefix(root).map_err(|_| Refusal::Outside)?;
    if root != home {
        return Ok(());
    }
    match rest.components().next() {
        Some(Component::Normal(first)) if first.as_encoded_bytes().starts_with(b".") => {
            Err(Refusal::Hidden(home.join(first)))
        }
        Some(_) => Ok(()),
        None => Err(Refusal::Outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_and_shared_folders_are_never_given() {
        for never in [
            "/",
            "/usr",
            "/usr/local/src",
            "/etc/ssh",
            "/proc/self",
            "/tmp",
            "/home",
            "/var",
        ] {
            assert!(system(Path::new(never)).is_some(), "{never}");
        }
        for may in [
            "/home/ada",
            "/tmp/x",
            "/usrlocal",
            "/var/www",
            "/opt/code",
            "/etcetera",
        ] {
            assert!(system(Path::new(may)).is_none(), "{may}");
        }
    }

    #[test]
    fn a_root_covers_itself_and_below_and_the_home_less() {
        let home = Path::new("/home/ada");
        let covers = |root: &str, path: &str| covers(Path::new(root), Path::new(path), home);
        assert_eq!(covers("/srv/code", "/srv/code"), Ok(()));
        assert_eq!(covers("/srv/code", "/srv/code/.git/x"), Ok(()));
        assert_eq!(covers("/srv/code", "/srv/coder"), Err(Refusal::Outside));
        assert_eq!(covers("/srv/code", "/srv"), Err(Refusal::Outside));
        assert_eq!(covers("/home/ada", "/home/ada/code/.cache"), Ok(()));
        assert_eq!(covers("/home/ada", "/home/ada"), Err(Refusal::Outside));
        let hidden = Err(Refusal::Hidden("/home/ada/.ssh".into()));
        assert_eq!(covers("/home/ada", "/home/ada/.ssh/keys"), hidden);
        assert_eq!(covers("/home/ada/.dotfiles", "/home/ada/.dotfiles"), Ok(()));
    }
}
