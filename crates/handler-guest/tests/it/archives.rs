//! Whole folders over the link, against the `tar` crate and the `tar` program, and archives made to do harm.

use crate::client::{Host, Sandbox, Seen, skip};
use handler_types::frame::Frame;
use handler_types::guest::{
    GuestError, GuestErrorCode, Message, Op, Reply, UnpackLimits, Unpacked,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The archive of a path, and what was left out.
fn pack(host: &mut Host, path: &str) -> Result<(Vec<u8>, Vec<String>), GuestError> {
    let request = host.send(Op::Pack {
        path: path.to_owned(),
        hard_links: true,
    });
    host.answer(request)?;
    let mut archive = Vec::new();
    loop {
        let data = host.find(|seen| match seen {
            Seen::File { request: of, data } if *of == request => Some(data.clone()),
            _ => None,
        });
        if data.is_empty() {
            break;
        }
        let bytes = data.len() as u64;
        archive.extend(data);
        host.send_as(0, Op::Credit { request, bytes });
    }
    let skipped = host.find(|seen| match seen {
        Seen::Message(Message::Packed {
            request: of,
            skipped,
            ..
        }) if *of == request => Some(skipped.clone()),
        _ => None,
    });
    Ok((archive, skipped))
}

fn unpack_within(
    host: &mut Host,
    path: &str,
    archive: &[u8],
    limits: UnpackLimits,
) -> Result<Unpacked, GuestError> {
    let path = path.to_owned();
    let request = host.send(Op::Unpack { path, limits });
    // Odd pieces: heads and contents are cut anywhere.
    for piece in archive.chunks(10_007).chain([&[][..]]) {
        host.send_frame(&Frame::File {
            request,
            data: piece.to_vec(),
        });
    }
    match host.answer(request)? {
        Reply::Unpacked { unpacked } => Ok(unpacked),
        other => panic!("{other:?}"),
    }
}

fn unpack(host: &mut Host, path: &str, archive: &[u8]) -> Result<Unpacked, GuestError> {
    unpack_within(host, path, archive, UnpackLimits::default())
}

/// An archive of entries: name, kind, content or link target. Names as they are, however bad.
fn archive(entries: &[(&[u8], tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_gnu();
        let is_link = matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link);
        header.set_entry_type(*kind);
        header.set_mode(0o6755);
        header.set_mtime(1_700_000_000);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name);
        if is_link {
            old.linkname[..content.len()].copy_from_slice(content);
        }
        let content: &[u8] = if is_link { b"" } else { content };
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}

const FILE: tar::EntryType = tar::EntryType::Regular;
const LINK: tar::EntryType = tar::EntryType::Symlink;
const HARD: tar::EntryType = tar::EntryType::Link;
const FOLDER: tar::EntryType = tar::EntryType::Directory;

/// Everything below a folder: path, kind and bits, content or target.
fn tree(top: &Path) -> BTreeMap<Vec<u8>, (u32, Vec<u8>)> {
    fn walk(at: &Path, top: &Path, found: &mut BTreeMap<Vec<u8>, (u32, Vec<u8>)>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_file() {
                std::fs::read(&path).unwrap()
            } else if meta.is_symlink() {
                std::fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec()
            } else {
                Vec::new()
            };
            let name = path
                .strip_prefix(top)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
            found.insert(name, (meta.mode(), content));
            if meta.is_dir() {
                walk(&path, top, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(top, top, &mut found);
    found
}

/// A folder with all that is odd about folders.
fn furnish(top: &Path) {
    let long = "long".repeat(40);
    std::fs::create_dir_all(top.join("sub/empty")).unwrap();
    std::fs::create_dir_all(top.join(&long).join(&long)).unwrap();
    std::fs::write(top.join(&long).join(&long).join("deep"), "deep").unwrap();
    std::fs::write(top.join("sub/file"), "content").unwrap();
    std::fs::write(top.join("big"), vec![b'x'; 300_001]).unwrap();
    std::fs::write(top.join("nothing"), "").unwrap();
    std::fs::write(top.join(OsStr::from_bytes(b"odd \xff\xfe\n name")), "odd").unwrap();
    std::fs::write(top.join("run"), "#!/bin/sh").unwrap();
    std::fs::set_permissions(top.join("run"), PermissionsExt::from_mode(0o751)).unwrap();
    symlink("sub/file", top.join("link")).unwrap();
    symlink("../link", top.join("sub/up")).unwrap();
    symlink(format!("./{long}/{long}/deep"), top.join("long link")).unwrap();
    std::fs::hard_link(top.join("big"), top.join("sub/same")).unwrap();
}

#[test]
fn a_folder_packed_and_unpacked_is_the_same_also_to_other_programs() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let (from, to) = (sandbox.path("from"), sandbox.path("to/deep"));
    furnish(Path::new(&from));
    let (bytes, skipped) = pack(&mut host, &from).unwrap();
    assert!(skipped.is_empty(), "{skipped:?}");
    let unpacked = unpack(&mut host, &to, &bytes).unwrap();
    assert_eq!(unpacked.refused_count, 0, "{unpacked:?}");
    assert_eq!(tree(Path::new(&from)), tree(Path::new(&to)));
    let inode = |name: &str| std::fs::metadata(Path::new(&to).join(name)).unwrap().ino();
    assert_eq!(inode("big"), inode("sub/same"));

    // The `tar` crate reads what was written.
    let crates = sandbox.path("crate");
    tar::Archive::new(bytes.as_slice()).unpack(&crates).unwrap();
    assert_eq!(tree(Path::new(&from)), tree(Path::new(&crates)));

    // And the program, both ways, in the forms it knows.
    let program = |arguments: &[&str], input: &[u8]| {
        let mut child = Command::new("tar")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeding = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &input));
        let output = child.wait_with_output().unwrap();
        let _ = feeding.join();
        assert!(output.status.success(), "{arguments:?}");
        Some(output.stdout)
    };
    let plain = sandbox.path("plain");
    std::fs::create_dir(&plain).unwrap();
    if program(&["-xf", "-", "-C", &plain], &bytes).is_none() {
        return skip("a_folder_packed_and_unpacked", "no `tar` program");
    }
    assert_eq!(tree(Path::new(&from)), tree(Path::new(&plain)));
    for form in ["gnu", "pax", "posix"] {
        let form_of = format!("--format={form}");
        let made = program(&["-cf", "-", &form_of, "-C", &from, "."], b"").unwrap();
        let to = sandbox.path(form);
        unpack(&mut host, &to, &made).unwrap();
        assert_eq!(tree(Path::new(&from)), tree(Path::new(&to)), "{form}");
    }
}

#[test]
fn one_file_is_packed_and_what_has_no_content_is_left_out_and_told() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let top = sandbox.path("top");
    std::fs::create_dir(&top).unwrap();
    std::fs::write(sandbox.path("top/file"), "x").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(sandbox.path("top/socket")).unwrap();
    let made = Command::new("mkfifo")
        .arg(sandbox.path("top/pipe"))
        .status();
    assert!(made.unwrap().success());
    let (bytes, skipped) = pack(&mut host, &top).unwrap();
    let all = skipped.join("|");
    assert!(all.contains("socket") && all.contains("pipe"), "{all}");
    let mut archive = tar::Archive::new(bytes.as_slice());
    assert_eq!(archive.entries().unwrap().count(), 1);

    let (bytes, _) = pack(&mut host, &sandbox.path("top/file")).unwrap();
    let mut archive = tar::Archive::new(bytes.as_slice());
    let entry = archive.entries().unwrap().next().unwrap().unwrap();
    assert_eq!(&*entry.path_bytes(), b"file");
    let error = pack(&mut host, &sandbox.path("top/pipe")).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::Invalid);
    let error = pack(&mut host, &sandbox.path("none")).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::NotFound);
}

#[test]
fn a_file_that_changes_its_size_while_it_is_packed_does_not_break_the_archive() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let top = sandbox.path("top");
    std::fs::create_dir(&top).unwrap();
    std::fs::write(sandbox.path("top/a"), vec![b'a'; 3_000_000]).unwrap();
    std::fs::write(sandbox.path("top/b"), "after it").unwrap();
    let request = host.send(Op::Pack {
        path: top,
        hard_links: false,
    });
    host.answer(request).unwrap();
    // The window is smaller than the file: the guest waits in its middle.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(sandbox.path("top/a"))
        .unwrap();
    file.set_len(1000).unwrap();
    let mut bytes = Vec::new();
    loop {
        let data = host.find(|seen| match seen {
            Seen::File { request: of, data } if *of == request => Some(data.clone()),
            _ => None,
        });
        if data.is_empty() {
            break;
        }
        let count = data.len() as u64;
        bytes.extend(data);
        host.send_as(
            0,
            Op::Credit {
                request,
                bytes: count,
            },
        );
    }
    let mut archive = tar::Archive::new(bytes.as_slice());
    let sizes: Vec<u64> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().size())
        .collect();
    assert_eq!(sizes, [3_000_000, 8]);
}

#[test]
fn archives_that_lead_outside_write_nothing_there() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    std::fs::write(sandbox.path("secret"), "untouched").unwrap();
    let absolute = sandbox.path("secret");
    for (entries, expected) in [
        (vec![(&b"../secret"[..], FILE, &b"bad"[..])], true),
        (vec![(b"a/../../secret", FILE, b"bad")], true),
        (vec![(absolute.as_bytes(), FILE, b"bad")], true),
        (vec![(b"a/..", FOLDER, b"")], true),
        // A link out, then through it.
        (
            vec![(b"out", LINK, b".."), (b"out/secret", FILE, b"bad")],
            false,
        ),
        (
            vec![(b"out", LINK, b"../secret"), (b"out", FILE, b"bad")],
            false,
        ),
        (
            vec![
                (b"d", FOLDER, b""),
                (b"d", LINK, b"../.."),
                (b"d/secret", FILE, b"bad"),
            ],
            false,
        ),
        // Through a link that stays inside, or a hard link to something outside.
        (
            vec![(b"in", LINK, b"there"), (b"in/secret", FILE, b"bad")],
            true,
        ),
        (
            vec![(b"hard", HARD, b"../secret"), (b"hard", FILE, b"bad")],
            false,
        ),
        (
            vec![
                (b"hard", HARD, absolute.as_bytes()),
                (b"hard", FILE, b"bad"),
            ],
            false,
        ),
    ] {
        let to = sandbox.path("to");
        let result = unpack(&mut host, &to, &archive(&entries));
        let names: Vec<_> = entries
            .iter()
            .map(|(name, _, _)| OsStr::from_bytes(name))
            .collect();
        if expected {
            let error = result.expect_err(&format!("{names:?}"));
            assert!(error.message.contains("were unpacked"), "{error}");
        } else if let Ok(unpacked) = result {
            assert!(unpacked.refused_count > 0, "{names:?}: {unpacked:?}");
        }
        assert_eq!(
            std::fs::read(sandbox.path("secret")).unwrap(),
            b"untouched",
            "{names:?}"
        );
        assert!(!Path::new(&to).join("secret").exists(), "{names:?}");
        std::fs::remove_dir_all(&to).unwrap();
    }
    // A link that is there already is not gone through either.
    let to = sandbox.path("to");
    std::fs::create_dir(&to).unwrap();
    symlink(sandbox.folder.path(), sandbox.path("to/out")).unwrap();
    symlink(sandbox.path("secret"), sandbox.path("to/file")).unwrap();
    unpack(&mut host, &to, &archive(&[(b"out/secret", FILE, b"bad")])).unwrap_err();
    unpack(&mut host, &to, &archive(&[(b"file", FILE, b"mine")])).unwrap();
    assert_eq!(std::fs::read(sandbox.path("secret")).unwrap(), b"untouched");
    assert_eq!(std::fs::read(sandbox.path("to/file")).unwrap(), b"mine");
}

#[test]
fn no_device_nodes_nor_set_uid_files_come_out_of_an_archive() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let bytes = archive(&[
        (b"null", tar::EntryType::Char, b""),
        (b"disk", tar::EntryType::Block, b""),
        (b"pipe", tar::EntryType::Fifo, b""),
        (b"program", FILE, b"#!/bin/sh"),
        (
            b"odd",
            tar::EntryType::new(b'Z'),
            b"content of a kind nobody knows",
        ),
        (b"last", FILE, b"is right"),
    ]);
    let unpacked = unpack(&mut host, &sandbox.path("to"), &bytes).unwrap();
    assert_eq!(
        (unpacked.files, unpacked.refused_count),
        (2, 4),
        "{unpacked:?}"
    );
    let meta = std::fs::metadata(sandbox.path("to/program")).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o755);
    assert_eq!(meta.mtime(), 1_700_000_000);
    assert!(!meta.file_type().is_char_device());
    assert_eq!(std::fs::read(sandbox.path("to/last")).unwrap(), b"is right");
    assert_eq!(std::fs::read_dir(sandbox.path("to")).unwrap().count(), 2);
}

#[test]
fn bombs_end_at_the_limits_and_what_was_written_is_told() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let limits = UnpackLimits {
        bytes: 1000,
        entries: 5,
        depth: 3,
    };
    let content = [b'x'; 400];
    let file = |name: &'static [u8]| (name, FILE, &content[..]);
    let many: Vec<(&[u8], tar::EntryType, &[u8])> = vec![(b"d", FOLDER, b""); 6];
    for entries in [
        vec![file(b"a"), file(b"b"), file(b"c")],
        many,
        vec![(b"a/b/c/d", FILE, b"x")],
    ] {
        let to = sandbox.path("to");
        let error = unpack_within(&mut host, &to, &archive(&entries), limits).unwrap_err();
        assert_eq!(error.code, GuestErrorCode::Limit, "{error}");
        std::fs::remove_dir_all(&to).unwrap();
    }
    let error = unpack_within(
        &mut host,
        &sandbox.path("to"),
        &archive(&[file(b"a"), file(b"b"), file(b"c")]),
        limits,
    )
    .unwrap_err();
    assert!(
        error.message.contains("2 entries with 800 bytes"),
        "{error}"
    );
    // A head that lies about its size is believed before a byte of it comes.
    let mut lying = archive(&[file(b"a")]);
    lying[124..136].copy_from_slice(b"77777777777\0");
    let sum: u32 = (0..512)
        .map(|at| {
            if (148..156).contains(&at) {
                32
            } else {
                u32::from(lying[at])
            }
        })
        .sum();
    lying[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let error = unpack_within(&mut host, &sandbox.path("lie"), &lying, limits).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::Limit);
}

#[test]
fn what_is_no_archive_or_half_of_one_is_refused_and_leaves_no_half_file() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let whole = archive(&[(b"a", FILE, b"first"), (b"b", FILE, &[b'b'; 5000])]);
    let to = sandbox.path("to");
    for bytes in [
        b"".to_vec(),
        b"hello".to_vec(),
        vec![b'x'; 5000],
        whole[..1400].to_vec(),
    ] {
        let error = unpack(&mut host, &to, &bytes).unwrap_err();
        assert_eq!(error.code, GuestErrorCode::Invalid, "{error}");
    }
    // The first file was whole; of the second there is nothing, whatever its temporary name was.
    let names: Vec<_> = std::fs::read_dir(&to)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["a"]);
    // The same when the host goes away in the middle.
    let request = host.send(Op::Unpack {
        path: to.clone(),
        limits: UnpackLimits::default(),
    });
    host.send_frame(&Frame::File {
        request,
        data: whole[..2000].to_vec(),
    });
    host.ask(Op::Stats).unwrap();
    drop(host);
    crate::client::wait_for("the half file is gone", || {
        (std::fs::read_dir(&to).unwrap().count() == 1).then_some(())
    });
}

#[test]
fn a_folder_that_is_exchanged_for_a_link_all_the_time_leads_nowhere() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let (to, outside) = (sandbox.path("to"), sandbox.path("outside"));
    std::fs::create_dir_all(sandbox.path("to/flip")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    symlink(&outside, sandbox.path("to/link")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Exchanges the two names as fast as it can.
            let (one, other) = (sandbox.path("to/flip"), sandbox.path("to/link"));
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &one,
                    rustix::fs::CWD,
                    &other,
                    flags,
                );
            }
        });
        let entries: Vec<_> = (0..50)
            .map(|_| (&b"flip/file"[..], FILE, &b"x"[..]))
            .collect();
        let bytes = archive(&entries);
        for _ in 0..60 {
            let _ = unpack(&mut host, &to, &bytes);
            let path = sandbox.path("to");
            let _ = host.ask(Op::Chmod {
                path,
                mode: 0o777,
                recursive: true,
            });
        }
        let (bytes, _) = pack(&mut host, &to).unwrap();
        stop.store(true, Ordering::Relaxed);
        tar::Archive::new(bytes.as_slice())
            .entries()
            .unwrap()
            .for_each(|entry| drop(entry.unwrap()));
    });
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn holes_stay_holes() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    std::fs::create_dir(sandbox.path("from")).unwrap();
    let file = std::fs::File::create(sandbox.path("from/sparse")).unwrap();
    file.set_len(8 * 1024 * 1024).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 4_000_000).unwrap();
    let (bytes, _) = pack(&mut host, &sandbox.path("from")).unwrap();
    unpack(&mut host, &sandbox.path("to"), &bytes).unwrap();
    assert_eq!(
        tree(Path::new(&sandbox.path("from"))),
        tree(Path::new(&sandbox.path("to")))
    );
    let meta = std::fs::metadata(sandbox.path("to/sparse")).unwrap();
    assert!(meta.blocks() * 512 < 1024 * 1024, "{}", meta.blocks());
}

#[test]
fn content_is_hashed_checked_and_not_put_over_what_exists() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let path = sandbox.path("file");
    let mut write = |create_only: bool, sha256: Option<String>, data: &[u8]| {
        let request = host.send(Op::Write {
            path: path.clone(),
            mode: None,
            parents: false,
            create_only,
            sha256,
        });
        for data in [data, b""] {
            host.send_frame(&Frame::File {
                request,
                data: data.to_vec(),
            });
        }
        host.answer(request)
    };
    let Reply::Written { sha256, .. } = write(true, None, b"one").unwrap() else {
        panic!("written");
    };
    assert_eq!(
        write(true, None, b"two").unwrap_err().code,
        GuestErrorCode::Exists
    );
    let wrong = Some(sha256.clone());
    let error = write(false, wrong, b"two").unwrap_err();
    assert_eq!(error.code, GuestErrorCode::Invalid);
    write(false, Some(sha256.clone()), b"one").unwrap();
    assert_eq!(std::fs::read(sandbox.path("file")).unwrap(), b"one");
    assert_eq!(
        std::fs::read_dir(sandbox.folder.path()).unwrap().count(),
        2,
        "file and socket"
    );
    match host
        .ask(Op::Hash {
            path: sandbox.path("file"),
        })
        .unwrap()
    {
        Reply::Written {
            size: 3,
            sha256: told,
        } => assert_eq!(told, sha256),
        other => panic!("{other:?}"),
    }
}
