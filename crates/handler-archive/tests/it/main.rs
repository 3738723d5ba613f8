//! Zip archives made and taken, against python's `zipfile` and `unzip`, and those made to do harm.
#![cfg(feature = "zip")]

use handler_archive::{ArchiveError, ErrorKind, Limits, Packing, Unpacking, zip};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

const LIMITS: Limits = Limits {
    bytes: 10_000_000,
    entries: 1000,
    depth: 20,
};

/// Says that a test was not done, past the harness's capture.
fn skip(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIP {test}: {why}").ok();
}

fn packed(top: &Path) -> Vec<u8> {
    let mut packing = Packing::open(top).expect("opens").0.without_hard_links();
    let (mut all, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        match packing.read(&mut buffer) {
            0 => return all,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

fn zipped(tar: &[u8]) -> Vec<u8> {
    let mut maker = zip::FromTar::new();
    let mut all = Vec::new();
    for piece in tar.chunks(777) {
        all.extend(maker.add(piece).expect("a tar archive"));
    }
    all.extend(maker.finish().expect("whole"));
    all
}

/// Unpacks a zip archive by way of tar.
fn unzip(
    archive: &[u8],
    to: &Path,
    limits: Limits,
) -> Result<handler_archive::Summary, ArchiveError> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(archive).expect("written");
    std::fs::create_dir_all(to).expect("made");
    let mut unpacking = Unpacking::open(to, limits)?;
    let mut failure = None;
    zip::to_tar(file, limits, |piece| {
        failure = unpacking.add(&piece).err();
        failure.is_none()
    })?;
    match failure {
        Some(failure) => Err(failure),
        None => unpacking.finish(),
    }
}

fn furnish(top: &Path) {
    std::fs::create_dir_all(top.join("sub/empty")).expect("made");
    std::fs::write(top.join("sub/file"), "content").expect("made");
    std::fs::write(top.join("text ä€"), "x".repeat(200_000)).expect("made");
    std::fs::write(top.join("none"), "").expect("made");
    std::fs::write(top.join("run"), "#!/bin/sh").expect("made");
    let bits = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(top.join("run"), bits).expect("set");
    symlink("sub/file", top.join("link")).expect("made");
}

fn same(one: &Path, other: &Path) -> bool {
    let arguments = ["-r", "--no-dereference"];
    let status = Command::new("diff")
        .args(arguments)
        .arg(one)
        .arg(other)
        .status();
    status.expect("diff is here").success()
}

#[test]
fn a_folder_survives_as_zip_and_other_programs_read_it() {
    let temp = tempfile::tempdir().expect("temp");
    let (from, to) = (temp.path().join("from"), temp.path().join("to"));
    furnish(&from);
    let archive = zipped(&packed(&from));
    let done = unzip(&archive, &to, LIMITS).expect("unpacked");
    assert_eq!(done.refused_count, 0, "{done:?}");
    assert!(same(&from, &to));
    let bits = std::fs::metadata(to.join("run"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(bits & 0o7777, 0o755);

    let file = temp.path().join("a.zip");
    std::fs::write(&file, &archive).expect("written");
    let python = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
                  assert z.read('sub/file') == b'content'\nassert 'text ä€' in z.namelist()\n\
                  assert (z.getinfo('link').external_attr >> 28) == 0o12\n\
                  w = zipfile.ZipFile(sys.argv[2], 'w', zipfile.ZIP_DEFLATED)\n\
                  w.writestr('made/by', 'python' * 1000)\nw.close()";
    let made = temp.path().join("made.zip");
    match Command::new("python3")
        .args(["-c", python])
        .arg(&file)
        .arg(&made)
        .status()
    {
        Ok(status) => assert!(status.success()),
        Err(_) => return skip("a_folder_survives_as_zip", "no python3"),
    }
    let other = temp.path().join("other");
    unzip(&std::fs::read(&made).expect("made"), &other, LIMITS).expect("unpacked");
    let text = std::fs::read_to_string(other.join("made/by")).expect("there");
    assert_eq!(text, "python".repeat(1000));
}

#[test]
fn names_of_any_bytes_survive() {
    use std::os::unix::ffi::OsStrExt as _;
    let temp = tempfile::tempdir().expect("temp");
    let (from, to) = (temp.path().join("from"), temp.path().join("to"));
    std::fs::create_dir(&from).expect("made");
    let name = std::ffi::OsStr::from_bytes(b"odd \xff\xfe\n");
    std::fs::write(from.join(name), "odd").expect("made");
    unzip(&zipped(&packed(&from)), &to, LIMITS).expect("unpacked");
    assert_eq!(std::fs::read(to.join(name)).expect("there"), b"odd");
}

#[test]
fn what_is_no_zip_or_leads_outside_or_is_a_bomb_is_refused() {
    let temp = tempfile::tempdir().expect("temp");
    let to = temp.path().join("to");
    for bytes in [&b""[..], b"hello", &[0; 5000], b"PK\x05\x06"] {
        let error = unzip(bytes, &to, LIMITS).expect_err("no archive");
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    let archive = |head: handler_archive::tar::Head, content: &[u8]| {
        let mut tar = Vec::new();
        handler_archive::tar::write_head(&head, &mut tar);
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
        zipped(&tar)
    };
    let file = |name: &[u8], size: u64| handler_archive::tar::Head {
        name: name.to_vec(),
        kind: handler_archive::tar::kind::FILE,
        mode: 0o644,
        size,
        ..Default::default()
    };
    for name in [&b"../out"[..], b"/tmp/out", b"a/../../out"] {
        let error = unzip(&archive(file(name, 1), b"x"), &to, LIMITS).expect_err("outside");
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    assert!(!temp.path().join("out").exists());
    let bomb = archive(file(b"bomb", 20_000_000), &vec![0; 20_000_000]);
    assert!(bomb.len() < 200_000);
    let error = unzip(&bomb, &to, LIMITS).expect_err("too big");
    assert_eq!(error.kind, ErrorKind::Limit);
    // One that says a small size and holds more: the size in the directory is made smaller.
    let mut lying = archive(file(b"bomb", 1_000_000), &vec![0; 1_000_000]);
    let at = lying
        .windows(4)
        .rposition(|w| w == b"PK\x01\x02")
        .expect("a directory");
    lying[at + 24..at + 28].copy_from_slice(&10_u32.to_le_bytes());
    unzip(&lying, &to, LIMITS).expect_err("it lies");
    for length in [10, bomb.len() / 2, bomb.len() - 1] {
        unzip(&bomb[..length], &to, LIMITS).expect_err("cut");
    }
    assert_eq!(std::fs::read_dir(&to).expect("there").count(), 0);
}
