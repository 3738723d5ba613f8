//! Connections: broken ones, many of them; the forwarder to the egress filter.

use crate::client::{PATIENCE, Sandbox, Seen, wait_for};
use handler_types::frame::Frame;
use handler_types::guest::{GuestErrorCode, Message, Op, Stream};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

#[test]
fn a_malformed_frame_ends_its_own_connection_only() {
    let sandbox = Sandbox::new();
    let mut good = sandbox.connect();
    for bytes in [
        &[0, 0, 0, 0][..],
        &[255, 255, 255, 255],
        &[0, 0, 0, 2, 77, 0],
        // Too short for its kind.
        &[0, 0, 0, 2, 3, 0],
        // No JSON.
        b"\0\0\0\x05\x01oops",
        // JSON without an id.
        b"\0\0\0\x0f\x01{\"op\":\"stats\"}",
    ] {
        let mut bad = sandbox.connect();
        bad.stream.write_all(bytes).unwrap();
        assert_eq!(bad.next(), Seen::End, "{bytes:?}");
    }
    let mut bad = sandbox.connect();
    bad.send_frame(&Frame::Output {
        process: 1,
        offset: 0,
        stream: Stream::Stdout,
        data: vec![1],
    });
    assert_eq!(bad.next(), Seen::End);
    assert_eq!(good.run("echo fine").stdout, b"fine\n");
}

#[test]
fn a_request_of_a_newer_host_is_answered_as_unknown() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    host.send_frame(&Frame::Json(
        br#"{"id":5,"op":"levitate","height":3}"#.to_vec(),
    ));
    let error = host.answer(5).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::Invalid);
    // An unknown field of a known one is no reason to refuse.
    host.send_frame(&Frame::Json(
        br#"{"id":6,"op":"stats","precise":true}"#.to_vec(),
    ));
    host.answer(6).unwrap();
}

#[test]
fn unknown_processes_are_told_as_such() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let process = 99;
    for op in [
        Op::Attach { process, from: 0 },
        Op::Detach { process },
        Op::Ack { process, up_to: 0 },
        Op::CloseStdin { process, at: 0 },
        Op::Signal {
            process,
            signal: 15,
            tree: true,
        },
        Op::Resize {
            process,
            cols: 1,
            rows: 1,
        },
        Op::Forget { process },
    ] {
        let error = host.ask(op.clone()).unwrap_err();
        assert_eq!(error.code, GuestErrorCode::NotFound, "{op:?}");
    }
    host.input(process, 0, b"x");
    host.find(|seen| match seen {
        Seen::Message(Message::InputRefused { process: 99, .. }) => Some(()),
        _ => None,
    });
}

#[test]
fn a_flood_of_connections_is_bounded_and_passes() {
    let sandbox = Sandbox::new();
    sandbox.connect();
    let many: Vec<_> = (0..200)
        .map(|_| std::os::unix::net::UnixStream::connect(sandbox.socket()).unwrap())
        .collect();
    drop(many);
    let mut host = wait_for("there is room again", || {
        let mut stream = std::os::unix::net::UnixStream::connect(sandbox.socket()).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).ok()?;
        Some(sandbox.connect())
    });
    assert_eq!(host.run("echo fine").stdout, b"fine\n");
}

#[test]
fn the_forwarder_carries_both_ways_and_half_closes() {
    let filter_folder = tempfile::tempdir().unwrap();
    let filter_socket = filter_folder.path().join("proxy.sock");
    let filter = UnixListener::bind(&filter_socket).unwrap();
    // A port that is free now; the guest takes it at once.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let sandbox = Sandbox::with(&[
        "--egress-socket",
        filter_socket.to_str().unwrap(),
        "--egress-port",
        &port.to_string(),
    ]);
    sandbox.connect();
    let length = 3_000_000;
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = filter.accept().unwrap();
            let mut all = Vec::new();
            // Ends only when the half-close comes through.
            stream.read_to_end(&mut all).unwrap();
            all.reverse();
            stream.write_all(&all).unwrap();
        }
    });
    for _ in 0..2 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let data: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        client.write_all(&data).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        back.reverse();
        assert!(back == data);
    }
    server.join().unwrap();
}
