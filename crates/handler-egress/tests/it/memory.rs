//! What is left in the memory of a filter that is a process of its own: this test program, run again.

use crate::coding::encode;
use crate::origin::{Origin, echo};
use crate::world::{Filter, PHANTOM, enforce, injection, next_whole, within};
use handler_egress::{EgressConfig, Share, WipingAllocator, run};
use handler_types::egress::{EgressAnswer, EgressRequest};
use memchr::memmem;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

const SOCKET: &str = "HANDLER_EGRESS_TEST_SOCKET";
const GUARDED: &str = "HANDLER_EGRESS_TEST_GUARDED";
/// Set if sandboxes have a small share only, so that it is used up soon.
pub(crate) const SMALL: &str = "HANDLER_EGRESS_TEST_SMALL";

/// The filter's process; nothing unless one of the tests below asks for it.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "what the other process is told")]
async fn a_process_of_its_own() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    let socket = PathBuf::from(socket);
    let mut config = EgressConfig::new(socket.clone());
    config.own_process = std::env::var_os(GUARDED).is_some();
    if std::env::var_os(SMALL).is_some() {
        config.limits.share = small_share();
    }
    // A process that is not to be traced would not show its memory to every user.
    WipingAllocator::wipe_from_now_on();
    let filter = tokio::spawn(run(config));
    within("the filter answers", async {
        while tokio::net::UnixStream::connect(&socket).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let dumpable = rustix::process::dumpable_behavior().unwrap();
    println!("\ndumpable {dumpable:?}");
    filter.await.unwrap().unwrap();
}

/// What a flood uses up at once.
pub(crate) fn small_share() -> Share {
    Share {
        heads: 128,
        requests: 64,
        openings: 64,
        buffers: 64,
        handshakes: 16,
        streaming: 8,
        coded_mib: 64,
        look_ups: 4,
        refusals_per_second: 5000,
        ..Share::default()
    }
}

/// Ends with the test.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a filter in `dir`; gives what it says of itself.
    fn start(dir: &Path, guarded: bool) -> (Self, String) {
        Self::start_with(dir, |command| {
            if guarded {
                command.env(GUARDED, "1");
            }
        })
    }

    /// The same in an environment of one's own.
    pub(crate) fn start_with(dir: &Path, change: impl FnOnce(&mut Command)) -> (Self, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "memory::a_process_of_its_own", "--nocapture"])
            .env(SOCKET, dir.join("control.sock"))
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let said = lines.find(|line| line.starts_with("dumpable"));
        // The test runner in there says so when a minute is over, and dies when nobody listens.
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), said.expect("a word of the filter"))
    }

    /// How often `needle` is in its memory.
    pub(crate) fn holds(&self, needle: &[u8]) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap();
        let mut memory = File::open(format!("/proc/{}/mem", self.0.id())).unwrap();
        let mut count = 0;
        for line in maps.lines().filter(|line| line.contains(" rw")) {
            let range = line.split(' ').next().unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let at = |text| u64::from_str_radix(text, 16).unwrap();
            let mut region = vec![0; usize::try_from(at(to) - at(from)).unwrap()];
            memory.seek(SeekFrom::Start(at(from))).unwrap();
            if memory.read_exact(&mut region).is_ok() {
                count += memmem::find_iter(&region, needle).count();
            }
        }
        count
    }

    /// Memory that is its own and no file's, KiB.
    fn anonymous_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let amount = line.expect("RssAnon").trim().trim_end_matches(" kB");
        amount.parse().unwrap()
    }
}

impl Process {
    /// A line of its status, KiB: `VmRSS` for the memory it has, `VmHWM` for the most it ever had.
    pub(crate) fn memory_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.unwrap().split_whitespace();
        words.next().unwrap().parse().unwrap()
    }

    /// Files and connections it has open.
    pub(crate) fn open_files(&self) -> usize {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap();
        all.count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_process_cannot_be_traced_and_leaves_no_core() {
    let dir = tempfile::tempdir().unwrap();
    let (process, said) = Process::start(dir.path(), true);
    assert_eq!(said, "dumpable NotDumpable");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.0.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let words: Vec<&str> = core.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{core}");
}

#[tokio::test]
async fn no_value_is_left_once_its_sandbox_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (process, _) = Process::start(dir.path(), false);
    let filter = Filter::elsewhere(dir);
    let origin = Origin::plain(echo).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let mut secret = injection(&[&host]);
    let mut random = [0; 20];
    getrandom::fill(&mut random).unwrap();
    secret.value = random
        .iter()
        .map(|byte| char::from(b'a' + byte % 26))
        .collect();
    secret.phantom = PHANTOM[..20].to_owned();
    let (value, phantom) = (secret.value.clone(), secret.phantom.clone());
    let body = format!("{{\"key\":\"{phantom}\"}}");
    filter.put(enforce(&[&host]), vec![secret]).await;
    assert!(process.holds(value.as_bytes()) > 0, "the search finds it");
    for (fields, body) in [
        (format!("X-Api-Key: {phantom}\r\n"), Vec::new()),
        (
            "Content-Type: application/json\r\n".to_owned(),
            body.clone().into_bytes(),
        ),
        (
            "Content-Encoding: gzip\r\n".to_owned(),
            encode("gzip", body.as_bytes()),
        ),
    ] {
        let head = format!(
            "POST http://{host}/?k={phantom} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = filter.client().await;
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&body).await.unwrap();
        assert_eq!(next_whole(&mut client).await.status, 200);
    }
    let sandbox = "s1".to_owned();
    let done = filter
        .control()
        .await
        .ask(&EgressRequest::Remove { sandbox })
        .await;
    assert_eq!(done, EgressAnswer::Done);
    // Connections that were given up are let go a moment later.
    within("the value is gone", async {
        while process.holds(value.as_bytes()) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A tunnel through which a byte went each way; both its ends.
async fn used_tunnel(
    filter: &Filter,
    listener: &TcpListener,
    host: &str,
) -> (UnixStream, TcpStream) {
    let mut client = filter.tunnel(host).await;
    let mut server = within("a connection", listener.accept()).await.unwrap().0;
    client.write_all(b"x").await.unwrap();
    let asked = within("the byte", server.read_u8()).await.unwrap();
    server.write_all(&[asked]).await.unwrap();
    assert_eq!(within("the echo", client.read_u8()).await.unwrap(), b'x');
    (client, server)
}

#[tokio::test]
async fn an_idle_tunnel_takes_a_few_kilobytes() {
    const FIRST: usize = 20;
    const MANY: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let (process, _) = Process::start(dir.path(), false);
    let filter = Filter::elsewhere(dir);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = format!("host.containers.internal:{port}");
    filter.put(enforce(&[&host]), vec![]).await;
    let (mut open, mut before) = (Vec::new(), 0);
    for at in 0..FIRST + MANY {
        if at == FIRST {
            // What is made once for all tunnels is there now.
            before = process.anonymous_kib();
        }
        open.push(used_tunnel(&filter, &listener, &host).await);
    }
    let each = process.anonymous_kib().saturating_sub(before) / MANY;
    assert!(each <= 13, "{each} KiB for each tunnel");
}
