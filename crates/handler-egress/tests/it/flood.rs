//! Floods of one sandbox while another is served, by a filter that is a process of its own: each of the other's
//! requests is answered rightly, memory stays within a figure that breaks without the shares, and all is freed.

use crate::coding::encode;
use crate::intercept::connect_tls;
use crate::memory::{Process, SMALL, small_share};
use crate::origin::{Origin, Received, Reply, certificate, text};
use crate::world::{
    DEADLINE, Filter, PHANTOM, VALUE, enforce, injection, next_whole, read_head, within,
};
use handler_types::egress::{EgressDecision, EgressEvent, EgressRequest};
use handler_types::network::HOST_ALIAS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;

/// The sandbox that floods; the other one is the helpers' own.
const FLOOD: &str = "flood";
/// Connections in a flood.
const MANY: usize = 2000;
/// What the filter may have more in a flood than before, KiB: far more than what a sandbox with a small share can
/// hold, and broken by each flood that is not kept to one.
const MORE_KIB: u64 = 64 * 1024;
/// The same for each of [`MANY`] connections that wait or do nothing, in a program built for tests.
const EACH_KIB: u64 = 48;

/// One flood at a time: each has the machine's cores to itself.
static TURN: Mutex<()> = Mutex::const_new(());

struct World {
    _turn: MutexGuard<'static, ()>,
    process: Process,
    filter: Filter,
    /// Plain HTTP.
    plain: String,
    /// TLS, with a secret.
    secret: String,
    /// Sends without end, reads nothing.
    endless: String,
    /// Answers HTTP without end.
    endless_answer: String,
    accepted: Arc<AtomicUsize>,
    ca_pem: String,
    /// What the flood's bytes are made of.
    marker: String,
    files: usize,
    memory_kib: u64,
}

fn reply(received: &Received) -> Reply {
    let given = received.headers.get("x-key").map(|key| key.as_bytes());
    text(match given {
        None => "hello",
        Some(key) if key == VALUE.as_bytes() => "given",
        Some(_) => "not given",
    })
}

/// A server that sends without end, of HTTP when it is `asked`; counts who has come.
async fn endless(accepted: Arc<AtomicUsize>, asked: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("{HOST_ALIAS}:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                if asked {
                    read_head(&mut stream).await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                }
                while stream.write_all(&[b'.'; 16 * 1024]).await.is_ok() {}
            });
        }
    });
    host
}

impl World {
    async fn new() -> Self {
        let turn = TURN.lock().await;
        let (acceptor, roots) = certificate(HOST_ALIAS);
        let plain = format!("{HOST_ALIAS}:{}", Origin::plain(reply).await.port);
        let secret = format!("{HOST_ALIAS}:{}", Origin::tls(acceptor, reply).await.port);
        let accepted = Arc::new(AtomicUsize::new(0));
        let endless_answer = endless(Arc::default(), true).await;
        let endless = endless(accepted.clone(), false).await;
        let dir = tempfile::tempdir().unwrap();
        let roots_path = dir.path().join("roots.pem");
        std::fs::write(&roots_path, roots).unwrap();
        let (process, _) = Process::start_with(dir.path(), |command| {
            command.env(SMALL, "1").env("SSL_CERT_FILE", &roots_path);
        });
        let filter = Filter::elsewhere(dir);
        let hosts = [plain.as_str(), &secret, &endless, &endless_answer];
        let secrets = || vec![injection(&[&plain, &secret])];
        let ca_pem = filter.put_for("s1", enforce(&hosts), secrets()).await;
        filter.put_for(FLOOD, enforce(&hosts), secrets()).await;
        let mut random = [0; 24];
        getrandom::fill(&mut random).unwrap();
        let letters = random.iter().map(|byte| char::from(b'a' + byte % 26));
        let mut world = Self {
            _turn: turn,
            marker: letters.collect(),
            files: 0,
            memory_kib: 0,
            process,
            filter,
            plain,
            secret,
            endless,
            endless_answer,
            accepted,
            ca_pem,
        };
        world.ask().await;
        // The files of what has just ended are let go a moment later, so this may only be too many.
        world.files = world.process.open_files();
        world.memory_kib = world.process.memory_kib("VmRSS:");
        world
    }

    /// The other sandbox is served: forwarded, given its secret in a tunnel, refused.
    async fn ask(&self) {
        let get = |url: &str| {
            format!("GET http://{url}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        };
        assert_eq!(self.filter.talk(get(&self.plain)).await.text(), "hello");
        let tunnel = self.filter.tunnel(&self.secret).await;
        let tls = connect_tls(tunnel, &self.ca_pem, HOST_ALIAS, &["http/1.1"]).await;
        let mut tls = tls.unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {}\r\nX-Key: {PHANTOM}\r\nConnection: close\r\n\r\n",
            self.secret
        );
        tls.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(next_whole(&mut tls).await.text(), "given");
        let refused = self.filter.talk(get("quiet.example")).await;
        assert_eq!(refused.refusal().1, "unlisted");
    }

    /// Runs a flood, and asks for the other sandbox as long as it goes on, and at least some times; then all of it
    /// must be gone. The flood gives what is to be held until then.
    async fn flood<T>(&self, connections: usize, flood: impl Future<Output = T>) {
        let flooded = AtomicBool::new(false);
        let flood = async {
            let held = flood.await;
            flooded.store(true, Ordering::Relaxed);
            held
        };
        let asking = async {
            let mut rounds = 0;
            while rounds < 5 || !flooded.load(Ordering::Relaxed) {
                self.ask().await;
                rounds += 1;
            }
            // With everything of the flood in place.
            self.ask().await;
        };
        let (held, ()) = tokio::join!(flood, asking);
        let most = self.process.memory_kib("VmHWM:");
        let bound = self.memory_kib + MORE_KIB + EACH_KIB * connections as u64;
        assert!(most < bound, "{most} KiB, before {} KiB", self.memory_kib);
        drop(held);
        within("everything is freed", async {
            while self.process.open_files() > self.files
                || self.process.holds(self.marker.as_bytes()) > 0
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        self.ask().await;
    }

    async fn connect(&self) -> UnixStream {
        let path = self.filter.listen_path(FLOOD);
        within("a connection", UnixStream::connect(path))
            .await
            .unwrap()
    }

    /// Many clients at once, each with a connection.
    async fn many<F, T>(&self, count: usize, each: impl Fn(UnixStream) -> F) -> Vec<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let mut all = JoinSet::new();
        for _ in 0..count {
            all.spawn(each(self.connect().await));
        }
        let joined = tokio::time::timeout(2 * DEADLINE, all.join_all()).await;
        joined.expect("the flood stands in time")
    }

    fn filler(&self, length: usize) -> Vec<u8> {
        self.marker.bytes().cycle().take(length).collect()
    }
}

/// The head of an answer on a connection to the proxy.
async fn told(client: &mut UnixStream, request: &[u8]) -> String {
    client.write_all(request).await.unwrap();
    read_head(client).await
}

fn connect_to(host: &str) -> String {
    format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_tunnels_that_read_nothing_and_greet_without_end() {
    let world = World::new().await;
    // Whole records of a greeting that says to be longer.
    let message = [&[1, 0, 0xf0, 0][..], &world.filler(3 * 16384 - 4)].concat();
    let records: Vec<u8> = message
        .chunks(16384)
        .flat_map(|part| [&[22, 3, 1, 0x40, 0], part].concat())
        .collect();
    let (head, records) = (Arc::new(connect_to(&world.endless)), Arc::new(records));
    let tunnels = async {
        let tunnels = world.many(MANY, |mut client| {
            let (head, records) = (head.clone(), records.clone());
            async move {
                let answer = told(&mut client, head.as_bytes()).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                client.write_all(&records).await.unwrap();
                client
            }
        });
        let tunnels = tunnels.await;
        assert_eq!(world.accepted.load(Ordering::Relaxed), MANY);
        tunnels
    };
    world.flood(MANY, tunnels).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_not_read_on_and_two_thousand_heads_without_end() {
    let world = World::new().await;
    let get = format!(
        "GET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n",
        world.endless_answer
    );
    let get = Arc::new(get);
    let head = format!("GET http://{}/ HTTP/1.1\r\nX: ", world.plain);
    let head = Arc::new([head.as_bytes(), &world.filler(60_000)].concat());
    let flood = async {
        let bodies = world.many(small_share().requests, |mut client| {
            let get = get.clone();
            async move {
                let answer = told(&mut client, get.as_bytes()).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                client
            }
        });
        let bodies = bodies.await;
        // One more has no turn, and is told so.
        let mut client = world.connect().await;
        client.write_all(get.as_bytes()).await.unwrap();
        let busy = next_whole(&mut client).await;
        assert_eq!(busy.status, 503);
        let (error, reason) = busy.refusal();
        assert_eq!(
            (error.as_str(), reason.as_str()),
            ("handler_egress_busy", "busy")
        );
        assert!(
            busy.head.to_lowercase().contains("retry-after: 1"),
            "{}",
            busy.head
        );
        drop(client);
        let heads = world.many(MANY, |mut client| {
            let head = head.clone();
            async move {
                client.write_all(&head).await.unwrap();
                client
            }
        });
        (bodies, heads.await)
    };
    world.flood(MANY, flood).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_that_are_half_sent() {
    let world = World::new().await;
    let bomb = encode("zstd", &vec![b'0'; 32 * 1024 * 1024]);
    let half = bomb[..bomb.len() / 2].to_vec();
    let request = format!(
        "POST http://{}/ HTTP/1.1\r\nHost: x\r\nContent-Encoding: zstd\r\nContent-Length: {}\r\n\r\n",
        world.plain,
        bomb.len()
    );
    let request = Arc::new([request.as_bytes(), &half].concat());
    let room = small_share().coded_mib / 10;
    let flood = async {
        let mut bombs = JoinSet::new();
        for _ in 0..small_share().requests {
            let (mut client, request) = (world.connect().await, request.clone());
            bombs.spawn(async move {
                client.write_all(&request).await.unwrap();
                let head = read_head(&mut client).await;
                (head, client)
            });
        }
        // Those that have room wait for the rest of their bodies; the others are told.
        let mut told = Vec::new();
        while told.len() < small_share().requests - room {
            let next = within("a refusal", bombs.join_next()).await;
            let (head, client) = next.unwrap().unwrap();
            assert!(head.starts_with("HTTP/1.1 503"), "{head}");
            told.push(client);
        }
        (told, bombs)
    };
    world.flood(100, flood).await;
}

/// Bytes that are wrong in every layer: what opens the connection, and what is sent then.
fn malformed(world: &World) -> Vec<(Option<String>, Vec<u8>)> {
    let filler = world.filler(4000);
    let tunnel = Some(connect_to(&world.secret));
    let blind = Some(connect_to(&world.plain));
    let chunked = format!(
        "POST http://{}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        world.plain
    );
    let with = |front: &[u8]| [front, &filler].concat();
    vec![
        (None, filler.clone()),
        (None, with(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")),
        (
            None,
            with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x09\x00"),
        ),
        (None, with(chunked.as_bytes())),
        (None, with(b"GET http://\0 HTTP/1.1\r\n\r\n")),
        // No greeting, half a one, a record of another kind, and none of TLS at all.
        (tunnel.clone(), with(b"\x16\x03\x01\x40\x00\x02")),
        (
            tunnel.clone(),
            with(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        ),
        (tunnel.clone(), with(b"\x17\x03\x03\x00\x10")),
        (tunnel, filler.clone()),
        (blind.clone(), with(b"\x16\x03\x01\x40\x00\x02")),
        (blind, with(b"GET / HTTP/1.1\r\nHost: other\r\n\r\n")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_bytes_in_every_layer() {
    let world = World::new().await;
    let flood = async {
        for (first, bytes) in malformed(&world) {
            let (first, bytes) = (Arc::new(first), Arc::new(bytes));
            world
                .many(100, |mut client| {
                    let (first, bytes) = (first.clone(), bytes.clone());
                    async move {
                        if let Some(first) = &*first {
                            let answer = told(&mut client, first.as_bytes()).await;
                            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                        }
                        // The filter may have closed it already.
                        let _ = client.write_all(&bytes).await;
                        let _ = client.shutdown().await;
                        let _ = client.read_to_end(&mut Vec::new()).await;
                    }
                })
                .await;
        }
    };
    world.flood(100, flood).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_frames_inside_tls() {
    let world = World::new().await;
    let flooder_pem = world
        .filter
        .put_for(
            FLOOD,
            enforce(&[&world.secret]),
            vec![injection(&[&world.secret])],
        )
        .await;
    let pem = Arc::new(flooder_pem);
    let head = Arc::new(connect_to(&world.secret));
    let frames = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &[0xff; 9],
        &world.filler(9000),
    ];
    let frames = Arc::new(frames.concat());
    let flood = async {
        world
            .many(100, |mut client| {
                let (head, pem, frames) = (head.clone(), pem.clone(), frames.clone());
                async move {
                    let answer = told(&mut client, head.as_bytes()).await;
                    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    let tls = connect_tls(client, &pem, HOST_ALIAS, &["h2", "http/1.1"]).await;
                    let mut tls = tls.unwrap();
                    let _ = tls.write_all(&frames).await;
                    let _ = tls.read_to_end(&mut Vec::new()).await;
                }
            })
            .await
    };
    world.flood(100, flood).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_by_the_ten_thousand_push_out_none_of_the_others_events() {
    const CLIENTS: usize = 16;
    const EACH: usize = 750;
    let world = World::new().await;
    let deny = "GET http://flood.example/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let flood = async {
        let clients = world.many(CLIENTS, |mut client| async move {
            for _ in 0..EACH {
                client.write_all(deny.as_bytes()).await.unwrap();
                assert_eq!(next_whole(&mut client).await.status, 403);
            }
        });
        clients.await
    };
    world.flood(100, flood).await;
    let mut control = world.filter.control().await;
    control.send(&EgressRequest::Subscribe { after: 0 }).await;
    let first: EgressEvent = control.read().await.unwrap();
    assert_eq!((first.seq, first.sandbox.as_str()), (1, "s1"));
    let (mut before, mut own, mut flooded) = (first.seq, 1, 0);
    let last = "GET http://last.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    world.filter.talk(last).await;
    let is_last = |event: &EgressEvent| event.host == "last.example:80";
    let last = world.filter.events_until(is_last).await.pop().unwrap();
    while before < last.seq {
        let event: EgressEvent = control.read().await.unwrap();
        assert!(event.seq > before, "{} after {before}", event.seq);
        before = event.seq;
        match event.sandbox.as_str() {
            "s1" => own += 1,
            _ => {
                assert_eq!(event.decision, EgressDecision::Denied);
                flooded += 1;
            }
        }
    }
    // Nothing of the quiet one is missing: only events of the flood are.
    assert!(flooded < CLIENTS * EACH, "{flooded} of the flood are kept");
    assert_eq!(last.seq - CLIENTS as u64 * EACH as u64, own);
}
