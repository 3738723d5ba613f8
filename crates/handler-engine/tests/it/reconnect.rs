//! A socket that drops while the guest lives: streams and input go on where they were, nothing is lost or doubled.

use crate::peer::{Line, Peer, SOON, info};
use bytes::Bytes;
use handler_engine::guest::{GuestHandle, GuestTiming, ProcessStream, StreamItem};
use handler_types::frame::Frame;
use handler_types::guest::{INPUT_WINDOW, Message, Op, ProcessInfo, Reply, Stream};

async fn linked(peer: &Peer) -> (GuestHandle, Line) {
    let timing = GuestTiming::default();
    let (handle, line) = tokio::join!(
        GuestHandle::connect(peer.socket(), SOON, timing),
        peer.greet("boot")
    );
    (handle.expect("greeted"), line)
}

/// Answers one attachment; the offset asked for.
async fn answer_attach(line: &mut Line, info: ProcessInfo) -> u64 {
    let request = line.request().await;
    let Op::Attach { from, .. } = request.op else {
        panic!("an attachment, not {request:?}")
    };
    line.reply(request.id, Reply::Process { process: info })
        .await;
    from
}

fn chunk(offset: u64, data: &[u8]) -> Frame {
    Frame::Output {
        process: 1,
        offset,
        stream: Stream::Stdout,
        data: data.to_vec(),
    }
}

async fn next_bytes(stream: &mut ProcessStream) -> (u64, Bytes) {
    match tokio::time::timeout(SOON, stream.next())
        .await
        .expect("an item")
    {
        StreamItem::Chunk { offset, bytes, .. } => (offset, bytes),
        other => panic!("a chunk, not {other:?}"),
    }
}

#[tokio::test]
async fn output_goes_on_at_the_next_byte_and_acknowledgements_are_said_again() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer).await;
    let (stream, from) = tokio::join!(handle.attach(1, 0), answer_attach(&mut line, info(1)));
    let mut stream = stream.expect("attached");
    assert_eq!(from, 0);
    line.frame(&chunk(0, b"one ")).await;
    assert_eq!(
        next_bytes(&mut stream).await,
        (0, Bytes::from_static(b"one "))
    );
    line.frame(&chunk(4, b"two ")).await;
    // A frame cut in half is lost with its connection, what came before is not.
    line.raw(&[0, 0, 0, 20, 2, 0, 0]).await;
    drop(line);

    let mut line = peer.accept().await;
    stream.ack(4);
    line.say(&Message::Hello {
        protocol: 1,
        version: "x".into(),
        boot: "boot".into(),
    })
    .await;
    let from = answer_attach(&mut line, info(1)).await;
    assert_eq!(from, 8, "what waits here is not asked for again");
    let ack = Op::Ack {
        process: 1,
        up_to: 4,
    };
    assert_eq!(line.note().await, ack);
    line.frame(&chunk(8, b"three")).await;
    assert_eq!(
        next_bytes(&mut stream).await,
        (4, Bytes::from_static(b"two "))
    );
    assert_eq!(
        next_bytes(&mut stream).await,
        (8, Bytes::from_static(b"three"))
    );
}

#[tokio::test]
async fn an_end_that_came_while_the_link_was_down_is_told() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer).await;
    let (stream, _) = tokio::join!(handle.attach(1, 0), answer_attach(&mut line, info(1)));
    let mut stream = stream.expect("attached");
    drop(line);
    let mut line = peer.greet("boot").await;
    let exit = handler_types::guest::Exit {
        code: 0,
        signal: None,
        timed_out: false,
    };
    let ended = ProcessInfo {
        exit: Some(exit),
        ..info(1)
    };
    answer_attach(&mut line, ended).await;
    line.say(&Message::OutputEnd { process: 1, end: 0 }).await;
    assert_eq!(stream.next().await, StreamItem::Exited(exit));
    assert_eq!(stream.next().await, StreamItem::End { end: 0 });
}

#[tokio::test]
async fn a_call_that_may_be_made_twice_is_and_one_that_may_not_says_so() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer).await;
    let (result, mut line) = tokio::join!(handle.stats(), async {
        line.request().await;
        drop(line);
        let mut line = peer.greet("boot").await;
        let request = line.request().await;
        let stats = Default::default();
        line.reply(request.id, Reply::Stats { stats }).await;
        line
    });
    result.expect("asked again");
    let (result, ()) = tokio::join!(handle.remove("/x", false), async {
        line.request().await;
        drop(line);
    });
    assert!(result.expect_err("unknown outcome").is_lost());
}

/// Takes input frames until `total` bytes are there; offsets must follow each other.
async fn take_input(line: &mut Line, got: &mut Vec<u8>, total: usize) {
    while got.len() < total {
        match line.hear().await.expect("input") {
            Frame::Input { offset, data, .. } => {
                assert!(offset as usize <= got.len(), "no gap");
                let known = (got.len() - offset as usize).min(data.len());
                got.extend_from_slice(&data[known..]);
            }
            other => panic!("input, not {other:?}"),
        }
    }
}

#[tokio::test]
async fn input_not_taken_before_the_break_is_sent_again_and_the_window_holds() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer).await;
    let (stream, _) = tokio::join!(handle.attach(1, 0), answer_attach(&mut line, info(1)));
    let _stream = stream.expect("attached");
    let window = usize::try_from(INPUT_WINDOW).expect("small");
    let all: Vec<u8> = (0..window + 5000).map(|n| (n % 251) as u8).collect();
    let processes = |received| Reply::Processes {
        processes: vec![ProcessInfo {
            received,
            ..info(1)
        }],
        more: false,
    };
    let write = {
        let (handle, bytes) = (handle.clone(), Bytes::from(all.clone()));
        tokio::spawn(async move { handle.write_stdin(1, 0, bytes).await })
    };
    let request = line.request().await;
    line.reply(request.id, processes(0)).await;
    let mut seen = Vec::new();
    take_input(&mut line, &mut seen, window).await;
    assert!(!write.is_finished(), "the rest waits for credit");
    drop(line);

    // The process took 1000 bytes before the break; the rest was lost on the way.
    let mut got = all[..1000].to_vec();
    let mut line = peer.greet("boot").await;
    answer_attach(&mut line, info(1)).await;
    let request = line.request().await;
    assert_eq!(request.op, Op::Processes);
    line.reply(request.id, processes(1000)).await;
    take_input(&mut line, &mut got, window + 1000).await;
    line.say(&Message::InputCredit {
        process: 1,
        received: INPUT_WINDOW,
    })
    .await;
    take_input(&mut line, &mut got, all.len()).await;
    assert_eq!(got, all);
    write.await.expect("joined").expect("written");
    // Writing again what is known doubles nothing; a gap is refused.
    let tail = Bytes::from(all[all.len() - 10..].to_vec());
    let at = all.len() as u64;
    handle
        .write_stdin(1, at - 10, tail.clone())
        .await
        .expect("known");
    assert!(handle.write_stdin(1, at + 1, tail).await.is_err());
}

#[tokio::test]
async fn a_second_reader_takes_over_and_the_first_is_told() {
    let peer = Peer::new();
    let (handle, mut line) = linked(&peer).await;
    let (first, _) = tokio::join!(handle.attach(1, 0), answer_attach(&mut line, info(1)));
    let mut first = first.expect("attached");
    line.frame(&chunk(0, b"ab")).await;
    let (second, from) = tokio::join!(handle.attach(1, 1), answer_attach(&mut line, info(1)));
    let mut second = second.expect("attached");
    assert_eq!(from, 1);
    line.frame(&chunk(1, b"b")).await;
    assert_eq!(next_bytes(&mut second).await, (1, Bytes::from_static(b"b")));
    loop {
        match first.next().await {
            StreamItem::Chunk { .. } => {}
            StreamItem::Lost(_) => break,
            other => panic!("{other:?}"),
        }
    }
    drop(first);
    line.frame(&chunk(2, b"c")).await;
    assert_eq!(next_bytes(&mut second).await, (2, Bytes::from_static(b"c")));
    handle.close("done");
    assert_eq!(second.next().await, StreamItem::Lost("done".to_owned()));
}
