//! Links, FIFOs, odd names, too many files.

use super::{open, write};
use handler_folder::baseline::Baseline;
use handler_folder::{FolderError, Limits, Root, walk};
use handler_types::session_folder::FileChange;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

#[test]
fn links_and_paths_that_leave_the_folder_are_refused() {
    let temp = tempfile::tempdir().expect("temp");
    let (inside, outside) = (temp.path().join("in"), temp.path().join("out"));
    write(&outside, "secret", "key");
    write(&inside, "sub/a", "a");
    write(&inside, ".git/config", "[core]");
    symlink(outside.join("secret"), inside.join("file")).expect("link");
    symlink(&outside, inside.join("folder")).expect("link");
    symlink("sub", inside.join("near")).expect("link");
    let root = open(&inside);
    for path in [
        "file",
        "folder",
        "folder/secret",
        "near/a",
        "/etc/passwd",
        "../out/secret",
        "sub/../sub/a",
        "./sub/a",
        "sub//a",
        "sub/",
        ".git/config",
        "x/.git/y",
        "a\0b",
        "sub",
    ] {
        let refused = root.read(path, 10).expect_err(path);
        assert!(
            matches!(refused, FolderError::NotShown(_)),
            "{path}: {refused:?}"
        );
    }
    assert!(matches!(
        root.read("none", 10),
        Err(FolderError::NotFound(_))
    ));
    assert!(matches!(
        root.read(&"x/".repeat(1500), 10),
        Err(FolderError::NotShown(_))
    ));
    assert!(matches!(
        root.list("folder", 10),
        Err(FolderError::NotShown(_))
    ));
    let (entries, _) = root.list("", 10).expect("listed");
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["sub", "file", "folder", "near"]);
    // Nor is the folder itself reached over a link.
    symlink(&inside, temp.path().join("way")).expect("link");
    assert!(Root::open(&temp.path().join("way")).is_err());
    assert!(Root::open(&temp.path().join("way/sub")).is_err());
}

#[test]
fn a_fifo_blocks_nobody() {
    let temp = tempfile::tempdir().expect("temp");
    for path in ["fifo", ".gitignore", "sub/.gitignore"] {
        write(temp.path(), "sub/x", "");
        mknodat(CWD, temp.path().join(path), FileType::Fifo, Mode::RWXU, 0).expect("fifo");
    }
    let begun = Instant::now();
    let root = open(temp.path());
    assert!(matches!(
        root.read("fifo", 10),
        Err(FolderError::NotShown(_))
    ));
    let walked = walk(&root, None, Limits::default());
    assert!(walked.is_complete && walked.files.keys().eq(["sub/x"]));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn changes_are_told_and_ignored_files_are_not() {
    let temp = tempfile::tempdir().expect("temp");
    let at = temp.path();
    write(at, ".gitignore", "build/\n*.log\n");
    write(at, ".git/info/exclude", "private\n");
    for path in [
        "same",
        "edited",
        "gone",
        "build/x",
        "a.log",
        "private",
        "sub/odd\nname ü",
    ] {
        write(at, path, "text");
    }
    write(at, "touched", "text");
    let root = open(at);
    let baseline = Baseline::take(&root, 0, Limits::default());
    let text = serde_json::to_vec(&baseline).expect("json");
    let baseline: Baseline = serde_json::from_slice(&text).expect("read again");
    assert!(baseline.changes(&root, Limits::default()).files.is_empty());

    write(at, "edited", "other");
    write(at, "new/file", "n");
    write(at, "build/y", "n");
    write(at, "b.log", "n");
    std::fs::remove_file(at.join("gone")).expect("removed");
    // The same size, and the old time put back.
    let old = std::fs::metadata(at.join("touched"))
        .expect("meta")
        .modified()
        .expect("time");
    write(at, "touched", "TEXT");
    let file = std::fs::File::options()
        .write(true)
        .open(at.join("touched"))
        .expect("opened");
    file.set_modified(old).expect("time");
    // An agent that hides what it does, and shows what was there as new.
    write(at, ".gitignore", "edited\nsame\n");
    let found = baseline.changes(&root, Limits::default());
    let told: Vec<(&str, FileChange)> = found
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.change))
        .collect();
    assert_eq!(
        told,
        [
            (".gitignore", FileChange::Modified),
            ("edited", FileChange::Modified),
            ("gone", FileChange::Deleted),
            ("new/file", FileChange::Added),
            ("touched", FileChange::Modified),
        ]
    );
    assert_eq!(baseline.change(&root, "build/x"), None);
    assert_eq!(baseline.change(&root, "new/file"), Some(FileChange::Added));
}

#[test]
fn names_that_are_no_text_and_folders_that_are_closed_stop_nothing() {
    let temp = tempfile::tempdir().expect("temp");
    write(temp.path(), "closed/x", "");
    write(temp.path(), "open", "");
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff");
    std::fs::write(temp.path().join(odd), "").expect("written");
    std::fs::create_dir(temp.path().join(std::ffi::OsStr::from_bytes(b"d\xff"))).expect("folder");
    std::fs::write(
        temp.path().join(std::ffi::OsStr::from_bytes(b"d\xff/in")),
        "",
    )
    .expect("written");
    let closed = temp.path().join("closed");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).expect("closed");
    let walked = walk(&open(temp.path()), None, Limits::default());
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("opened");
    assert!(walked.is_complete);
    for path in ["open", "odd\u{fffd}", "d\u{fffd}/in"] {
        assert!(
            walked.files.contains_key(path),
            "{path}: {:?}",
            walked.files.keys()
        );
    }
}

#[test]
fn a_hundred_thousand_files_are_not_followed_and_take_no_time() {
    let temp = tempfile::tempdir().expect("temp");
    for folder in 0..100 {
        let folder = temp.path().join(format!("d{folder}"));
        std::fs::create_dir(&folder).expect("folder");
        for file in 0..1000 {
            std::fs::File::create(folder.join(format!("f{file}"))).expect("file");
        }
    }
    let root = open(temp.path());
    let begun = Instant::now();
    let baseline = Baseline::take(&root, 0, Limits::default());
    assert!(baseline.not_followed && baseline.files.is_empty());
    assert!(baseline.changes(&root, Limits::default()).not_followed);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    let late = Limits {
        time: Duration::ZERO,
        ..Limits::default()
    };
    assert!(!walk(&root, None, late).is_complete);
}

#[test]
fn a_large_file_is_read_no_further_than_asked() {
    let temp = tempfile::tempdir().expect("temp");
    let file = std::fs::File::create(temp.path().join("huge")).expect("file");
    file.set_len(1 << 40).expect("sparse");
    let (bytes, is_all) = open(temp.path()).read("huge", 1024).expect("read");
    assert_eq!((bytes.len(), is_all), (1024, false));
}
