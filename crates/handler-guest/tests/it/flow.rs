//! Much output, slow readers, lost links.

use crate::client::{Sandbox, Seen, shell, wait_for};
use handler_types::guest::{GuestErrorCode, INPUT_WINDOW, Message, OUTPUT_WINDOW, Op, Stream};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// 64 MiB that no compression and no luck could replace.
const NOISE: &str =
    "openssl enc -aes-128-ctr -nosalt -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c 67108864";
const NOISE_LENGTH: u64 = 64 * 1024 * 1024;

fn hex(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A generator that every machine has, when there is no openssl.
fn noise_command() -> &'static str {
    let has = std::process::Command::new("openssl")
        .arg("version")
        .output()
        .is_ok_and(|output| output.status.success());
    if has {
        NOISE
    } else {
        "head -c 67108864 /dev/urandom"
    }
}

#[test]
fn a_stalled_reader_stalls_the_command_and_loses_nothing() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let process = host.shell(&format!("{} | tee copy", noise_command()));
    // Nothing is acknowledged: the guest stops at its window.
    let full = wait_for("the window fills", || {
        let info = host.info(process);
        (info.produced >= OUTPUT_WINDOW - 65_536).then_some(info)
    });
    assert!(full.produced <= OUTPUT_WINDOW);
    std::thread::sleep(Duration::from_millis(200));
    let later = host.info(process);
    assert!(later.produced <= OUTPUT_WINDOW, "read beyond the window");
    assert!(later.exit.is_none());
    // Another process on the same link is not held up.
    assert_eq!(host.run("echo quick").stdout, b"quick\n");
    let stalled = sandbox.resident_kib();
    assert!(stalled < 24 * 1024, "{stalled} KiB resident");

    let mut hash = Sha256::new();
    let mut expected = 0;
    while let Some((offset, stream, data)) = host.piece(process) {
        assert_eq!((offset, stream), (expected, Stream::Stdout));
        hash.update(&data);
        expected += data.len() as u64;
        let up_to = expected;
        host.send_as(0, Op::Ack { process, up_to });
    }
    assert_eq!(expected, NOISE_LENGTH);
    let resident = sandbox.resident_kib();
    assert!(resident < 24 * 1024, "{resident} KiB resident");
    let copy = Sha256::new_with_prefix(std::fs::read(sandbox.path("copy")).unwrap());
    assert_eq!(hex(hash), hex(copy));
}

#[test]
fn a_host_that_reads_nothing_holds_up_only_itself() {
    let sandbox = Sandbox::new();
    let mut dead = sandbox.connect();
    let mut process = 0;
    for _ in 0..4 {
        process = dead.shell("exec cat /dev/zero");
    }
    // It also asks without reading the answers, more than any buffer takes.
    dead.stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut bytes = Vec::new();
    handler_types::frame::encode_json(
        &handler_types::guest::Request {
            id: 9,
            op: Op::Processes,
        },
        &mut bytes,
    )
    .unwrap();
    let many = bytes.repeat(2000);
    for _ in 0..100 {
        if std::io::Write::write_all(&mut dead.stream, &many).is_err() {
            break;
        }
    }
    let mut host = sandbox.connect();
    assert_eq!(host.run("echo quick").stdout, b"quick\n");
    // Its process is taken over.
    let info = host.attach(process, 0);
    assert!(info.exit.is_none());
    let (offset, _, data) = host.piece(process).unwrap();
    assert_eq!(offset, 0);
    assert!(!data.is_empty());
    let resident = sandbox.resident_kib();
    assert!(resident < 48 * 1024, "{resident} KiB resident");
}

#[test]
fn a_new_link_goes_on_where_the_old_one_was() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.connect();
    let mut spec = shell("echo one; read line; echo \"two $line\" >&2; exit 5");
    spec.stdin = true;
    let process = first.start(spec).unwrap().process;
    first.attach(process, 0);
    first.output_with(process, "one\n");
    first.input(process, 0, b"x\n");
    let boot = first.boot.clone();
    drop(first);

    let mut second = sandbox.connect();
    assert_eq!(second.boot, boot);
    let info = wait_for("it ended unseen", || {
        let info = second.info(process);
        (info.exit.is_some() && info.produced == 10).then_some(info)
    });
    assert_eq!(info.exit.unwrap().code, 5);
    // From the middle of what was seen already, nothing being acknowledged.
    second.attach(process, 2);
    let mut got = Vec::new();
    while let Some((offset, stream, data)) = second.piece(process) {
        got.push((offset, stream, data));
    }
    assert_eq!(
        got,
        [
            (2, Stream::Stdout, b"e\n".to_vec()),
            (4, Stream::Stderr, b"two x\n".to_vec())
        ]
    );
    second.ask(Op::Ack { process, up_to: 4 }).unwrap();
    for from in [3, 11] {
        let error = second.ask(Op::Attach { process, from }).unwrap_err();
        assert_eq!(error.code, GuestErrorCode::Invalid);
    }
    let error = second.ask(Op::Ack { process, up_to: 11 }).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::Invalid);
    // The end is told again to whoever attaches.
    second.attach(process, 10);
    assert!(second.piece(process).is_none());
}

#[test]
fn taking_over_moves_the_output_to_one_link_only() {
    let sandbox = Sandbox::new();
    let (mut first, mut second) = (sandbox.connect(), sandbox.connect());
    let mut spec = shell("while read line; do echo \"$line\"; done");
    spec.stdin = true;
    let process = first.start(spec).unwrap().process;
    first.attach(process, 0);
    first.input(process, 0, b"a\n");
    first.output_with(process, "a\n");
    second.attach(process, 2);
    first.input(process, 2, b"b\n");
    assert_eq!(second.output_with(process, "b\n"), "b\n");
    second.ask(Op::Detach { process }).unwrap();
    first.input(process, 4, b"c\n");
    wait_for("the output is kept", || {
        (second.info(process).produced == 6).then_some(())
    });
    first.attach(process, 4);
    assert_eq!(first.output_with(process, "c\n"), "c\n");
    first.ask(Op::CloseStdin { process, at: 6 }).unwrap();
    assert_eq!(second.exit(process).code, 0);
    assert_eq!(first.exit(process).code, 0);
}

#[test]
fn input_for_a_command_that_does_not_read_is_bounded_and_stalls_nobody() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mut spec = shell("while [ ! -e go ]; do sleep 0.02; done; cat | wc -c");
    spec.stdin = true;
    let process = host.start(spec).unwrap().process;
    host.attach(process, 0);
    let block = vec![b'x'; 64 * 1024];
    let mut sent = 0u64;
    let mut taken = 0u64;
    // Up to the window: the pipe takes some of it.
    for _ in 0..3 {
        while sent + block.len() as u64 <= taken + INPUT_WINDOW {
            host.input(process, sent, &block);
            sent += block.len() as u64;
        }
        taken = host.info(process).received;
    }
    assert!(taken < sent);
    // One block too many is refused, and told.
    host.input(process, sent, &vec![b'y'; 64 * 1024]);
    host.input(process, sent + 65_536, b"gap after what was refused");
    let codes = [(); 2].map(|()| {
        host.find(|seen| match seen {
            Seen::Message(Message::InputRefused { error, .. }) => Some(error.code),
            _ => None,
        })
    });
    assert_eq!(codes, [GuestErrorCode::Limit, GuestErrorCode::Invalid]);
    assert_eq!(host.run("echo quick").stdout, b"quick\n");
    std::fs::write(sandbox.path("go"), "").unwrap();
    host.find(|seen| match seen {
        Seen::Message(Message::InputCredit { received, .. }) if *received == sent => Some(()),
        _ => None,
    });
    host.input(process, sent, b"end");
    host.ask(Op::CloseStdin {
        process,
        at: sent + 3,
    })
    .unwrap();
    let told = host.drain(process);
    let count = String::from_utf8(told.stdout).unwrap();
    assert_eq!(count.trim(), (sent + 3).to_string());
}

#[test]
fn both_streams_get_their_turn() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let process = host.shell("cat /dev/zero & cat /dev/zero >&2");
    let (mut out, mut err) = (0u64, 0u64);
    // How much each gets is the scheduler's affair too; starving would be the guest's.
    while out.min(err) < 1 << 20 {
        assert!(out + err < 512 << 20, "{out} and {err}");
        let (offset, stream, data) = host.piece(process).unwrap();
        let up_to = offset + data.len() as u64;
        host.send_as(0, Op::Ack { process, up_to });
        match stream {
            Stream::Stdout => out += data.len() as u64,
            _ => err += data.len() as u64,
        }
    }
}
