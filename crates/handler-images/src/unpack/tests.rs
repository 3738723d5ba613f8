//! Archives, good and hostile, into a real folder.

use super::*;
use crate::test_tar::Tar;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

fn opened(folder: &Path) -> OwnedFd {
    OwnedFd::from(std::fs::File::open(folder).expect("opens"))
}

fn into(folder: &Path, archive: &[u8]) -> Result<Unpacked, UnpackError> {
    unpack(archive, opened(folder), Limits::default())
}

/// Unpacks into a folder beside a secret; answers whether anything outside was touched.
fn outside_stays(archive: &[u8]) -> Result<Unpacked, UnpackError> {
    let world = tempfile::tempdir().expect("temp");
    let (inside, outside) = (world.path().join("in"), world.path().join("out"));
    std::fs::create_dir_all(&inside).expect("folder");
    std::fs::create_dir_all(&outside).expect("folder");
    std::fs::write(outside.join("secret"), "s").expect("file");
    let result = into(&inside, archive);
    let names: Vec<_> = std::fs::read_dir(&outside)
        .expect("reads")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(names, ["secret"]);
    let secret = outside.join("secret");
    assert_eq!(std::fs::read(&secret).expect("reads"), b"s");
    assert_eq!(
        secret.metadata().expect("meta").nlink(),
        1,
        "linked from inside"
    );
    assert_eq!(std::fs::read_dir(world.path()).expect("reads").count(), 2);
    result
}

#[test]
fn files_folders_and_links_come_out_as_the_owner_can_use_them() {
    let folder = tempfile::tempdir().expect("temp");
    let archive = Tar::new()
        .folder("./")
        .raw("./usr/", b'5', 0o2555, "", 0, b"")
        .raw("./usr/su", b'0', 0o4111, "", 1, b"x")
        .raw("./tmp", b'5', 0o1777, "", 0, b"")
        .hard_link("./usr/same", "./usr/su")
        .link("./bin", "usr")
        .file("./bin/through", b"inside")
        .link("./abs", "/usr")
        .file("./abs/too", b"inside")
        .file("/rooted", b"r")
        .raw("./dev/sda", b'4', 0o666, "", 0, b"")
        .raw("./pipe", b'6', 0o666, "", 0, b"")
        .end();
    let done = into(folder.path(), &archive).expect("unpacks");
    assert_eq!((done.bytes, done.left_out), (14, 2));
    let mode = |path: &str| {
        folder
            .path()
            .join(path)
            .metadata()
            .expect(path)
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!(mode("usr"), 0o755, "no setgid, writable for its owner");
    assert_eq!(mode("usr/su"), 0o511, "no setuid, readable for its owner");
    assert_eq!(mode("tmp"), 0o1777);
    assert_eq!(
        folder
            .path()
            .join("usr/same")
            .metadata()
            .expect("meta")
            .nlink(),
        2
    );
    assert_eq!(
        std::fs::read(folder.path().join("usr/through")).expect("reads"),
        b"inside"
    );
    assert_eq!(
        std::fs::read(folder.path().join("usr/too")).expect("reads"),
        b"inside"
    );
    assert!(folder.path().join("rooted").is_file());
    assert!(!folder.path().join("dev/sda").exists() && !folder.path().join("pipe").exists());
    let time = folder
        .path()
        .join("usr/su")
        .metadata()
        .expect("meta")
        .mtime();
    assert_eq!(time, 1);
}

#[test]
fn nothing_leads_out() {
    let hostile = [
        Tar::new().file("../out/new", b"x").end(),
        Tar::new().file("a/../../out/new", b"x").end(),
        Tar::new().link("l", "../out").file("l/new", b"x").end(),
        Tar::new()
            .link("l", "../out/secret")
            .file("l", b"changed")
            .end(),
        Tar::new()
            .link("l", "../out")
            .link("m", "l")
            .file("m/new", b"x")
            .end(),
        Tar::new().hard_link("h", "../out/secret").end(),
        Tar::new()
            .link("l", "../out")
            .hard_link("h", "l/secret")
            .end(),
        Tar::new()
            .link("l", "../out")
            .raw("l/.wh.secret", b'0', 0o644, "", 0, b"")
            .end(),
        Tar::new()
            .link("l", "../out")
            .raw("l/.wh..wh..opq", b'0', 0o644, "", 0, b"")
            .end(),
        Tar::new()
            .link("l", "../out")
            .folder("l")
            .file("l/new", b"x")
            .end(),
        Tar::new()
            .folder("d")
            .file("d/f", b"x")
            .link("d", "../out")
            .file("d/secret", b"x")
            .end(),
        Tar::new()
            .link("l", "/proc/self/cwd")
            .file("l/x", b"x")
            .end(),
        Tar::new().pax("path", "../out/new", b"x").end(),
        Tar::new().gnu_long("../out/new", b"x").end(),
    ];
    for (number, archive) in hostile.iter().enumerate() {
        // Refused or done inside: either is right.
        let result = outside_stays(archive);
        drop(result.map_err(|error| format!("{number}: {error}")));
    }
    for archive in &hostile[..2] {
        assert!(matches!(
            outside_stays(archive),
            Err(UnpackError::Refused { .. })
        ));
    }
}

#[test]
fn a_link_that_was_there_before_is_followed_inside_only() {
    let world = tempfile::tempdir().expect("temp");
    let inside = world.path().join("in");
    std::fs::create_dir_all(&inside).expect("folder");
    symlink(world.path(), inside.join("l")).expect("link");
    drop(into(&inside, &Tar::new().file("l/x", b"x").end()));
    assert!(!world.path().join("x").exists());
}

#[test]
fn deletions_become_what_overlayfs_takes_from_an_ordinary_user() {
    let folder = tempfile::tempdir().expect("temp");
    let archive = Tar::new()
        .raw("etc/.wh.gone", b'0', 0o644, "", 0, b"")
        .raw("opt/.wh..wh..opq", b'0', 0o644, "", 0, b"")
        .file("opt/new", b"n")
        .raw(".wh.anew", b'0', 0o644, "", 0, b"")
        .folder("anew")
        .file("stays", b"s")
        .raw(".wh.stays", b'0', 0o644, "", 0, b"")
        .raw(".wh..wh.plnk", b'0', 0o644, "", 0, b"")
        .end();
    into(folder.path(), &archive).expect("unpacks");
    let gone = std::fs::symlink_metadata(folder.path().join("etc/gone")).expect("there");
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    let opaque = |path: &str| {
        let mut value = [0u8; 4];
        let got = rustix::fs::getxattr(folder.path().join(path), "user.overlay.opaque", &mut value);
        matches!(got, Ok(1)) && value[0] == b'y'
    };
    assert!(opaque("opt") && opaque("anew") && !opaque("etc"));
    assert_eq!(
        std::fs::read(folder.path().join("stays")).expect("reads"),
        b"s"
    );
    assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 4);
    for crooked in [".wh.", ".wh..", ".wh..."] {
        let archive = Tar::new().raw(crooked, b'0', 0o644, "", 0, b"").end();
        drop(outside_stays(&archive));
    }
}

#[test]
fn what_comes_again_replaces_what_was() {
    let folder = tempfile::tempdir().expect("temp");
    let archive = Tar::new()
        .file("x", b"one")
        .file("x", b"two")
        .folder("d")
        .file("d/deep/er", b"x")
        .file("d", b"now a file")
        .file("y", b"a file")
        .folder("y")
        .file("y/z", b"z")
        .hard_link("x", "x")
        .end();
    into(folder.path(), &archive).expect("unpacks");
    assert_eq!(
        std::fs::read(folder.path().join("x")).expect("reads"),
        b"two"
    );
    assert_eq!(
        std::fs::read(folder.path().join("d")).expect("reads"),
        b"now a file"
    );
    assert_eq!(
        std::fs::read(folder.path().join("y/z")).expect("reads"),
        b"z"
    );
}

#[test]
fn impossible_entries_are_errors_with_their_name() {
    let refused = [
        Tar::new().file("f", b"x").file("f/below", b"x").end(),
        Tar::new().link("loop", "loop").file("loop/x", b"x").end(),
        Tar::new().hard_link("h", "nothing").end(),
        Tar::new().folder("d").hard_link("h", "d").end(),
        Tar::new().hard_link("h", "/").end(),
        Tar::new().pax("path", &"n".repeat(300), b"x").end(),
        Tar::new().pax("path", &"d/".repeat(2100), b"").end(),
        Tar::new().link("empty", "").end(),
    ];
    for (number, archive) in refused.iter().enumerate() {
        let result = outside_stays(archive);
        assert!(
            matches!(result, Err(UnpackError::Refused { .. })),
            "{number}: {result:?}"
        );
    }
}

#[test]
fn a_bomb_is_stopped_by_its_bytes_or_its_entries() {
    let limits = Limits {
        entries: 10,
        bytes: 1000,
        keep_free: 0,
    };
    let small = |archive: &[u8]| {
        let folder = tempfile::tempdir().expect("temp");
        unpack(archive, opened(folder.path()), limits)
    };
    // A size that is only claimed counts as well.
    let big = Tar::new().raw("x", b'0', 0o644, "", 1 << 50, b"").end();
    assert!(matches!(small(&big), Err(UnpackError::TooBig(_))));
    let many = (0..20)
        .fold(Tar::new(), |tar, n| tar.folder(&format!("d{n}")))
        .end();
    assert!(matches!(small(&many), Err(UnpackError::TooBig(_))));
}

#[test]
fn a_deep_tree_of_folders_is_made_and_can_be_replaced() {
    let folder = tempfile::tempdir().expect("temp");
    let deep = "d/".repeat(200) + "f";
    let archive = Tar::new().pax("path", &deep, b"x").file("d", b"flat").end();
    into(folder.path(), &archive).expect("unpacks");
    assert_eq!(
        std::fs::read(folder.path().join("d")).expect("reads"),
        b"flat"
    );
}
