//! Repositories made by the real Git, and ones nobody should have made.

use super::{open, write};
use handler_folder::git::{GitError, Head, file, head};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs Git; false when this machine has none.
fn git(at: &Path, args: &[&str]) -> bool {
    let settings = ["-c", "user.name=T", "-c", "user.email=t@localhost"];
    let run = Command::new("git")
        .args(settings)
        .args(args)
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output();
    let Ok(done) = run else { return false };
    assert!(done.status.success(), "{args:?}: {done:?}");
    true
}

fn repository(at: &Path) -> bool {
    if !git(at, &["init", "-q", "-b", "main"]) {
        return false;
    }
    let long: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    write(at, "a.txt", "one\n");
    write(at, "deep/er/größe.txt", &long);
    git(at, &["add", "-A"]);
    git(at, &["commit", "-qm", "first"]);
    true
}

fn commit(at: &Path) -> String {
    match head(&open(at)) {
        Head::Commit(commit) => commit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn earlier_versions_are_read_even_after_the_agent_commits_and_packs() {
    let temp = tempfile::tempdir().expect("temp");
    let at = temp.path();
    if !repository(at) {
        return;
    }
    let first = commit(at);
    let root = open(at);
    assert_eq!(
        file(&root, &first, "a.txt").expect("read"),
        (0o644, b"one\n".to_vec())
    );
    let long = file(&root, &first, "deep/er/größe.txt").expect("read").1;
    for n in 0..20 {
        write(at, "a.txt", &format!("{n}\n"));
        let text = String::from_utf8(long.clone()).expect("text");
        write(
            at,
            "deep/er/größe.txt",
            &text.replace(&format!("line {n}\n"), "x\n"),
        );
        git(at, &["commit", "-qam", "more"]);
    }
    let later = commit(at);
    git(at, &["gc", "-q", "--aggressive", "--prune=now"]);
    git(at, &["pack-refs", "--all"]);
    assert!(!at.join(".git/refs/heads/main").exists());
    assert_eq!(commit(at), later);
    assert_eq!(file(&root, &first, "a.txt").expect("read").1, b"one\n");
    assert!(file(&root, &first, "deep/er/größe.txt").expect("read").1 == long);
    for path in ["none", "deep", "deep/none", "a.txt/x", "../a.txt", ""] {
        assert!(
            matches!(file(&root, &first, path), Err(GitError::Missing)),
            "{path}"
        );
    }
}

#[test]
fn a_repository_whose_config_names_a_program_or_would_block_the_reader() {
    let temp = tempfile::tempdir().expect("temp");
    let at = temp.path();
    if !repository(at) {
        return;
    }
    let first = commit(at);
    let proof = at.join("ran");
    let program = format!("touch '{}'", proof.display());
    write(
        at,
        ".git/config",
        &format!(
            "[core]\nfsmonitor = {program}\npager = {program}\n[diff \"x\"]\ntextconv = {program}\n[filter \"x\"]\nsmudge = {program}\n"
        ),
    );
    write(at, ".gitattributes", "* filter=x diff=x\n");
    assert_eq!(file(&open(at), &first, "a.txt").expect("read").1, b"one\n");
    assert!(!proof.exists());
    let begun = Instant::now();
    for path in [".git/config", ".git/HEAD", ".git/packed-refs"] {
        std::fs::remove_file(at.join(path)).ok();
        mknodat(CWD, at.join(path), FileType::Fifo, Mode::RWXU, 0).expect("fifo");
    }
    assert_eq!(head(&open(at)), Head::None);
    assert_eq!(file(&open(at), &first, "a.txt").expect("read").1, b"one\n");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn git_folders_that_are_files_or_links_are_no_repositories() {
    let temp = tempfile::tempdir().expect("temp");
    let (real, linked) = (temp.path().join("real"), temp.path().join("linked"));
    std::fs::create_dir_all(&real).expect("folder");
    std::fs::create_dir_all(&linked).expect("folder");
    if !repository(&real) {
        return;
    }
    symlink(real.join(".git"), linked.join(".git")).expect("link");
    assert_eq!(head(&open(&linked)), Head::None);
    let first = commit(&real);
    assert!(file(&open(&linked), &first, "a.txt").is_err());
    git(&real, &["worktree", "add", "-q", "../tree"]);
    assert_eq!(head(&open(&temp.path().join("tree"))), Head::None);
    // Nor do its references and objects lead out.
    let empty = temp.path().join("empty");
    std::fs::create_dir_all(empty.join(".git")).expect("folder");
    write(
        &empty,
        ".git/HEAD",
        "ref: refs/../../real/.git/refs/heads/main\n",
    );
    assert_eq!(head(&open(&empty)), Head::None);
    write(&empty, ".git/HEAD", "ref: refs/heads/main\n");
    assert_eq!(head(&open(&empty)), Head::Unborn);
    symlink(real.join(".git/objects"), empty.join(".git/objects")).expect("link");
    assert!(file(&open(&empty), &first, "a.txt").is_err());
}

#[test]
fn malformed_objects_are_errors_and_forged_ones_are_not_believed() {
    let temp = tempfile::tempdir().expect("temp");
    let at = temp.path();
    if !repository(at) {
        return;
    }
    let first = commit(at);
    let mut objects = Vec::new();
    for folder in std::fs::read_dir(at.join(".git/objects"))
        .expect("objects")
        .flatten()
    {
        if folder.file_name().len() == 2 {
            let files = std::fs::read_dir(folder.path()).expect("files").flatten();
            objects.extend(files.map(|file| file.path()));
        }
    }
    let contents: Vec<Vec<u8>> = objects
        .iter()
        .map(|path| std::fs::read(path).expect("read"))
        .collect();
    let put = |path: &Path, bytes: &[u8]| {
        std::fs::remove_file(path).ok();
        std::fs::write(path, bytes).expect("written");
    };
    for (n, path) in objects.iter().enumerate() {
        // Another object under its name, garbage, nothing, a cut.
        let other = &contents[(n + 1) % contents.len()];
        for bytes in [
            &other[..],
            b"garbage",
            b"",
            &contents[n][..contents[n].len() / 2],
        ] {
            put(path, bytes);
            let read = file(&open(at), &first, "a.txt");
            assert!(read.is_err() || read.is_ok_and(|(_, text)| text == b"one\n"));
        }
        put(path, &contents[n]);
    }
    assert!(file(&open(at), &first, "a.txt").is_ok());
    // A pack in which any byte may be wrong.
    git(at, &["gc", "-q"]);
    let packs = std::fs::read_dir(at.join(".git/objects/pack")).expect("packs");
    for path in packs.flatten().map(|entry| entry.path()) {
        let bytes = std::fs::read(&path).expect("read");
        for at_byte in (0..bytes.len()).step_by(bytes.len() / 97 + 1) {
            let mut wrong = bytes.clone();
            wrong[at_byte] ^= 0xff;
            put(&path, &wrong);
            let read = file(&open(at), &first, "a.txt");
            assert!(read.is_err() || read.is_ok_and(|(_, text)| text == b"one\n"));
        }
        put(&path, &bytes);
    }
}
