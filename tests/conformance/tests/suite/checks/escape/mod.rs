//! Ways out that must not be: each is tried from inside, beside a control that shows that the means work.
//!
//! A case is a few lines of `sh`. Whatever gets out arrives at a trap on this machine and carries the case's name.
//! The list is part of `docs/hazards.md`.

mod addresses;
mod packets;
mod page;
mod requests;
mod sockets;
mod switches;
mod trap;
mod tunnels;

use super::checks;
use super::network::TRANSPARENT;
use crate::subject::Subject;
use anyhow::ensure;
use handler_testkit::inside::Sandbox;
use handler_testkit::{HttpOrigin, World};
use handler_types::network::{Enforcement, NetworkPolicy, Transparent};
use handler_types::sandbox::CreateSandbox;
use std::fmt::Write as _;
use std::sync::Arc;
use trap::Trap;

pub(crate) use page::settle;

checks! { "escape":
    no_spelling_of_an_address_gets_around_the_list;
    no_spelling_of_an_address_reaches_this_machine_in_log_only;
    no_request_is_smuggled_or_sent_elsewhere;
    no_tunnel_begins_with_words_for_another_host;
    no_packet_leaves_another_way;
    no_packet_leaves_another_way_in_transparent_mode [TRANSPARENT];
    no_socket_of_the_machine_is_a_way_out;
    no_switch_inside_turns_the_list_off;
}

/// One way that is tried.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// A word for files and requests.
    pub(super) name: String,
    /// What is tried, for the page.
    pub(super) what: String,
    /// A script; `$P` is the port of the way out, `$F` that of the trap, `$A` that of the host that is allowed.
    pub(super) script: String,
}

impl Case {
    pub(super) fn new(name: &str, what: &str, script: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            what: what.to_owned(),
            script: script.into(),
        }
    }
}

/// Bytes that are sent to the way out as they are, and what comes back; the words `{F}` and `{A}` are the ports.
pub(super) fn send(bytes: &str) -> String {
    send_after(bytes, &[])
}

/// The same, and then more, a moment apart.
pub(super) fn send_after(head: &str, pieces: &[&[u8]]) -> String {
    let mut words = String::new();
    let mut rest = head;
    while let Some((before, after)) = rest.split_once('{') {
        encode(before.as_bytes(), &mut words);
        let (port, after) = after.split_once('}').unwrap_or((after, ""));
        write!(words, "'\"${port}\"'").unwrap();
        rest = after;
    }
    encode(rest.as_bytes(), &mut words);
    let mut script = format!("printf '%b' '{words}'");
    for piece in pieces {
        words.clear();
        encode(piece, &mut words);
        write!(script, "; sleep 0.3; printf '%b' '{words}'").unwrap();
    }
    // The writing end stays open until the answer is there: a client that hangs up is not served.
    format!("({script}; sleep 2) | timeout 8 busybox nc 127.0.0.1 $P")
}

fn encode(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        write!(out, "\\0{byte:03o}").unwrap();
    }
}

/// The name under which this machine's services may be listed.
pub(super) const ALIAS: &str = "host.containers.internal";

/// A sandbox that may reach one host of this machine, and the traps around it.
struct Attempt {
    sandbox: Sandbox,
    allowed: HttpOrigin,
    /// May be reached, and keeps what comes as it is.
    raw: Trap,
    trap: Trap,
}

impl Attempt {
    async fn new(
        s: &Subject,
        world: &World,
        enforcement: Enforcement,
        transparent: Transparent,
    ) -> anyhow::Result<Self> {
        trap::works().await?;
        let (allowed, trap) = (HttpOrigin::start().await?, Trap::set().await?);
        let raw = Trap::set().await?;
        let mut allow = vec![
            format!("{ALIAS}:{}", allowed.port()).parse()?,
            format!("{ALIAS}:{}", raw.port()).parse()?,
        ];
        // Names that lead to this machine are listed, and still nobody gets there by them.
        for name in addresses::names_of_this_machine() {
            allow.push(format!("{name}:{}", trap.port()).parse()?);
        }
        let spec = CreateSandbox {
            network: Some(NetworkPolicy::Filtered { allow, enforcement }),
            transparent,
            ..s.spec()
        };
        let sandbox = s.up(world, &spec).await?;
        Ok(Self {
            sandbox,
            allowed,
            raw,
            trap,
        })
    }

    /// Tries all; a few at a time.
    async fn run(&self, cases: &[Case]) -> anyhow::Result<()> {
        ensure!(!cases.is_empty());
        let control = Case::new(
            "control",
            "what is allowed",
            send(&format!(
                "GET http://{ALIAS}:{{A}}/control HTTP/1.1\r\nHost: {ALIAS}:{{A}}\r\nConnection: close\r\n\r\n"
            )),
        );
        for some in [&[control][..], cases].concat().chunks(24) {
            self.sandbox.out(&self.script(some)).await?;
        }
        let broken = "cd /tmp/escape; grep -lE 'applet not found|invalid option|Usage:|not in .* range' *; true";
        let broken = self.sandbox.out(broken).await?;
        ensure!(broken.is_empty(), "not tried at all: {broken}");
        self.nothing_got_out().await
    }

    fn script(&self, cases: &[Case]) -> String {
        let mut script = format!(
            "P=${{http_proxy##*:}}; P=${{P%/}}; F={}; A={}; R={}; mkdir -p /tmp/escape; cd /tmp/escape\n",
            self.trap.port(),
            self.allowed.port(),
            self.raw.port()
        );
        for case in cases {
            writeln!(
                script,
                "( {} ) >'{}' 2>&1 </dev/null &",
                case.script, case.name
            )
            .unwrap();
        }
        script.push_str("wait; true");
        script
    }

    async fn nothing_got_out(&self) -> anyhow::Result<()> {
        let requests = self.allowed.requests();
        ensure!(
            requests.iter().any(|request| request.path == "/control"),
            "what is allowed does not work: {}",
            self.sandbox.out("cat /tmp/escape/control").await?
        );
        let own = format!("{ALIAS}:{}", self.allowed.port());
        for request in &requests {
            let host = request.headers.get("host").map(|host| host.as_bytes());
            ensure!(
                host == Some(own.as_bytes()) && !request.path.starts_with("/escaped"),
                "this arrived at the host that is allowed: {request:?}"
            );
        }
        let caught = self.trap.caught().await;
        ensure!(caught.is_empty(), "this got out: {caught:#?}");
        let raw = self.raw.caught().await;
        let is_other = |text: &&String| text.to_ascii_lowercase().contains("escape");
        let other: Vec<_> = raw.iter().filter(is_other).collect();
        ensure!(
            other.is_empty(),
            "this got to the host that is allowed: {other:#?}"
        );
        let bad = self
            .sandbox
            .out("cat /tmp/escape/bad 2>/dev/null; true")
            .await?;
        ensure!(bad.is_empty(), "this could be done or seen: {bad}");
        Ok(())
    }
}

async fn try_all(s: &Subject, enforcement: Enforcement, cases: &[Case]) -> anyhow::Result<()> {
    // Held to the end: meanwhile no other check may kill the daemon.
    let world = s.world().await;
    let attempt = Attempt::new(s, &world, enforcement, Transparent::Auto).await?;
    attempt.run(cases).await?;
    s.down(attempt.sandbox).await
}

async fn no_spelling_of_an_address_gets_around_the_list(s: Arc<Subject>) -> anyhow::Result<()> {
    try_all(&s, Enforcement::Enforce, &addresses::cases()).await
}

async fn no_spelling_of_an_address_reaches_this_machine_in_log_only(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    try_all(&s, Enforcement::LogOnly, &addresses::cases()).await
}

async fn no_request_is_smuggled_or_sent_elsewhere(s: Arc<Subject>) -> anyhow::Result<()> {
    try_all(&s, Enforcement::Enforce, &requests::cases()).await
}

async fn no_tunnel_begins_with_words_for_another_host(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let attempt = Attempt::new(&s, &world, Enforcement::Enforce, Transparent::Auto).await?;
    attempt
        .run(&[&[tunnels::control()][..], &tunnels::cases()].concat())
        .await?;
    let raw = attempt.raw.caught().await;
    ensure!(
        raw.iter().any(|text| text.contains(ALIAS)),
        "a tunnel to the host that is allowed does not work: {raw:#?}"
    );
    s.down(attempt.sandbox).await
}

async fn no_packet_leaves_another_way(s: Arc<Subject>) -> anyhow::Result<()> {
    try_all(&s, Enforcement::Enforce, &packets::cases()).await
}

async fn no_packet_leaves_another_way_in_transparent_mode(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let attempt = Attempt::new(&s, &world, Enforcement::Enforce, Transparent::Required).await?;
    attempt.run(&packets::cases()).await?;
    s.down(attempt.sandbox).await
}

async fn no_socket_of_the_machine_is_a_way_out(s: Arc<Subject>) -> anyhow::Result<()> {
    try_all(&s, Enforcement::Enforce, &sockets::cases()).await
}

async fn no_switch_inside_turns_the_list_off(s: Arc<Subject>) -> anyhow::Result<()> {
    try_all(&s, Enforcement::Enforce, &switches::cases()).await
}

/// All that is tried, with headings; the same on every machine.
fn everything() -> Vec<(&'static str, Vec<Case>)> {
    let own = ["the-name-of-this-machine".to_owned()];
    vec![
        (
            "Spellings of addresses, as a forwarded request and as a tunnel, enforcing and log-only",
            addresses::cases_with(&own),
        ),
        ("Requests", requests::cases()),
        ("Tunnels to the host that is allowed", tunnels::cases()),
        ("Packets", packets::cases()),
        ("Sockets", sockets::cases()),
        ("Switches", switches::cases()),
    ]
}
