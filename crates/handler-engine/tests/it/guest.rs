//! The link against the real guest program.

use crate::peer::SOON;
use bytes::Bytes;
use handler_engine::guest::{GuestCallError, GuestHandle, GuestTiming, ProcessStream, StreamItem};
use handler_engine::test_support::guest_program;
use handler_types::guest::{Exit, GuestErrorCode, ProcessSpec, Stream, TtySize};
use std::path::PathBuf;
use tokio::process::Child;

pub(crate) struct Real {
    temp: tempfile::TempDir,
    socket: PathBuf,
    _child: Child,
}

impl Real {
    pub(crate) fn new(test: &str) -> Option<Self> {
        let Some(guest) = guest_program() else {
            crate::world::skip(test);
            return None;
        };
        let temp = tempfile::tempdir().expect("temp");
        let socket = temp.path().join("guest.sock");
        let child = handler_base::proc::command(guest)
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .arg("--workdir")
            .arg(temp.path())
            .spawn()
            .expect("guest starts");
        Some(Self {
            temp,
            socket,
            _child: child,
        })
    }

    pub(crate) async fn link(&self) -> GuestHandle {
        GuestHandle::connect(&self.socket, SOON, GuestTiming::default())
            .await
            .expect("linked")
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.temp.path().join(name).to_string_lossy().into_owned()
    }
}

fn shell(script: &str) -> ProcessSpec {
    ProcessSpec {
        argv: ["sh", "-c", script].map(ToOwned::to_owned).to_vec(),
        ..ProcessSpec::default()
    }
}

/// Reads to the end, acknowledging; each stream's bytes and the exit.
async fn read_all(stream: &mut ProcessStream) -> (Vec<u8>, Vec<u8>, Exit) {
    let (mut out, mut err, mut exit, mut at) = (Vec::new(), Vec::new(), None, 0);
    loop {
        match tokio::time::timeout(SOON, stream.next())
            .await
            .expect("an item")
        {
            StreamItem::Chunk {
                offset,
                stream: from,
                bytes,
            } => {
                assert_eq!(offset, at);
                at += bytes.len() as u64;
                let to = if from == Stream::Stderr {
                    &mut err
                } else {
                    &mut out
                };
                to.extend_from_slice(&bytes);
                stream.ack(at);
            }
            StreamItem::Exited(how) => assert!(exit.replace(how).is_none(), "once"),
            StreamItem::End { end } => {
                assert_eq!(end, at);
                return (out, err, exit.expect("an exit"));
            }
            StreamItem::Lost(reason) => panic!("{reason}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_with_input_output_and_exit_code() {
    let Some(real) = Real::new("a_command_runs") else {
        return;
    };
    let link = real.link().await;
    let spec = ProcessSpec {
        stdin: true,
        ..shell("read line; echo \"got $line\"; echo oops >&2; exit 3")
    };
    let process = link.start(spec).await.expect("started").process;
    let mut stream = link.attach(process, 0).await.expect("attached");
    link.write_stdin(process, 0, Bytes::from_static(b"hello\n"))
        .await
        .expect("written");
    let (out, err, exit) = read_all(&mut stream).await;
    assert_eq!(
        (&out[..], &err[..], exit.code),
        (&b"got hello\n"[..], &b"oops\n"[..], 3)
    );
    link.forget(process).await.expect("forgotten");
    let error = link.process(process).await.expect_err("gone");
    assert!(matches!(error, GuestCallError::Refused(e) if e.code == GuestErrorCode::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn much_input_and_output_pass_whole_through_their_windows() {
    let Some(real) = Real::new("much_input_and_output") else {
        return;
    };
    let link = real.link().await;
    let spec = ProcessSpec {
        stdin: true,
        ..shell("cat")
    };
    let process = link.start(spec).await.expect("started").process;
    let mut stream = link.attach(process, 0).await.expect("attached");
    let all: Vec<u8> = (0..6_000_000u32).map(|n| (n % 253) as u8).collect();
    let writer = {
        let (link, all) = (link.clone(), Bytes::from(all.clone()));
        tokio::spawn(async move {
            link.write_stdin(process, 0, all).await.expect("written");
            link.close_stdin(process).await.expect("closed");
        })
    };
    let (out, _, exit) = read_all(&mut stream).await;
    writer.await.expect("joined");
    assert_eq!(exit.code, 0);
    assert!(out == all, "{} of {} bytes", out.len(), all.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stalls_stops_only_its_own_process() {
    let Some(real) = Real::new("a_reader_that_stalls") else {
        return;
    };
    let link = real.link().await;
    let flood = link
        .start(shell("head -c 5000000 /dev/zero"))
        .await
        .expect("started")
        .process;
    let mut stalled = link.attach(flood, 0).await.expect("attached");
    for _ in 0..3 {
        let other = link
            .start(shell("echo alive"))
            .await
            .expect("started")
            .process;
        let mut stream = link.attach(other, 0).await.expect("attached");
        assert_eq!(read_all(&mut stream).await.0, b"alive\n");
    }
    let info = link.process(flood).await.expect("known");
    assert!(
        info.exit.is_none() && info.produced <= 1024 * 1024 + 64 * 1024,
        "{info:?}"
    );
    let (out, _, _) = read_all(&mut stalled).await;
    assert_eq!(out.len(), 5_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_link_goes_on_where_the_old_one_was_acknowledged() {
    let Some(real) = Real::new("a_new_link_goes_on") else {
        return;
    };
    let link = real.link().await;
    let spec = ProcessSpec {
        stdin: true,
        key: "agent".to_owned(),
        ..shell("while read line; do echo \"<$line>\"; done")
    };
    let process = link.start(spec.clone()).await.expect("started").process;
    let mut stream = link.attach(process, 0).await.expect("attached");
    link.write_stdin(process, 0, Bytes::from_static(b"one\n"))
        .await
        .expect("written");
    let mut got = Vec::new();
    while got.len() < 6 {
        if let StreamItem::Chunk { bytes, .. } = stream.next().await {
            got.extend_from_slice(&bytes);
        }
    }
    stream.ack(3);
    // The daemon dies; another one comes.
    drop((link, stream));
    let link = real.link().await;
    let again = link.start(spec).await.expect("found by its key");
    assert_eq!(again.process, process);
    let mut stream = link.attach(process, 6).await.expect("attached");
    assert_eq!(stream.info().received, 4);
    link.write_stdin(process, 0, Bytes::from_static(b"one\ntwo\n"))
        .await
        .expect("written");
    link.close_stdin(process).await.expect("closed");
    let mut rest = Vec::new();
    loop {
        match stream.next().await {
            StreamItem::Chunk { bytes, .. } => rest.extend_from_slice(&bytes),
            StreamItem::End { end } => break assert_eq!(end, 12),
            StreamItem::Exited(_) => {}
            StreamItem::Lost(reason) => panic!("{reason}"),
        }
    }
    assert_eq!(rest, b"<two>\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_listed_moved_and_removed() {
    let Some(real) = Real::new("files_are_written_read") else {
        return;
    };
    let link = real.link().await;
    link.mkdir(&real.path("a/b"), true, None)
        .await
        .expect("made");
    let content: Vec<u8> = (0..3_500_000u32).map(|n| (n % 249) as u8).collect();
    let pieces: Vec<Result<Bytes, String>> = content
        .chunks(100_000)
        .map(|c| Ok(Bytes::copy_from_slice(c)))
        .collect();
    let file = real.path("a/b/file");
    let written = link
        .write_file(&file, Some(0o600), false, futures::stream::iter(pieces))
        .await
        .expect("written");
    assert_eq!(written.size, content.len() as u64);
    let (meta, mut stream) = link.read_file(&file, 0, None).await.expect("reading");
    assert_eq!((meta.size, meta.mode & 0o777), (written.size, 0o600));
    let mut read = Vec::new();
    while let Some(bytes) = stream.next().await {
        read.extend_from_slice(&bytes.expect("content"));
    }
    assert!(read == content);
    let (_, mut part) = link.read_file(&file, 10, Some(5)).await.expect("reading");
    assert_eq!(
        part.next().await.expect("some").expect("content"),
        &content[10..15]
    );
    assert!(part.next().await.is_none());

    let (entries, truncated) = link.list(&real.path("a"), 3).await.expect("listed");
    assert!(
        !truncated && entries.iter().any(|entry| entry.path == file),
        "{entries:?}"
    );
    link.rename(&file, &real.path("moved"), false)
        .await
        .expect("moved");
    assert_eq!(
        link.stat(&real.path("moved")).await.expect("there").size,
        written.size
    );
    link.remove(&real.path("a"), true).await.expect("removed");
    let error = link.stat(&real.path("a")).await.expect_err("gone");
    assert!(matches!(error, GuestCallError::Refused(e) if e.code == GuestErrorCode::NotFound));
    // A source that fails leaves nothing; a place that does not exist is said while content still comes.
    let bad = futures::stream::iter([Ok(Bytes::from_static(b"x")), Err("it broke".to_owned())]);
    let error = link
        .write_file(&real.path("half"), None, false, bad)
        .await
        .expect_err("failed");
    assert!(matches!(error, GuestCallError::Source(_)), "{error:?}");
    let endless = futures::stream::repeat_with(|| Ok(Bytes::from_static(&[0; 1000])));
    let error = link
        .write_file(&real.path("no/such/file"), None, false, endless)
        .await
        .expect_err("no folder");
    assert!(matches!(error, GuestCallError::Refused(_)), "{error:?}");
    assert!(!real.temp.path().join("half").exists());
    link.stats().await.expect("the link goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_sized_signalled_and_ends() {
    let Some(real) = Real::new("a_terminal_is_sized") else {
        return;
    };
    let link = real.link().await;
    let spec = ProcessSpec {
        tty: Some(TtySize { cols: 80, rows: 24 }),
        ..shell("stty size; read x; stty size; sleep 1000")
    };
    let process = link.start(spec).await.expect("started").process;
    let mut stream = link.attach(process, 0).await.expect("attached");
    let mut seen = String::new();
    while !seen.contains("24 80") {
        if let StreamItem::Chunk { bytes, .. } = stream.next().await {
            seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    link.resize(process, 100, 30).await.expect("resized");
    link.write_stdin(process, 0, Bytes::from_static(b"\n"))
        .await
        .expect("written");
    while !seen.contains("30 100") {
        if let StreamItem::Chunk { bytes, .. } = stream.next().await {
            seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    link.signal(process, 9, true).await.expect("signalled");
    loop {
        match stream.next().await {
            StreamItem::Exited(exit) => break assert_eq!(exit.signal, Some(9)),
            StreamItem::Chunk { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_is_shut_down_ends_the_link() {
    let Some(real) = Real::new("a_guest_that_is_shut_down") else {
        return;
    };
    let link = real.link().await;
    // Its guest is no PID 1 and is killed in its good-bye: what it ran must end by itself.
    let process = link
        .start(shell("sleep 20"))
        .await
        .expect("started")
        .process;
    let mut stream = link.attach(process, 0).await.expect("attached");
    link.shutdown(SOON).await.expect("told");
    link.close("it was shut down");
    loop {
        match tokio::time::timeout(SOON, stream.next())
            .await
            .expect("an item")
        {
            StreamItem::Lost(_) => break,
            StreamItem::End { .. } => break,
            StreamItem::Exited(_) | StreamItem::Chunk { .. } => {}
        }
    }
}
