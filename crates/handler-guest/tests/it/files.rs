//! Files over the link.

use crate::client::{Host, Sandbox, Seen, skip, wait_for};
use handler_types::frame::Frame;
use handler_types::guest::{
    FILE_WINDOW, FileEntry, FileKind, GuestError, GuestErrorCode, Op, Reply,
};
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn write(host: &mut Host, path: &str, data: &[u8]) -> Result<Reply, GuestError> {
    let request = host.send(Op::Write {
        path: path.to_owned(),
        mode: None,
        parents: true,
        create_only: false,
        sha256: None,
    });
    for piece in data.chunks(40_000) {
        host.send_frame(&Frame::File {
            request,
            data: piece.to_vec(),
        });
    }
    host.send_frame(&Frame::File {
        request,
        data: Vec::new(),
    });
    host.answer(request)
}

fn chunk(host: &mut Host, request: u32) -> Vec<u8> {
    host.find(|seen| match seen {
        Seen::File { request: of, data } if *of == request => Some(data.clone()),
        _ => None,
    })
}

fn read(
    host: &mut Host,
    path: &str,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<u8>, GuestError> {
    let request = host.send(Op::Read {
        path: path.to_owned(),
        offset,
        length,
    });
    host.answer(request)?;
    let mut all = Vec::new();
    loop {
        let data = chunk(host, request);
        if data.is_empty() {
            return Ok(all);
        }
        let bytes = data.len() as u64;
        all.extend(data);
        host.send_as(0, Op::Credit { request, bytes });
    }
}

fn list(host: &mut Host, path: &str, depth: u32) -> (Vec<FileEntry>, bool) {
    let id = host.send(Op::List {
        path: path.to_owned(),
        depth,
    });
    let mut all = Vec::new();
    loop {
        match host.answer(id).unwrap() {
            Reply::Entries {
                entries,
                truncated,
                more,
            } => {
                all.extend(entries);
                if !more {
                    return (all, truncated);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn code(result: Result<Reply, GuestError>) -> GuestErrorCode {
    result.unwrap_err().code
}

/// No half-written file is left anywhere.
fn assert_no_temporaries(sandbox: &Sandbox) {
    for found in std::fs::read_dir(sandbox.folder.path()).unwrap() {
        let name = found.unwrap().file_name();
        assert!(
            !name.to_string_lossy().ends_with(".tmp"),
            "{name:?} is left"
        );
    }
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let path = sandbox.path("a/b/ünï cödé ☃.bin");
    // More than the window of a read.
    let data: Vec<u8> = (0..3_333_333u32).map(|at| (at * 7 % 253) as u8).collect();
    let sha256: String = Sha256::digest(&data)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let size = data.len() as u64;
    assert_eq!(
        write(&mut host, &path, &data),
        Ok(Reply::Written { size, sha256 })
    );
    assert!(std::fs::read(&path).unwrap() == data);
    assert!(read(&mut host, &path, 0, None).unwrap() == data);
    assert_eq!(read(&mut host, &path, 5, Some(3)).unwrap(), data[5..8]);
    assert!(read(&mut host, &path, size + 9, None).unwrap().is_empty());
    assert!(read(&mut host, &path, 0, Some(0)).unwrap().is_empty());
    match host.ask(Op::Stat { path: path.clone() }).unwrap() {
        Reply::Entry { entry } => {
            assert_eq!((entry.kind, entry.size), (FileKind::File, size));
            assert_eq!(entry.mode, 0o644);
            assert_eq!(entry.path, path);
            assert!(entry.modified_ms > 1_600_000_000_000);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        write(&mut host, &sandbox.path("empty"), b"").map(|_| ()),
        Ok(())
    );
    assert!(read(&mut host, "/proc/self/status", 0, None).unwrap().len() > 100);
}

#[test]
fn names_that_are_not_utf8_survive() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let path = sandbox.path(r"odd\xff\\name");
    write(&mut host, &path, b"odd").unwrap();
    let name = std::ffi::OsStr::from_bytes(b"odd\xff\\name");
    assert_eq!(
        std::fs::read(sandbox.folder.path().join(name)).unwrap(),
        b"odd"
    );
    let folder = sandbox.path("");
    let (entries, _) = list(&mut host, &folder, 1);
    assert!(
        entries.iter().any(|entry| entry.path == path),
        "{entries:?}"
    );
    assert_eq!(read(&mut host, &path, 0, None).unwrap(), b"odd");
    host.ask(Op::Remove {
        path,
        recursive: false,
    })
    .unwrap();
    assert!(!sandbox.folder.path().join(name).exists());
}

#[test]
fn what_exists_keeps_its_bits_and_a_link_is_written_through() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let (real, link) = (sandbox.path("real"), sandbox.path("link"));
    std::fs::write(&real, "old").unwrap();
    std::fs::set_permissions(&real, PermissionsExt::from_mode(0o751)).unwrap();
    symlink("real", &link).unwrap();
    let inode = std::fs::metadata(&real).unwrap().ino();
    write(&mut host, &link, b"new").unwrap();
    assert_eq!(std::fs::read(&real).unwrap(), b"new");
    let found = std::fs::metadata(&real).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o751);
    // Renamed into place, not written over.
    assert_ne!(found.ino(), inode);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let request = host.send(Op::Write {
        path: sandbox.path("fresh"),
        mode: Some(0o600),
        parents: false,
        create_only: false,
        sha256: None,
    });
    host.send_frame(&Frame::File {
        request,
        data: Vec::new(),
    });
    host.answer(request).unwrap();
    let mode = std::fs::metadata(sandbox.path("fresh")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_no_temporaries(&sandbox);
}

#[test]
fn half_a_write_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let path = sandbox.path("half");
    let begin = |host: &mut Host| {
        let request = host.send(Op::Write {
            path: path.clone(),
            mode: None,
            parents: false,
            create_only: false,
            sha256: None,
        });
        host.send_frame(&Frame::File {
            request,
            data: b"half".to_vec(),
        });
        request
    };
    let temporaries = || {
        std::fs::read_dir(sandbox.folder.path())
            .unwrap()
            .filter(|found| {
                let name = found.as_ref().unwrap().file_name();
                name.to_string_lossy().ends_with(".tmp")
            })
            .count()
    };
    let request = begin(&mut host);
    wait_for("the write has begun", || (temporaries() == 1).then_some(()));
    host.ask(Op::CancelFile { request }).unwrap();
    assert_eq!(temporaries(), 0);
    // Late chunks of it are no harm.
    host.send_frame(&Frame::File {
        request,
        data: Vec::new(),
    });
    assert_eq!(
        code(host.ask(Op::CancelFile { request })),
        GuestErrorCode::NotFound
    );
    begin(&mut host);
    wait_for("the write has begun", || (temporaries() == 1).then_some(()));
    drop(host);
    wait_for("it is removed", || (temporaries() == 0).then_some(()));
    assert!(!std::fs::exists(&path).unwrap());
}

#[test]
fn a_read_waits_for_credit_and_can_be_cancelled() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let path = sandbox.path("big");
    let size = FILE_WINDOW * 3;
    std::fs::write(&path, vec![1; usize::try_from(size).unwrap()]).unwrap();
    let read = |path: String| Op::Read {
        path,
        offset: 0,
        length: None,
    };
    let request = host.send(read(path.clone()));
    assert!(matches!(host.answer(request), Ok(Reply::Reading { size: of, .. }) if of == size));
    let mut got = 0;
    while got < FILE_WINDOW {
        got += chunk(&mut host, request).len() as u64;
    }
    assert_eq!(got, FILE_WINDOW);
    // Whatever comes next on the link, it is not the file.
    host.ask(Op::Stats).unwrap();
    assert_eq!(host.run("echo quick").stdout, b"quick\n");
    host.send_as(0, Op::Credit { request, bytes: 10 });
    assert_eq!(chunk(&mut host, request).len(), 10);
    host.ask(Op::CancelFile { request }).unwrap();
    host.send_as(0, Op::Credit { request, bytes: 10 });
    // The id is free again.
    host.send_as(request, read(path));
    assert!(host.answer(request).is_ok());
}

#[test]
fn a_deep_tree_is_listed_in_order_and_links_are_not_followed() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let top = sandbox.path("top");
    let mut folder = top.clone();
    for level in 0..40 {
        folder += &format!("/d{level}");
    }
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(format!("{top}/a file"), "x").unwrap();
    symlink("/", format!("{top}/z root")).unwrap();
    std::fs::create_dir(format!("{top}/many")).unwrap();
    for index in 0..1200 {
        std::fs::write(format!("{top}/many/{index:04}"), "").unwrap();
    }
    let (one, truncated) = list(&mut host, &top, 1);
    assert!(!truncated);
    let names: Vec<_> = one
        .iter()
        .map(|entry| &entry.path[top.len() + 1..])
        .collect();
    assert_eq!(names, ["a file", "d0", "many", "z root"]);
    let link = &one[3];
    assert_eq!(
        (link.kind, link.target.as_deref()),
        (FileKind::Link, Some("/"))
    );
    let (all, _) = list(&mut host, &top, 32);
    // Four at the top, 31 more folders down, and the many.
    assert_eq!(all.len(), 4 + 31 + 1200);
    assert!(all.iter().any(|entry| entry.path.ends_with("/d30/d31")));
    assert!(!all.iter().any(|entry| entry.path.ends_with("/d32")));
    assert!(
        all.iter()
            .all(|entry| !entry.path.starts_with(&format!("{top}/z root/")))
    );
    // What the caller names itself may be a link.
    symlink(&top, sandbox.path("way")).unwrap();
    assert_eq!(list(&mut host, &sandbox.path("way"), 1).0.len(), 4);
    for depth in [0, 33] {
        let path = top.clone();
        assert_eq!(
            code(host.ask(Op::List { path, depth })),
            GuestErrorCode::Invalid
        );
    }
    let path = format!("{top}/a file");
    assert_eq!(
        code(host.ask(Op::List { path, depth: 1 })),
        GuestErrorCode::Invalid
    );
}

#[test]
fn a_list_without_end_is_cut_and_said_to_be() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let told = host.run("mkdir many && cd many && seq 100100 | xargs touch");
    assert_eq!(told.exit.code, 0);
    let (entries, truncated) = list(&mut host, &sandbox.path("many"), 2);
    assert!(truncated);
    assert_eq!(entries.len(), 100_000);
    assert!(entries.is_sorted_by(|one, other| one.path < other.path));
    let path = sandbox.path("many");
    host.ask(Op::Remove {
        path: path.clone(),
        recursive: true,
    })
    .unwrap();
    assert!(!std::fs::exists(path).unwrap());
}

#[test]
fn removing_takes_all_below_and_never_what_links_point_to() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let (keep, top) = (sandbox.path("keep"), sandbox.path("top"));
    std::fs::create_dir(&keep).unwrap();
    std::fs::write(format!("{keep}/precious"), "x").unwrap();
    std::fs::create_dir_all(format!("{top}/b")).unwrap();
    symlink(&keep, format!("{top}/link")).unwrap();
    symlink("..", format!("{top}/b/up")).unwrap();
    for index in 0..700 {
        std::fs::write(format!("{top}/b/{index}"), "").unwrap();
    }
    // Deeper than a path can say and a stack would bear.
    let deep = host.run(
        "cd top; i=0; while [ $i -lt 400 ]; do mkdir dddddddddddddddddddd && cd dddddddddddddddddddd; i=$((i+1)); done; touch leaf",
    );
    assert_eq!(
        deep.exit.code,
        0,
        "{:?}",
        String::from_utf8_lossy(&deep.stderr)
    );
    let remove = |path: &str, recursive| Op::Remove {
        path: path.to_owned(),
        recursive,
    };
    assert_eq!(code(host.ask(remove(&top, false))), GuestErrorCode::Invalid);
    host.ask(remove(&top, true)).unwrap();
    assert!(!std::fs::exists(&top).unwrap());
    assert!(std::fs::exists(format!("{keep}/precious")).unwrap());
    // A link itself.
    let link = sandbox.path("link");
    symlink(&keep, &link).unwrap();
    host.ask(remove(&link, true)).unwrap();
    assert!(std::fs::exists(format!("{keep}/precious")).unwrap());
    assert_eq!(code(host.ask(remove(&top, true))), GuestErrorCode::NotFound);
    for bad in ["/", "/tmp/..", "relative"] {
        assert_eq!(
            code(host.ask(remove(bad, true))),
            GuestErrorCode::Invalid,
            "{bad}"
        );
    }
}

#[test]
fn folders_are_made_and_paths_moved() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mkdir = |path: &str, parents, mode| Op::Mkdir {
        path: path.to_owned(),
        parents,
        mode,
    };
    let (a, b) = (sandbox.path("a"), sandbox.path("b"));
    let deep = sandbox.path("x/y");
    host.ask(mkdir(&a, false, Some(0o2711))).unwrap();
    assert_eq!(std::fs::metadata(&a).unwrap().mode() & 0o7777, 0o2711);
    assert_eq!(
        code(host.ask(mkdir(&a, false, None))),
        GuestErrorCode::Exists
    );
    host.ask(mkdir(&a, true, None)).unwrap();
    assert_eq!(
        code(host.ask(mkdir(&deep, false, None))),
        GuestErrorCode::NotFound
    );
    host.ask(mkdir(&deep, true, None)).unwrap();
    assert_eq!(
        code(host.ask(mkdir(&b, false, Some(0o10000)))),
        GuestErrorCode::Invalid
    );
    let rename = |from: &str, to: &str, overwrite| Op::Move {
        from: from.to_owned(),
        to: to.to_owned(),
        overwrite,
    };
    std::fs::write(sandbox.path("one"), "1").unwrap();
    std::fs::write(sandbox.path("two"), "2").unwrap();
    let (one, two) = (sandbox.path("one"), sandbox.path("two"));
    assert_eq!(
        code(host.ask(rename(&one, &two, false))),
        GuestErrorCode::Exists
    );
    host.ask(rename(&one, &two, true)).unwrap();
    assert_eq!(std::fs::read(&two).unwrap(), b"1");
    assert_eq!(
        code(host.ask(rename(&one, &two, true))),
        GuestErrorCode::NotFound
    );
    host.ask(rename(&two, &one, false)).unwrap();
}

#[test]
fn odd_targets_are_refused_and_never_waited_for() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let fifo = sandbox.path("fifo");
    assert_eq!(host.run("mkfifo fifo").exit.code, 0);
    for path in [fifo.as_str(), "/dev/zero", "/"] {
        let error = read(&mut host, path, 0, None).unwrap_err();
        assert_eq!(error.code, GuestErrorCode::Invalid, "{path}: {error}");
        let error = write(&mut host, path, b"x").unwrap_err();
        assert_eq!(error.code, GuestErrorCode::Invalid, "{path}: {error}");
    }
    let missing = sandbox.path("no/such");
    let error = read(&mut host, &missing, 0, None).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::NotFound);
    assert!(error.message.contains("no/such"), "{error}");
    assert_no_temporaries(&sandbox);
}

#[test]
fn a_full_file_system_is_told_as_such_and_left_clean() {
    let name = "a_full_file_system_is_told_as_such_and_left_clean";
    let Some(sandbox) = Sandbox::as_init(name) else {
        return;
    };
    let mut host = sandbox.connect();
    let told = host.run("mkdir full && mount -t tmpfs -o size=1m none full");
    if told.exit.code != 0 {
        let why = String::from_utf8_lossy(&told.stderr).into_owned();
        skip(name, &format!("no tmpfs can be mounted: {why}"));
        return;
    }
    let path = sandbox.path("full/file");
    let error = write(&mut host, &path, &vec![7; 3 << 20]).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::NoSpace, "{error}");
    assert!(list(&mut host, &sandbox.path("full"), 1).0.is_empty());
    write(&mut host, &path, &vec![7; 1 << 19]).unwrap();
}

#[test]
fn a_file_that_is_a_mount_point_is_written_in_place() {
    let name = "a_file_that_is_a_mount_point_is_written_in_place";
    let Some(sandbox) = Sandbox::as_init(name) else {
        return;
    };
    let mut host = sandbox.connect();
    let told = host.run("echo long old content > source; : > target; mount --bind source target");
    if told.exit.code != 0 {
        let why = String::from_utf8_lossy(&told.stderr).into_owned();
        skip(name, &format!("nothing can be mounted: {why}"));
        return;
    }
    let path = sandbox.path("target");
    write(&mut host, &path, b"new").unwrap();
    assert_eq!(read(&mut host, &path, 0, None).unwrap(), b"new");
    assert_eq!(std::fs::read(sandbox.path("source")).unwrap(), b"new");
    assert_no_temporaries(&sandbox);
}
