//! A running filter, the daemon's end of its control socket, and the sandbox's end of a listener.

use handler_egress::{EgressConfig, RunError, run};
use handler_types::egress::{
    EGRESS_PROTOCOL, EgressAnswer, EgressDecision, EgressEvent, EgressRequest, EgressSettings,
    Injection,
};
use handler_types::network::{Enforcement, NetworkPolicy};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// Nothing in these tests takes longer unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen in time"),
    }
}

pub(crate) struct Filter {
    pub(crate) dir: TempDir,
    pub(crate) task: JoinHandle<Result<(), RunError>>,
}

impl Filter {
    pub(crate) async fn start(change: impl FnOnce(&mut EgressConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = EgressConfig::new(dir.path().join("control.sock"));
        config.own_process = false;
        change(&mut config);
        let task = tokio::spawn(run(config));
        let filter = Self { dir, task };
        filter.answers().await;
        filter
    }

    async fn answers(&self) {
        within("the filter answers", async {
            while UnixStream::connect(self.control_path()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Ends it and starts another one in its place.
    pub(crate) async fn again(&mut self) {
        self.control().await.ask(&EgressRequest::Shutdown).await;
        within("the end", &mut self.task).await.unwrap().unwrap();
        let mut config = EgressConfig::new(self.control_path());
        config.own_process = false;
        self.task = tokio::spawn(run(config));
        self.answers().await;
    }

    /// One that another process runs in `dir`.
    pub(crate) fn elsewhere(dir: TempDir) -> Self {
        let task = tokio::spawn(std::future::pending());
        Self { dir, task }
    }

    pub(crate) fn control_path(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    pub(crate) fn listen_path(&self, sandbox: &str) -> PathBuf {
        self.dir.path().join(format!("{sandbox}.sock"))
    }

    pub(crate) async fn control(&self) -> Control {
        let mut control = Control::connect(&self.control_path()).await;
        let protocol = EGRESS_PROTOCOL;
        let hello = control.ask(&EgressRequest::Hello { protocol }).await;
        assert!(matches!(hello, EgressAnswer::Hello { .. }), "{hello:?}");
        control
    }

    /// Puts settings for sandbox `s1`; gives its authority's certificate.
    pub(crate) async fn put(&self, policy: NetworkPolicy, injections: Vec<Injection>) -> String {
        self.put_for("s1", policy, injections).await
    }

    pub(crate) async fn put_for(
        &self,
        sandbox: &str,
        policy: NetworkPolicy,
        injections: Vec<Injection>,
    ) -> String {
        let settings = EgressSettings {
            listen: self.listen_path(sandbox).to_str().unwrap().to_owned(),
            policy,
            injections,
            label: format!("label of {sandbox}"),
        };
        let sandbox = sandbox.to_owned();
        let answer = self
            .control()
            .await
            .ask(&EgressRequest::Put { sandbox, settings })
            .await;
        match answer {
            EgressAnswer::Put { ca_pem } => ca_pem,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn client(&self) -> UnixStream {
        UnixStream::connect(self.listen_path("s1")).await.unwrap()
    }

    /// Sends bytes and reads until the filter closes.
    pub(crate) async fn talk(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut client = self.client().await;
        client.write_all(bytes.as_ref()).await.unwrap();
        let mut text = Vec::new();
        within("the answer", client.read_to_end(&mut text))
            .await
            .unwrap();
        Answer::parse(&text)
    }

    /// A tunnel that stands.
    pub(crate) async fn tunnel(&self, target: &str) -> UnixStream {
        let mut client = self.client().await;
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let answer = within("the tunnel", read_head(&mut client)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        client
    }

    /// Events until one fits; gives all that came.
    pub(crate) async fn events_until(
        &self,
        fits: impl Fn(&EgressEvent) -> bool,
    ) -> Vec<EgressEvent> {
        let mut control = self.control().await;
        control.send(&EgressRequest::Subscribe { after: 0 }).await;
        let mut events: Vec<EgressEvent> = Vec::new();
        within("the event", async {
            loop {
                let event: EgressEvent = control.read().await.expect("event");
                let last = fits(&event);
                events.push(event);
                if last {
                    return;
                }
            }
        })
        .await;
        events
    }

    pub(crate) async fn event(&self, decision: EgressDecision) -> EgressEvent {
        let mut events = self.events_until(|event| event.decision == decision).await;
        events.pop().unwrap()
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    pub(crate) async fn connect(path: &Path) -> Self {
        let stream = BufReader::new(UnixStream::connect(path).await.unwrap());
        Self { stream }
    }

    pub(crate) async fn send(&mut self, request: &EgressRequest) {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        self.send_raw(&line).await;
    }

    pub(crate) async fn send_raw(&mut self, line: &[u8]) {
        self.stream.write_all(line).await.unwrap();
    }

    pub(crate) async fn read<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = String::new();
        within("a control line", self.stream.read_line(&mut line))
            .await
            .unwrap();
        serde_json::from_str(&line).ok()
    }

    /// A line, however long it takes; `None` at the end.
    pub(crate) async fn read_patiently<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.ok()?;
        serde_json::from_str(&line).ok()
    }

    pub(crate) async fn ask(&mut self, request: &EgressRequest) -> EgressAnswer {
        self.send(request).await;
        self.read().await.expect("an answer")
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            body: bytes[end + 4..].to_vec(),
            head,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as the one shape of refusals: its error and reason.
    pub(crate) fn refusal(&self) -> (String, String) {
        assert!(
            self.head
                .to_lowercase()
                .contains("content-type: application/json"),
            "{}",
            self.head
        );
        let refusal: handler_types::egress::EgressRefusal =
            serde_json::from_slice(&self.body).unwrap();
        assert!(!refusal.message.is_empty());
        (refusal.error, refusal.reason)
    }
}

pub(crate) async fn read_head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// The next answer on a connection that is kept; its length must be promised.
pub(crate) async fn next_answer(stream: &mut (impl AsyncReadExt + Unpin)) -> Answer {
    within("the answer", async {
        let head = read_head(stream).await;
        let length = head
            .to_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned))
            .unwrap_or_else(|| panic!("no length: {head}"));
        let mut answer = head.into_bytes();
        let start = answer.len();
        answer.resize(start + length.parse::<usize>().unwrap(), 0);
        stream.read_exact(&mut answer[start..]).await.unwrap();
        Answer::parse(&answer)
    })
    .await
}

/// The next answer on a connection that is kept, with a promised length or in chunks.
pub(crate) async fn next_whole(stream: &mut (impl AsyncReadExt + Unpin)) -> Answer {
    within("the answer", async {
        let head = read_head(stream).await;
        let field = |name: &str| {
            let lower = head.to_lowercase();
            let found = lower.lines().find_map(|line| line.strip_prefix(name));
            found.map(|value| value.trim().to_owned())
        };
        let mut answer = head.clone().into_bytes();
        if let Some(length) = field("content-length:") {
            let start = answer.len();
            answer.resize(start + length.parse::<usize>().unwrap(), 0);
            stream.read_exact(&mut answer[start..]).await.unwrap();
        } else {
            assert_eq!(
                field("transfer-encoding:").as_deref(),
                Some("chunked"),
                "{head}"
            );
            while read_chunk(stream, &mut answer).await > 0 {}
        }
        Answer::parse(&answer)
    })
    .await
}

async fn read_chunk(stream: &mut (impl AsyncReadExt + Unpin), into: &mut Vec<u8>) -> usize {
    let mut line = String::new();
    while !line.ends_with("\r\n") {
        line.push(char::from(stream.read_u8().await.unwrap()));
    }
    let length = usize::from_str_radix(line.trim(), 16).unwrap();
    let start = into.len();
    into.resize(start + length + 2, 0);
    stream.read_exact(&mut into[start..]).await.unwrap();
    into.truncate(start + length);
    length
}

pub(crate) fn filtered(entries: &[String], enforcement: Enforcement) -> NetworkPolicy {
    NetworkPolicy::Filtered {
        allow: entries.iter().map(|entry| entry.parse().unwrap()).collect(),
        enforcement,
    }
}

pub(crate) fn enforce(entries: &[&str]) -> NetworkPolicy {
    let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    filtered(&entries, Enforcement::Enforce)
}

pub(crate) const PHANTOM: &str = "sk-ant-PHANTOM-0123456789abcdef";
pub(crate) const VALUE: &str = "sk-ant-SECRET-VALUE-987654321xy";

pub(crate) fn injection(hosts: &[&str]) -> Injection {
    Injection {
        name: "providers/test/apiKey".to_owned(),
        phantom: PHANTOM.to_owned(),
        value: VALUE.to_owned(),
        hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        renews: None,
    }
}
