//! A login that a server renews: what the sandbox gets, what the daemon gets, and what happens when it is away.

use crate::coding::{ALL, encode, header};
use crate::http2::{BOTH, client, full, request, send, whole};
use crate::intercept::{NAME, World};
use crate::origin::{Received, Reply, streamed, text};
use crate::world::{Answer, Control, enforce, within};
use bytes::Bytes;
use handler_egress::Limits;
use handler_types::egress::{
    EgressAnswer, EgressRequest, EgressSettings, Injection, LoginKept, LoginRenewal, Renews,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const REFRESH: &str = "refresh-REAL-000000";
const ACCESS: &str = "access-REAL-000000";

/// The stand-in of a token of this origin.
fn fake(token: &str) -> String {
    token.replace("REAL", "fake")
}

fn login(value: &str, phantom: &str, host: &str, refreshes: bool) -> Injection {
    Injection {
        name: "logins/codex".to_owned(),
        phantom: phantom.to_owned(),
        value: value.to_owned(),
        hosts: vec![host.parse().unwrap()],
        renews: refreshes.then(|| Renews {
            login: "codex".to_owned(),
            field: "/tokens/refresh_token".to_owned(),
        }),
    }
}

fn tokens(text: &str) -> String {
    format!("{{\"access_token\":\"{text}\"}}")
}

/// A token endpoint: each refresh gives two new tokens, in the coding and the pieces that the request names.
fn endpoint(count: &AtomicUsize, received: &Received) -> Reply {
    if !String::from_utf8_lossy(&received.body).contains("REAL") {
        return text(format!("told {ACCESS}"));
    }
    let n = count.fetch_add(1, Ordering::Relaxed) + 1;
    let ask = |name: &str| {
        received
            .headers
            .get(name)
            .map(|v| v.to_str().unwrap().to_owned())
    };
    let coding = ask("x-coding").unwrap_or_default();
    let body = format!(
        "{{\"access_token\": \"access-REAL-{n:06}\", \"refresh_token\":\"refresh\\u002dREAL-{n:06}\",\"expires_in\":60}}"
    );
    let body = ask("x-answer").unwrap_or(body);
    let bytes = match coding.as_str() {
        "" => body.into_bytes(),
        coding => encode(coding, body.as_bytes()),
    };
    let at = ask("x-cut").map_or(0, |at| at.parse().unwrap());
    let (first, second) = bytes.split_at(at.min(bytes.len()));
    let (send, receive) = mpsc::channel(2);
    for piece in [first, second] {
        if !piece.is_empty() {
            send.try_send(Bytes::copy_from_slice(piece)).unwrap();
        }
    }
    let mut reply = streamed(receive);
    *reply.status_mut() = ask("x-status")
        .map_or(200, |s| s.parse().unwrap())
        .try_into()
        .unwrap();
    let headers = reply.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("x-token", format!("access-REAL-{n:06}").parse().unwrap());
    if !coding.is_empty() {
        headers.insert("content-encoding", header(&coding).parse().unwrap());
    }
    reply
}

async fn world(limit: Duration) -> Arc<World> {
    let count = AtomicUsize::new(0);
    let limits = Limits {
        login: limit,
        ..Limits::default()
    };
    let world = World::limited(BOTH, limits, move |received| endpoint(&count, received)).await;
    let first = first(&world.host);
    world
        .filter
        .put(enforce(&[&world.host, &literal(&world)]), first)
        .await;
    Arc::new(world)
}

fn literal(world: &World) -> String {
    format!("127.0.0.1:{}", world.origin.port)
}

fn first(host: &str) -> Vec<Injection> {
    vec![
        login(ACCESS, &fake(ACCESS), host, false),
        login(REFRESH, &fake(REFRESH), host, true),
    ]
}

/// The daemon: keeps what it is told and gives the sandbox stand-ins, as many times as it is let.
struct Daemon {
    told: Arc<Mutex<Vec<LoginRenewal>>>,
    task: JoinHandle<()>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Daemon {
    async fn start(world: &Arc<World>) -> Self {
        let mut courier = world.filter.control().await;
        courier.send(&EgressRequest::Logins).await;
        let mut control = world.filter.control().await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let (seen, world) = (told.clone(), world.clone());
        let task = tokio::spawn(async move {
            loop {
                let Some(renewal) = next(&mut courier).await else {
                    return;
                };
                put(&mut control, &world, &renewal).await;
                let kept = LoginKept {
                    seq: renewal.seq,
                    kept: true,
                };
                seen.lock().unwrap().push(renewal);
                let mut line = serde_json::to_vec(&kept).unwrap();
                line.push(b'\n');
                courier.send_raw(&line).await;
            }
        });
        Self { told, task }
    }

    fn told(&self) -> Vec<LoginRenewal> {
        self.told.lock().unwrap().clone()
    }
}

/// The next one, however long it takes.
async fn next(courier: &mut Control) -> Option<LoginRenewal> {
    courier.read_patiently().await
}

async fn put(control: &mut Control, world: &World, renewal: &LoginRenewal) {
    let mut injections = first(&world.host);
    for token in &renewal.tokens {
        let is_refresh = token.name == "/refresh_token";
        if is_refresh {
            // The stand-in that the sandbox has stands for the new one from now on.
            injections[1].value.clone_from(&token.value);
        }
        injections.push(login(
            &token.value,
            &fake(&token.value),
            &world.host,
            is_refresh,
        ));
    }
    let settings = EgressSettings {
        listen: world.filter.listen_path("s1").to_str().unwrap().to_owned(),
        policy: enforce(&[&world.host, &literal(world)]),
        injections,
        label: String::new(),
    };
    let sandbox = "s1".to_owned();
    let answer = control.ask(&EgressRequest::Put { sandbox, settings }).await;
    assert!(matches!(answer, EgressAnswer::Put { .. }), "{answer:?}");
}

fn form() -> String {
    format!(
        "grant_type=refresh_token&refresh_token={}&client_id=app",
        fake(REFRESH)
    )
}

/// A refresh over a tunnel of its own.
async fn refresh(world: &World, headers: &str) -> Answer {
    let body = form();
    let headers = format!(
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n{headers}",
        body.len()
    );
    world.ask("POST /oauth/token", &headers, &body).await
}

fn all(answer: &Answer) -> String {
    format!("{}\n{}", answer.head, answer.text())
}

#[tokio::test]
async fn new_tokens_reach_the_daemon_and_the_sandbox_gets_stand_ins_in_any_framing() {
    let world = world(Duration::from_secs(20)).await;
    let daemon = Daemon::start(&world).await;
    let mut n = 0;
    for coding in [""].into_iter().chain(ALL) {
        let step = if coding.is_empty() { 1 } else { 9 };
        for cut in (0..100).step_by(step) {
            n += 1;
            let headers = format!("X-Coding: {coding}\r\nX-Cut: {cut}\r\n");
            let answer = refresh(&world, &headers).await;
            assert_eq!(answer.status, 200, "{coding} {cut} {}", all(&answer));
            assert!(!all(&answer).contains("REAL"), "{}", all(&answer));
            let got: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(got["access_token"], format!("access-fake-{n:06}"));
            assert_eq!(got["refresh_token"], format!("refresh-fake-{n:06}"));
            assert_eq!(got["expires_in"], 60);
            assert!(
                answer
                    .head
                    .contains(&format!("x-token: access-fake-{n:06}"))
            );
        }
    }
    let told = daemon.told();
    assert_eq!(told.len(), n);
    let last = told.last().unwrap();
    assert_eq!((last.sandbox.as_str(), last.expires_in), ("s1", Some(60)));
    let values: Vec<_> = last
        .tokens
        .iter()
        .map(|token| token.value.clone())
        .collect();
    assert_eq!(
        values,
        [
            format!("access-REAL-{n:06}"),
            format!("refresh-REAL-{n:06}")
        ]
    );
    // What went out was the newest refresh token each time.
    let received = world.origin.received();
    let sent = String::from_utf8_lossy(&received.last().unwrap().body).into_owned();
    assert!(
        sent.contains(&format!("refresh-REAL-{:06}", n - 1)),
        "{sent}"
    );
}

#[tokio::test]
async fn a_client_of_http_2_is_served_alike_and_other_answers_are_masked_as_ever() {
    let world = world(Duration::from_secs(20)).await;
    let daemon = Daemon::start(&world).await;
    let mut client = client(&world).await;
    for n in 1..=3 {
        let body = format!(
            "{{\"grant_type\":\"refresh_token\",\"refresh_token\":\"{}\"}}",
            fake(REFRESH)
        );
        let ask = request("POST", &world.host, "/oauth/token")
            .header("content-type", "application/json")
            .body(full(body))
            .unwrap();
        let response = send(&mut client, ask).await;
        assert_eq!(response.status(), 200);
        let (got, _) = whole(response).await;
        assert!(
            got.contains(&format!("access-fake-{n:06}")) && !got.contains("REAL"),
            "{got}"
        );
    }
    assert_eq!(daemon.told().len(), 3);
    let other = world.ask("GET /v1/models", "", "").await;
    assert_eq!(other.text(), format!("told {}", fake(ACCESS)));
    let refused = refresh(
        &world,
        "X-Status: 400\r\nX-Answer: {\"error\":\"invalid_grant\"}\r\n",
    )
    .await;
    assert_eq!(refused.status, 400);
    let told = refused.text();
    assert!(told.contains("{\"error\":\"invalid_grant\"}"), "{told}");
    assert_eq!(daemon.told().len(), 3, "an error brings no tokens");
}

#[tokio::test]
async fn an_answer_that_is_not_understood_is_kept_from_the_sandbox() {
    let world = world(Duration::from_secs(20)).await;
    let daemon = Daemon::start(&world).await;
    for answer in [
        "access_token=access-REAL-999999",
        "[\"access-REAL-999999\"]",
        "{\"token\":\"access-REAL-999999\"",
        "{\"session\":\"access-REAL-999999\"}",
        "{\"access_token\":\"access REAL 999999\"}",
    ] {
        let got = refresh(&world, &format!("X-Answer: {answer}\r\n")).await;
        assert_eq!(got.status, 502, "{answer}");
        assert_eq!(got.refusal().0, "handler_egress_login");
        assert!(!all(&got).contains("REAL"), "{}", all(&got));
    }
    assert!(daemon.told().is_empty());
    let got = refresh(&world, "X-Coding: gzip\r\nX-Answer: {\"access_token\":\"one-REAL-1\",\"access_token\":\"two-REAL-2\"}\r\n").await;
    assert_eq!(
        got.text(),
        tokens("two-fake-2"),
        "what is twice there is passed once"
    );
}

#[tokio::test]
async fn while_the_daemon_is_away_nothing_is_lost_and_nothing_is_used() {
    let world = world(Duration::from_millis(100)).await;
    let answer = refresh(&world, "").await;
    assert_eq!(answer.status, 503, "{}", all(&answer));
    assert_eq!(answer.refusal().0, "handler_egress_login");
    assert!(!all(&answer).contains("REAL"));
    let before = world.origin.received().len();
    for _ in 0..2 {
        // The server may have ended the token that the sandbox's stand-in stands for.
        assert_eq!(refresh(&world, "").await.status, 503);
    }
    assert_eq!(world.origin.received().len(), before, "none was sent");
    let daemon = Daemon::start(&world).await;
    within("the renewal", async {
        while daemon.told().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let again = within("the next one", async {
        loop {
            let answer = refresh(&world, "").await;
            if answer.status != 503 {
                return answer;
            }
        }
    })
    .await;
    assert_eq!(again.status, 200, "{}", all(&again));
    let received = world.origin.received();
    let sent = String::from_utf8_lossy(&received.last().unwrap().body).into_owned();
    assert!(
        !sent.contains(REFRESH) && sent.contains("refresh-REAL-"),
        "{sent}"
    );
}

#[tokio::test]
async fn tokens_are_kept_although_the_client_left_before_the_answer() {
    let world = world(Duration::from_secs(20)).await;
    let mut courier = world.filter.control().await;
    courier.send(&EgressRequest::Logins).await;
    let mut tls = world.tls(NAME).await.unwrap();
    let body = form();
    let head = format!(
        "POST /oauth/token HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}",
        world.host,
        body.len()
    );
    tls.write_all(head.as_bytes()).await.unwrap();
    tls.flush().await.unwrap();
    world.origin.received_count(1).await;
    drop(tls);
    let renewal = within("the renewal", next(&mut courier)).await.unwrap();
    assert_eq!(renewal.tokens.len(), 2);
    // One that does not keep it is told again, as is the next connection.
    let line = format!("{{\"seq\":{},\"kept\":false}}\n", renewal.seq);
    courier.send_raw(line.as_bytes()).await;
    let again = within("the same", next(&mut courier)).await.unwrap();
    assert_eq!(again.seq, renewal.seq);
    drop(courier);
    let daemon = Daemon::start(&world).await;
    within("the same to another", async {
        while daemon.told().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(daemon.told()[0].seq, renewal.seq);
}
