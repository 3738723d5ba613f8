//! Files written by the person: only over what the person saw.

use super::{open, write};
use handler_folder::{FolderError, Writer, sha256};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

#[test]
fn a_file_is_replaced_only_if_it_is_what_was_seen_and_keeps_its_permissions() {
    let temp = tempfile::tempdir().expect("temp");
    let at = temp.path();
    write(at, "sub/run", "new\n");
    let path = at.join("sub/run");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).expect("mode");
    let root = open(at);
    let writer = Writer::new(&root, "sub/run").expect("ready");
    let found = writer.found().expect("found");
    let wrong = writer.replace(&found, &sha256(b"other"), b"old\n", None);
    assert!(matches!(wrong, Err(FolderError::Changed(_))), "{wrong:?}");
    assert_eq!(std::fs::read(&path).expect("read"), b"new\n");
    writer
        .replace(&found, &sha256(b"new\n"), b"old\n", None)
        .expect("replaced");
    assert_eq!(std::fs::read(&path).expect("read"), b"old\n");
    assert_eq!(
        std::fs::metadata(&path).expect("meta").mode() & 0o777,
        0o751
    );
    // What was found is not there any more: another file has its name.
    let again = writer.replace(&found, &sha256(b"new\n"), b"x", None);
    assert!(matches!(again, Err(FolderError::Changed(_))), "{again:?}");
    assert!(matches!(
        writer.remove(&found, &sha256(b"new\n")),
        Err(FolderError::Changed(_))
    ));
    assert_eq!(std::fs::read(&path).expect("read"), b"old\n");
    let now = writer.found().expect("found");
    writer.remove(&now, &sha256(b"old\n")).expect("removed");
    assert_eq!(
        std::fs::read_dir(at.join("sub")).expect("listed").count(),
        0
    );
}

#[test]
fn a_file_is_made_again_with_its_folder_and_never_over_another() {
    let temp = tempfile::tempdir().expect("temp");
    let at = temp.path().join("in");
    let outside = temp.path().join("out");
    std::fs::create_dir_all(&at).expect("folder");
    std::fs::create_dir_all(&outside).expect("folder");
    let root = open(&at);
    let make = |path: &str| Writer::new(&root, path)?.create(b"back", 0o755);
    make("a/b/c").expect("made");
    assert_eq!(
        std::fs::metadata(at.join("a/b/c")).expect("meta").mode() & 0o777,
        0o755
    );
    assert!(matches!(make("a/b/c"), Err(FolderError::Changed(_))));
    symlink(&outside, at.join("way")).expect("link");
    symlink(outside.join("x"), at.join("hanging")).expect("link");
    for path in [
        "way/x",
        "way/new/x",
        "../out/x",
        ".git/hooks/x",
        "/x",
        "a/b/c/d",
        "",
    ] {
        assert!(make(path).is_err(), "{path}");
    }
    assert!(matches!(make("hanging"), Err(FolderError::Changed(_))));
    assert_eq!(std::fs::read_dir(&outside).expect("listed").count(), 0);
    assert_eq!(
        std::fs::read_dir(&at).expect("listed").count(),
        3,
        "nothing is left over"
    );
}
