//! What is left in the memory of a filter that is a process of its own: this test program, run again.

use crate::coding::encode;
use crate::origin::{Origin, echo};
use crate::world::{Filter, PHANTOM, enforce, injection, next_whole, within};
use handler_egress::{EgressConfig, WipingAllocator, run};
use handler_types::egress::{EgressAnswer, EgressRequest};
use memchr::memmem;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio::io::AsyncWriteExt;

const SOCKET: &str = "HANDLER_EGRESS_TEST_SOCKET";
const GUARDED: &str = "HANDLER_EGRESS_TEST_GUARDED";

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

/// Ends with the test.
struct Process(Child);

impl Process {
    /// Starts a filter in `dir`; gives what it says of itself.
    fn start(dir: &Path, guarded: bool) -> (Self, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "memory::a_process_of_its_own", "--nocapture"])
            .env(SOCKET, dir.join("control.sock"))
            .stdout(Stdio::piped());
        if guarded {
            command.env(GUARDED, "1");
        }
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap)
            .find(|line| line.starts_with("dumpable"));
        (Self(child), said.expect("a word of the filter"))
    }

    /// How often `needle` is in its memory.
    fn holds(&self, needle: &[u8]) -> usize {
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
