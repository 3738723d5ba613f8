//! The link against the real filter, run as a process of its own: this test program, started again.

use super::{EgressLink, EgressLinkConfig, EgressLinkError};
use handler_types::egress::{EgressAnswer, EgressSettings, Injection};
use handler_types::network::{Enforcement, NetworkPolicy};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

const SOCKET_VAR: &str = "HANDLER_TEST_EGRESS_SOCKET";
const VALUE: &str = "very-secret-value-42";

/// Not a test: what this program becomes when the link starts it.
#[tokio::test]
#[ignore = "the filter's process, started by the other tests"]
async fn filter_process() {
    let Some(socket) = std::env::var_os(SOCKET_VAR) else {
        return;
    };
    let config = handler_egress::EgressConfig::new(PathBuf::from(socket));
    handler_egress::run(config).await.expect("the filter");
}

struct World {
    dir: TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("folder");
        Self { dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    fn config(&self) -> EgressLinkConfig {
        let mut assignment = OsString::from(SOCKET_VAR);
        assignment.push("=");
        assignment.push(self.socket());
        let program = std::env::current_exe().expect("this program");
        let mut command = vec!["env".into(), assignment, program.into()];
        for argument in [
            "--exact",
            "egress::tests::filter_process",
            "--ignored",
            "--nocapture",
        ] {
            command.push(argument.into());
        }
        let mut config =
            EgressLinkConfig::new(self.socket(), command, self.dir.path().join("egress.log"));
        // The machine that runs tests may be busy.
        config.start_limit = Duration::from_secs(20);
        config
    }

    async fn link(&self) -> EgressLink {
        EgressLink::start(self.config()).await.expect("a filter")
    }

    fn settings(&self) -> EgressSettings {
        EgressSettings {
            listen: self.listener().to_str().expect("path").to_owned(),
            policy: NetworkPolicy::Filtered {
                allow: Vec::new(),
                enforcement: Enforcement::Enforce,
            },
            injections: vec![Injection {
                renews: None,
                name: "a/secret".to_owned(),
                phantom: "just-a-phantom-value".to_owned(),
                value: VALUE.to_owned(),
                hosts: vec!["api.example:443".parse().expect("entry")],
            }],
            label: String::new(),
        }
    }

    fn listener(&self) -> PathBuf {
        self.dir.path().join("proxy.sock")
    }

    /// Asks for something that is not allowed.
    async fn be_denied(&self) {
        let mut client = UnixStream::connect(self.listener())
            .await
            .expect("listener");
        client
            .write_all(b"CONNECT a.example:1 HTTP/1.1\r\nConnection: close\r\n\r\n")
            .await
            .expect("write");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("answer");
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A filter without its folder would wait for its time to end.
        if let Ok(mut stream) = std::os::unix::net::UnixStream::connect(self.socket()) {
            let _ = std::io::Write::write_all(&mut stream, b"{\"op\":\"shutdown\"}\n");
        }
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(30), future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen in time"),
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("pid")).expect("pid");
    kill_process(pid, Signal::KILL).expect("kill");
}

#[tokio::test]
async fn a_filter_is_adopted_with_its_sandboxes_after_the_link_was_dropped() {
    let world = World::new();
    let first = world.link().await;
    assert!(first.is_new_process());
    let pem = first.put("s1", world.settings()).await.expect("put");
    assert!(pem.contains("BEGIN CERTIFICATE"));
    let pid = first.pid();
    assert_ne!(pid, std::process::id());
    drop(first);
    let second = world.link().await;
    assert!(!second.is_new_process());
    assert_eq!(second.pid(), pid);
    assert_eq!(second.list().await.expect("list"), ["s1"]);
    let again = second.put("s1", world.settings()).await.expect("put");
    assert_eq!(again, pem, "the authority stays");
    assert_eq!(*second.generations().borrow(), 1);
    second.remove("s1").await.expect("remove");
    assert!(second.list().await.expect("list").is_empty());
}

#[tokio::test]
async fn the_filter_s_process_is_protected_and_stands_apart() {
    let world = World::new();
    let link = world.link().await;
    let pid = link.pid();
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .expect("line");
    assert_eq!(core.split_whitespace().rev().nth(1), Some("0"), "{core}");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let after_name = stat.rsplit(") ").next().expect("fields");
    let session = after_name.split(' ').nth(3).expect("session");
    assert_eq!(session, pid.to_string(), "a session of its own");
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).expect("command line");
    link.put("s1", world.settings()).await.expect("put");
    let log = std::fs::read(world.dir.path().join("egress.log")).expect("log");
    for bytes in [command, log] {
        assert!(!String::from_utf8_lossy(&bytes).contains(VALUE));
    }
}

#[tokio::test]
async fn a_killed_filter_is_started_again_and_the_generation_tells() {
    let world = World::new();
    let link = world.link().await;
    link.put("s1", world.settings()).await.expect("put");
    let mut generations = link.generations();
    assert_eq!(*generations.borrow_and_update(), 1);
    for round in 2..4 {
        let pid = link.pid();
        kill(pid);
        within("the next generation", generations.changed())
            .await
            .expect("link");
        assert_eq!(*generations.borrow_and_update(), round);
        assert_ne!(link.pid(), pid);
        assert!(link.list().await.expect("list").is_empty());
        // The old listener's file is still there; it is replaced.
        link.put("s1", world.settings()).await.expect("put again");
        world.be_denied().await;
    }
}

#[tokio::test]
async fn a_call_right_after_the_filter_was_killed_succeeds() {
    let world = World::new();
    let link = world.link().await;
    kill(link.pid());
    within("the call", link.put("s1", world.settings()))
        .await
        .expect("put");
    assert_eq!(link.list().await.expect("list"), ["s1"]);
}

#[tokio::test]
async fn events_go_on_over_a_restart_of_the_filter() {
    let world = World::new();
    let link = world.link().await;
    let mut events = link.subscribe(0);
    link.put("s1", world.settings()).await.expect("put");
    world.be_denied().await;
    let event = within("the event", events.recv()).await.expect("event");
    assert_eq!((event.seq, event.host.as_str()), (1, "a.example:1"));
    let mut generations = link.generations();
    kill(link.pid());
    within("the next generation", generations.changed())
        .await
        .expect("link");
    link.put("s1", world.settings()).await.expect("put");
    world.be_denied().await;
    let event = within("the event", events.recv()).await.expect("event");
    assert_eq!(event.seq, 1, "a new process counts from 1");
    drop(link);
    assert!(within("the end", events.recv()).await.is_none());
}

#[tokio::test]
async fn a_refusal_is_told_in_the_filter_s_words_without_the_value() {
    let world = World::new();
    let link = world.link().await;
    let mut settings = world.settings();
    settings.injections[0].phantom.push('x');
    let error = link.put("s1", settings).await.expect_err("refused");
    assert!(matches!(error, EgressLinkError::Refused(_)));
    assert!(!error.to_string().contains(VALUE));
    assert!(error.to_string().contains("a/secret"));
}

#[tokio::test]
async fn a_command_that_ends_at_once_is_an_error_that_names_the_log() {
    let world = World::new();
    let mut config = world.config();
    config.command = vec!["false".into()];
    let error = EgressLink::start(config).await.expect_err("no filter");
    assert!(error.to_string().contains("egress.log"), "{error}");
    let mut config = world.config();
    config.command = vec!["/nowhere/at/all".into()];
    let error = EgressLink::start(config).await.expect_err("no filter");
    assert!(matches!(error, EgressLinkError::Spawn(_)));
}

#[tokio::test]
async fn a_filter_of_another_version_is_told_to_end_and_replaced() {
    let world = World::new();
    let old = UnixListener::bind(world.socket()).expect("socket");
    let path = world.socket();
    let old = tokio::spawn(async move {
        loop {
            let (stream, _) = old.accept().await.expect("connection");
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                let ends = line.contains("shutdown");
                let answer = match ends {
                    true => EgressAnswer::Done,
                    false => EgressAnswer::Hello {
                        protocol: 999,
                        pid: 1,
                        version: "0".to_owned(),
                    },
                };
                let mut answer = serde_json::to_vec(&answer).expect("answer");
                answer.push(b'\n');
                stream.write_all(&answer).await.expect("write");
                line.clear();
                if ends {
                    std::fs::remove_file(path).expect("socket");
                    return;
                }
            }
        }
    });
    let link = world.link().await;
    within("the old one ends", old).await.expect("task");
    assert!(link.is_new_process());
    assert!(link.list().await.expect("list").is_empty());
}
