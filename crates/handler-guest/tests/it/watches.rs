//! Watches: what changes is told.

use crate::client::{Host, Sandbox, Seen};
use handler_types::guest::{GuestErrorCode, Message, Op, WatchEvent, WatchKind};
use std::os::unix::fs::{PermissionsExt, symlink};

fn watch(host: &mut Host, path: &str, recursive: bool) -> u32 {
    let request = host.send(Op::Watch {
        path: path.to_owned(),
        recursive,
    });
    host.answer(request).unwrap();
    request
}

/// Events of a watch until one that fits.
fn until(host: &mut Host, request: u32, fits: impl Fn(&WatchEvent) -> bool) -> Vec<WatchEvent> {
    let mut all = Vec::new();
    while !all.iter().any(&fits) {
        all.extend(host.find(|seen| match seen {
            Seen::Message(Message::Watched {
                request: of,
                events,
            }) if *of == request => Some(events.clone()),
            _ => None,
        }));
    }
    all
}

#[test]
fn changes_are_told_in_order_with_what_they_are() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let top = sandbox.path("top");
    std::fs::create_dir(&top).unwrap();
    let request = watch(&mut host, &top, true);
    let path = |name: &str| sandbox.path(&format!("top/{name}"));
    std::fs::write(path("a"), "x").unwrap();
    std::fs::set_permissions(path("a"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(path("a"), path("b")).unwrap();
    std::fs::rename(path("b"), sandbox.path("away")).unwrap();
    std::fs::rename(sandbox.path("away"), path("c")).unwrap();
    std::fs::remove_file(path("c")).unwrap();
    let told = until(&mut host, request, |event| {
        event.kind == WatchKind::Remove && event.path == path("c")
    });
    let short: Vec<_> = told
        .iter()
        .map(|event| (event.kind, event.path.clone(), event.to.clone()))
        .collect();
    let plain = |kind, name: &str| (kind, path(name), None);
    assert_eq!(
        short,
        [
            plain(WatchKind::Create, "a"),
            plain(WatchKind::Write, "a"),
            plain(WatchKind::Chmod, "a"),
            (WatchKind::Rename, path("a"), Some(path("b"))),
            plain(WatchKind::Remove, "b"),
            plain(WatchKind::Create, "c"),
            plain(WatchKind::Remove, "c"),
        ]
    );
}

#[test]
fn new_folders_are_watched_and_renamed_ones_told_by_their_new_name_and_links_left_alone() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let top = sandbox.path("top");
    std::fs::create_dir_all(sandbox.path("top/old/below")).unwrap();
    std::fs::create_dir(sandbox.path("outside")).unwrap();
    symlink(sandbox.path("outside"), sandbox.path("top/link")).unwrap();
    let request = watch(&mut host, &top, true);
    let flat = watch(&mut host, &top, false);
    let path = |name: &str| sandbox.path(&format!("top/{name}"));
    std::fs::create_dir_all(path("new/deep/er")).unwrap();
    std::fs::write(path("new/deep/er/file"), "x").unwrap();
    until(&mut host, request, |event| {
        event.path == path("new/deep/er/file")
    });
    std::fs::rename(path("old"), path("moved")).unwrap();
    std::fs::write(sandbox.path("outside/file"), "x").unwrap();
    std::fs::write(path("moved/below/file"), "x").unwrap();
    let told = until(&mut host, request, |event| {
        event.path == path("moved/below/file")
    });
    assert!(
        told.iter().all(|event| !event.path.contains("outside")),
        "{told:?}"
    );
    let creates = told
        .iter()
        .filter(|event| event.kind == WatchKind::Create && event.path == path("moved/below/file"));
    assert_eq!(creates.count(), 1, "{told:?}");
    std::fs::write(path("last"), "x").unwrap();
    let told = until(&mut host, flat, |event| event.path == path("last"));
    assert!(
        told.iter().all(|event| !event.path.contains("below")),
        "{told:?}"
    );
    // The end of what is watched is told.
    std::fs::remove_dir_all(&top).unwrap();
    for watch in [request, flat] {
        host.find(|seen| match seen {
            Seen::Message(Message::WatchEnded { request }) if *request == watch => Some(()),
            _ => None,
        });
    }
}

#[test]
fn a_host_that_does_not_read_gets_an_overflow_and_watches_are_few() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let error = host
        .ask(Op::Watch {
            path: sandbox.path("none"),
            recursive: true,
        })
        .unwrap_err();
    assert_eq!(error.code, GuestErrorCode::NotFound);
    let request = watch(&mut host, &sandbox.path("."), true);
    for number in 0..30_000 {
        std::fs::write(sandbox.path(&format!("f{number}")), "").unwrap();
    }
    until(&mut host, request, |event| {
        event.kind == WatchKind::Overflow
    });
    let refused = (0..40).find_map(|_| {
        let op = Op::Watch {
            path: sandbox.path("."),
            recursive: false,
        };
        host.ask(op).err()
    });
    assert_eq!(refused.unwrap().code, GuestErrorCode::Limit);
    host.ask(Op::CancelFile { request }).unwrap();
    host.ask(Op::Watch {
        path: sandbox.path("."),
        recursive: false,
    })
    .unwrap();
}
