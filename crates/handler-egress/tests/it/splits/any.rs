//! Whatever the text around it, the coding and the places where it is cut: a property, both ways at a time.

use crate::coding::{ALL, decode, encode, header};
use crate::http2::{BOTH, Client, client, request, send, whole};
use crate::intercept::World;
use crate::origin::{Received, Reply, streamed};
use crate::world::{PHANTOM, VALUE};
use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::convert::Infallible;
use tokio::sync::mpsc;

/// Runs of a case; a request and its answer each.
const CASES: u32 = 150;

#[derive(Debug, Clone)]
struct Case {
    /// Pieces of text, each with the key behind it.
    around: Vec<String>,
    coding: &'static str,
    back: &'static str,
    /// In parts of 256 of the length.
    cuts: Vec<usize>,
}

fn case() -> impl Strategy<Value = Case> {
    let codings: Vec<&'static str> = [""].into_iter().chain(ALL).collect();
    (
        // Also starts of keys that come to nothing.
        proptest::collection::vec(
            "(sk-ant-|[ -~]{0,3}|sk-ant-PHANTOM-0|sk-ant-SECRET-|\n){0,20}",
            1..4,
        ),
        proptest::sample::select(codings.clone()),
        proptest::sample::select(codings),
        proptest::collection::vec(0usize..256, 0..6),
    )
        .prop_map(|(around, coding, back, cuts)| Case {
            around,
            coding,
            back,
            cuts,
        })
}

fn pieces(bytes: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut * bytes.len() / 256).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    let pairs = places.windows(2);
    pairs
        .map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]))
        .collect()
}

fn coded(coding: &str, text: &[u8]) -> Vec<u8> {
    if coding.is_empty() {
        return text.to_vec();
    }
    encode(coding, text)
}

fn plain(coding: &str, bytes: &[u8]) -> Vec<u8> {
    if coding.is_empty() {
        return bytes.to_vec();
    }
    decode(coding, bytes)
}

/// What was sent, in the coding that is asked for, cut where it is asked for.
fn answer(received: &Received) -> Reply {
    let ask = |name: &str| received.headers[name].to_str().unwrap().to_owned();
    let cuts: Vec<usize> = ask("x-cuts")
        .split(' ')
        .filter_map(|cut| cut.parse().ok())
        .collect();
    let (coding, back) = (ask("x-coding"), ask("x-back"));
    let bytes = coded(&back, &plain(&coding, &received.body));
    let (send, receive) = mpsc::channel(8);
    for piece in pieces(&bytes, &cuts) {
        send.try_send(piece).unwrap();
    }
    let mut reply = streamed(receive);
    if !back.is_empty() {
        let coding = header(&back).parse().unwrap();
        reply.headers_mut().insert("content-encoding", coding);
    }
    reply
}

async fn holds(world: &World, client: &mut Client, case: &Case) -> Result<(), TestCaseError> {
    let text: String = case
        .around
        .iter()
        .map(|piece| format!("{piece}{PHANTOM}"))
        .collect();
    let bytes = coded(case.coding, text.as_bytes());
    let frames = pieces(&bytes, &case.cuts).into_iter().map(Frame::data);
    let body = StreamBody::new(futures::stream::iter(frames.map(Ok::<_, Infallible>)));
    let cuts: Vec<String> = case.cuts.iter().map(usize::to_string).collect();
    let mut request = request("POST", &world.host, "/")
        .header("x-cuts", cuts.join(" "))
        .header("x-coding", case.coding)
        .header("x-back", case.back);
    if !case.coding.is_empty() {
        request = request.header("content-encoding", header(case.coding));
    }
    let response = send(client, request.body(body.boxed()).unwrap()).await;
    prop_assert_eq!(response.status(), 200);
    let (said, _) = whole(response).await;
    let received = world.origin.received().pop().unwrap();
    let got = String::from_utf8(plain(case.coding, &received.body)).unwrap();
    prop_assert_eq!(got, text.replace(PHANTOM, VALUE));
    prop_assert_eq!(said, text);
    Ok(())
}

#[test]
fn any_text_cut_anywhere_in_any_coding_is_swapped_and_masked() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(World::speaking(BOTH, answer));
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let client = runtime.block_on(client(&world));
    let result = TestRunner::new(config).run(&case(), |case| {
        let mut client = client.clone();
        runtime.block_on(holds(&world, &mut client, &case))
    });
    result.unwrap();
}
