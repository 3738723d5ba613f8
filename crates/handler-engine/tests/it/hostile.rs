//! A guest that is an enemy: whatever it says, the link ends with an error or goes on; nothing panics, nothing
//! grows without bound, nobody waits for ever.

use crate::peer::{Peer, SOON, info};
use handler_engine::guest::{GuestCallError, GuestHandle, GuestTiming, LinkError, StreamItem};
use handler_types::frame::Frame;
use handler_types::guest::{
    Exit, FILE_WINDOW, GuestError, GuestErrorCode, MAX_CHUNK, Message, OUTPUT_WINDOW, Reply, Stream,
};
use proptest::prelude::*;
use std::time::Duration;

fn quick() -> GuestTiming {
    GuestTiming {
        call: Duration::from_millis(300),
        slow_call: Duration::from_millis(300),
        greeting: Duration::from_millis(300),
        longest_backoff: Duration::from_millis(10),
    }
}

fn patient() -> GuestTiming {
    GuestTiming {
        call: SOON,
        slow_call: SOON,
        ..quick()
    }
}

async fn linked(peer: &Peer, timing: GuestTiming) -> (GuestHandle, crate::peer::Line) {
    let (handle, line) = tokio::join!(
        GuestHandle::connect(peer.socket(), SOON, timing),
        peer.greet("boot")
    );
    (handle.expect("greeted"), line)
}

#[tokio::test]
async fn a_silent_a_strange_and_a_newer_guest_are_refused_at_the_greeting() {
    let peer = Peer::new();
    let connect = GuestHandle::connect(peer.socket(), SOON, quick());
    let (result, _line) = tokio::join!(connect, peer.accept());
    assert!(matches!(result, Err(LinkError::Silent(_))), "{result:?}");

    let garbage: [&[u8]; 5] = [
        &[0xff; 64],
        &[0, 0, 0, 0],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0, 0, 0, 3, 1, b'{', b'}'],
        &[0, 0, 0, 15, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 65],
    ];
    for bytes in garbage {
        let connect = GuestHandle::connect(peer.socket(), SOON, quick());
        let (result, ()) = tokio::join!(connect, async {
            peer.accept().await.raw(bytes).await;
        });
        let error = result.expect_err("refused");
        assert!(error.is_breach(), "{bytes:?}: {error:?}");
    }

    let connect = GuestHandle::connect(peer.socket(), SOON, quick());
    let (result, _line) = tokio::join!(connect, async {
        let mut line = peer.accept().await;
        line.say(&Message::Hello {
            protocol: 99,
            version: "x".into(),
            boot: "b".into(),
        })
        .await;
        line
    });
    assert!(
        matches!(result, Err(LinkError::Version { theirs: 99, .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_socket_that_appears_late_is_waited_for_and_one_that_never_does_is_not() {
    let temp = tempfile::tempdir().expect("temp");
    let socket = temp.path().join("late.sock");
    let within = Duration::from_millis(50);
    let result = GuestHandle::connect(&socket, within, quick()).await;
    assert!(
        matches!(result, Err(LinkError::Connect { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn every_kind_of_nonsense_ends_the_connection() {
    let file = |request| Frame::File {
        request,
        data: vec![1],
    };
    let output = |process| Frame::Output {
        process,
        offset: 0,
        stream: Stream::Stdout,
        data: vec![1],
    };
    let input = Frame::Input {
        process: 1,
        offset: 0,
        data: vec![1],
    };
    let json = |text: &str| Frame::Json(text.as_bytes().to_vec());
    let hello = r#"{"type":"hello","protocol":1,"version":"x","boot":"boot"}"#;
    let nonsense = [
        json(r#"{"type":"reply","id":999,"reply":{"kind":"done"}}"#),
        json(r#"{"type":"reply","id":0,"reply":{"kind":"done"}}"#),
        json(r#"{"type":"failed","id":7,"error":{"code":"io","message":"x"}}"#),
        json(r#"{"type":"outputEnd","process":3,"end":0}"#),
        json(hello),
        json("[[[["),
        json(&"[".repeat(10_000)),
        json(r#"{"type":"?"}"#),
        output(5),
        file(1),
        file(0),
        input,
    ];
    for frame in nonsense {
        let peer = Peer::new();
        let (handle, mut line) = linked(&peer, quick()).await;
        line.frame(&frame).await;
        line.closed().await;
        // It connects again; the next breach is counted too.
        let mut line = peer.greet("boot").await;
        line.frame(&frame).await;
        line.closed().await;
        drop(handle);
    }
}

#[tokio::test]
async fn a_guest_that_keeps_breaking_the_protocol_is_given_up() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer, quick()).await;
    let enemy = async {
        loop {
            line.raw(&[0xff; 8]).await;
            line.closed().await;
            line = peer.greet("boot").await;
        }
    };
    let reason = tokio::select! {
        reason = handle.closed() => reason,
        () = enemy => unreachable!(),
        () = tokio::time::sleep(SOON) => panic!("it goes on for ever"),
    };
    assert!(reason.is_breach(), "{reason:?}");
    let error = handle.stats().await.expect_err("closed");
    assert!(error.is_lost());
}

#[tokio::test]
async fn another_guest_at_the_same_socket_closes_the_link_for_good() {
    let peer = Peer::new();
    let (handle, line) = linked(&peer, quick()).await;
    drop(line);
    let (reason, _line) = tokio::join!(handle.closed(), peer.greet("another"));
    assert!(matches!(reason, LinkError::Replaced), "{reason:?}");
}

#[tokio::test]
async fn silence_times_out_and_the_late_answer_is_dropped() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer, quick()).await;
    let (result, request) = tokio::join!(handle.stats(), line.request());
    assert!(
        matches!(result, Err(GuestCallError::Timeout(_))),
        "{result:?}"
    );
    let stats = || Reply::Stats {
        stats: Default::default(),
    };
    line.reply(request.id, stats()).await;
    let (result, ()) = tokio::join!(handle.stats(), async {
        let request = line.request().await;
        line.reply(request.id, stats()).await;
    });
    result.expect("the link goes on");
}

#[tokio::test]
async fn an_answer_of_another_kind_ends_the_connection_and_texts_are_cut() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer, patient()).await;
    let (result, ()) = tokio::join!(handle.remove("/x", true), async {
        let request = line.request().await;
        let error = GuestError {
            code: GuestErrorCode::Denied,
            message: format!("\u{1b}[31m{}", "é".repeat(100_000)),
        };
        line.say(&Message::Failed {
            id: request.id,
            error,
        })
        .await;
    });
    let Err(GuestCallError::Refused(error)) = result else {
        panic!("{result:?}")
    };
    assert!(error.message.chars().count() <= 1000 && !error.message.contains('\u{1b}'));

    let (result, ()) = tokio::join!(handle.remove("/x", true), async {
        let request = line.request().await;
        let entries = Reply::Entries {
            entries: vec![],
            truncated: false,
            more: false,
        };
        line.reply(request.id, entries).await;
        line.closed().await;
    });
    assert!(
        matches!(result, Err(GuestCallError::Lost(LinkError::Nonsense(_)))),
        "{result:?}"
    );
}

async fn attached(
    peer: &Peer,
) -> (
    GuestHandle,
    crate::peer::Line,
    handler_engine::guest::ProcessStream,
) {
    let (handle, mut line) = linked(peer, patient()).await;
    let (stream, ()) = tokio::join!(handle.attach(1, 0), async {
        let request = line.request().await;
        line.reply(request.id, Reply::Process { process: info(1) })
            .await;
    });
    (handle, line, stream.expect("attached"))
}

fn chunk(offset: u64, data: Vec<u8>) -> Frame {
    Frame::Output {
        process: 1,
        offset,
        stream: Stream::Stdout,
        data,
    }
}

#[tokio::test]
async fn output_beyond_the_window_or_at_a_wrong_offset_ends_the_connection() {
    for wrong in [1, u64::MAX, u64::MAX - 1] {
        let peer = Peer::new();
        let (_handle, mut line, _stream) = attached(&peer).await;
        line.frame(&chunk(wrong, vec![1; 8])).await;
        line.closed().await;
    }
    let peer = Peer::new();
    let (_handle, mut line, mut stream) = attached(&peer).await;
    let mut at = 0;
    while at < OUTPUT_WINDOW {
        line.frame(&chunk(at, vec![7; MAX_CHUNK])).await;
        at += MAX_CHUNK as u64;
    }
    // Taken is not acknowledged: the window is still full.
    assert!(matches!(
        stream.next().await,
        StreamItem::Chunk { offset: 0, .. }
    ));
    line.frame(&chunk(at, vec![7])).await;
    line.closed().await;
}

#[tokio::test]
async fn a_forged_end_or_double_exit_gives_each_item_once() {
    let peer = Peer::new();
    let (_handle, mut line, mut stream) = attached(&peer).await;
    let exit = |code| Message::Exited {
        process: 1,
        exit: Exit {
            code,
            signal: None,
            timed_out: false,
        },
    };
    line.frame(&chunk(0, b"abc".to_vec())).await;
    line.say(&exit(3)).await;
    line.say(&exit(4)).await;
    line.frame(&chunk(3, b"de".to_vec())).await;
    line.say(&Message::OutputEnd { process: 1, end: 5 }).await;
    let mut items = Vec::new();
    loop {
        items.push(stream.next().await);
        if matches!(items.last(), Some(StreamItem::End { .. })) {
            break;
        }
    }
    assert!(matches!(&items[0], StreamItem::Chunk { bytes, .. } if bytes[..] == b"abc"[..]));
    assert!(matches!(&items[1], StreamItem::Exited(exit) if exit.code == 3));
    assert!(
        matches!(&items[2], StreamItem::Chunk { offset: 3, bytes, .. } if bytes[..] == b"de"[..])
    );
    assert_eq!(items[3], StreamItem::End { end: 5 });
    line.frame(&chunk(5, b"more".to_vec())).await;
    line.closed().await;
}

#[tokio::test]
async fn credit_for_input_never_sent_ends_the_connection() {
    let peer = Peer::new();
    let (handle, mut line, _stream) = attached(&peer).await;
    let write = handle.write_stdin(1, 0, bytes::Bytes::from_static(b"hello"));
    let (result, ()) = tokio::join!(write, async {
        let request = line.request().await;
        let processes = Reply::Processes {
            processes: vec![info(1)],
            more: false,
        };
        line.reply(request.id, processes).await;
    });
    result.expect("kept");
    line.say(&Message::InputCredit {
        process: 1,
        received: 6,
    })
    .await;
    line.closed().await;
}

#[tokio::test]
async fn a_file_beyond_its_window_ends_the_connection() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer, patient()).await;
    let (result, id) = tokio::join!(handle.read_file("/x", 0, None), async {
        let request = line.request().await;
        let reading = Reply::Reading {
            size: u64::MAX,
            mode: 0o644,
            modified_ms: 0,
        };
        line.reply(request.id, reading).await;
        request.id
    });
    let (_, mut file) = result.expect("reading");
    let mut sent = 0;
    while sent <= FILE_WINDOW {
        let data = vec![0; MAX_CHUNK];
        line.frame(&Frame::File { request: id, data }).await;
        sent += MAX_CHUNK as u64;
    }
    line.closed().await;
    let mut got = 0;
    let end = loop {
        match file.next().await {
            Some(Ok(bytes)) => got += bytes.len() as u64,
            end => break end,
        }
    };
    assert_eq!(got, FILE_WINDOW);
    assert!(matches!(end, Some(Err(GuestCallError::Lost(_)))), "{end:?}");
}

#[tokio::test]
async fn a_dropped_stream_detaches_and_a_dropped_file_is_cancelled() {
    use handler_types::guest::Op;
    let peer = Peer::new();
    let (handle, mut line, stream) = attached(&peer).await;
    drop(stream);
    assert_eq!(line.note().await, Op::Detach { process: 1 });
    // Output on its way meanwhile is no breach.
    line.frame(&chunk(0, b"late".to_vec())).await;
    let (result, id) = tokio::join!(handle.read_file("/x", 0, None), async {
        let request = line.request().await;
        let reading = Reply::Reading {
            size: 10,
            mode: 0o644,
            modified_ms: 0,
        };
        line.reply(request.id, reading).await;
        request.id
    });
    drop(result.expect("reading"));
    assert_eq!(line.note().await, Op::CancelFile { request: id });
    line.frame(&Frame::File {
        request: id,
        data: vec![1],
    })
    .await;
    assert!(handle.is_up());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_bytes_after_the_greeting_never_panic_or_hang(
        bytes in proptest::collection::vec(any::<u8>(), 1..2000),
        framed in any::<bool>(),
        kind in 0u8..6,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let peer = Peer::new();
            let (handle, mut line) = linked(&peer, quick()).await;
            if framed {
                let length = u32::try_from(bytes.len() + 1).expect("short").to_be_bytes();
                line.raw(&[&length[..], &[kind], &bytes].concat()).await;
            } else {
                line.raw(&bytes).await;
            }
            drop(line);
            // Whatever it was, a new connection works.
            let mut line = peer.greet("boot").await;
            let (result, ()) = tokio::join!(handle.stats(), async {
                let request = line.request().await;
                line.reply(request.id, Reply::Stats { stats: Default::default() }).await;
            });
            result.expect("answered");
        });
    }
}
