//! A3, A4: the way out.

use super::{Need, checks};
use crate::probe;
use crate::subject::Subject;
use anyhow::ensure;
use handler_testkit::inside::LONG;
use handler_testkit::{HttpOrigin, eventually};
use handler_types::api::{NetworkUpdate, SecretRequest};
use handler_types::egress::EgressDecision;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::sandbox::{CreateSandbox, SecretGrant};
use std::collections::BTreeMap;
use std::sync::Arc;

const OPEN: Need = Need {
    name: "open is the engine's own network",
    has: |c| c.open_network,
};

checks! { "network":
    none_has_no_interface_but_loopback;
    filtered_reaches_what_is_allowed_and_nothing_else;
    filtered_has_no_other_way_out;
    a_denied_request_is_reported;
    the_policy_can_be_switched_while_it_runs;
    log_only_lets_through_and_reports;
    a_secret_is_never_inside_and_the_host_receives_it;
    open_reaches_out_through_the_proxy;
    open_reaches_out_without_a_proxy_too [OPEN];
}

fn policy(allow: &[String], enforcement: Enforcement) -> anyhow::Result<NetworkPolicy> {
    let allow = allow
        .iter()
        .map(|entry| entry.parse())
        .collect::<Result<_, _>>()?;
    Ok(NetworkPolicy::Filtered { allow, enforcement })
}

fn alias(origin: &HttpOrigin) -> String {
    format!("host.containers.internal:{}", origin.port())
}

fn url(origin: &HttpOrigin, path: &str) -> String {
    format!("http://{}{path}", alias(origin))
}

async fn none_has_no_interface_but_loopback(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let origin = HttpOrigin::start().await?;
    let spec = CreateSandbox {
        network: Some(NetworkPolicy::None),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let interfaces = sandbox
        .out("cat /proc/net/dev | tail -n +3 | cut -d: -f1")
        .await?;
    ensure!(interfaces.trim() == "lo", "interfaces: {interfaces}");
    let env = sandbox.out("env").await?;
    ensure!(!env.to_ascii_lowercase().contains("http_proxy"), "{env}");
    let port = origin.port();
    for host in ["127.0.0.1", "10.0.2.2", "172.17.0.1", "169.254.169.254"] {
        sandbox
            .fails(&probe::get_direct(&format!("http://{host}:{port}/")))
            .await?;
    }
    ensure!(origin.requests().is_empty(), "something arrived");
    s.down(sandbox).await
}

async fn filtered_reaches_what_is_allowed_and_nothing_else(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (allowed, other) = (HttpOrigin::start().await?, HttpOrigin::start().await?);
    let spec = CreateSandbox {
        network: Some(policy(&[alias(&allowed)], Enforcement::Enforce)?),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    ensure!(sandbox.out(&probe::get(&url(&allowed, "/"))).await?.trim() == "hello from origin");
    sandbox.fails(&probe::get(&url(&other, "/"))).await?;
    sandbox.fails(&probe::get("http://example.com/")).await?;
    ensure!(other.requests().is_empty(), "something arrived");
    s.down(sandbox).await
}

async fn filtered_has_no_other_way_out(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let origin = HttpOrigin::start().await?;
    let spec = CreateSandbox {
        network: Some(policy(&[alias(&origin)], Enforcement::Enforce)?),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let interfaces = sandbox
        .out("cat /proc/net/dev | tail -n +3 | cut -d: -f1")
        .await?;
    ensure!(interfaces.trim() == "lo", "interfaces: {interfaces}");
    let port = origin.port();
    for host in [
        "127.0.0.1",
        "10.0.2.2",
        "172.17.0.1",
        "10.88.0.1",
        "host.containers.internal",
    ] {
        sandbox
            .fails(&probe::get_direct(&format!("http://{host}:{port}/")))
            .await?;
    }
    sandbox
        .fails("busybox ping -c 1 -W 2 127.0.0.2 || busybox nc -w 2 1.1.1.1 53 </dev/null")
        .await?;
    ensure!(origin.requests().is_empty(), "something arrived");
    s.down(sandbox).await
}

async fn a_denied_request_is_reported(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        network: Some(policy(&[], Enforcement::Enforce)?),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    sandbox
        .fails(&probe::get("http://denied.example:81/"))
        .await?;
    let event = eventually("the event", LONG, || async {
        let events = sandbox.client.sandbox_egress(&sandbox.id).await.ok()?;
        events
            .into_iter()
            .find(|event| event.host == "denied.example:81")
    })
    .await?;
    ensure!(event.decision == EgressDecision::Denied, "{event:?}");
    s.down(sandbox).await
}

async fn the_policy_can_be_switched_while_it_runs(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let origin = HttpOrigin::start().await?;
    let spec = CreateSandbox {
        network: Some(policy(&[], Enforcement::Enforce)?),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    sandbox.fails(&probe::get(&url(&origin, "/"))).await?;
    for (allow, works) in [(vec![alias(&origin)], true), (vec![], false)] {
        let network = policy(&allow, Enforcement::Enforce)?;
        sandbox
            .client
            .set_network(&sandbox.id, &NetworkUpdate { network })
            .await?;
        let done = sandbox.sh(&probe::get(&url(&origin, "/"))).await?;
        ensure!((done.exit.code == 0) == works, "allow {allow:?}: {done:?}");
    }
    s.down(sandbox).await
}

async fn log_only_lets_through_and_reports(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let origin = HttpOrigin::start().await?;
    // The host itself is reached only when an entry names it, whatever the enforcement.
    let spec = CreateSandbox {
        network: Some(policy(&[alias(&origin)], Enforcement::LogOnly)?),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    sandbox.out(&probe::get(&url(&origin, "/"))).await?;
    sandbox
        .sh(&probe::get("http://learned.example:82/"))
        .await?;
    let event = eventually("the event", LONG, || async {
        let events = sandbox.client.sandbox_egress(&sandbox.id).await.ok()?;
        events
            .into_iter()
            .find(|event| event.host == "learned.example:82")
    })
    .await?;
    // The list let it through; that nothing of that name exists is another matter.
    let is_unlisted = event.decision == EgressDecision::Unlisted;
    ensure!(
        is_unlisted || event.reason.as_deref() == Some("resolve"),
        "{event:?}"
    );
    s.down(sandbox).await
}

async fn a_secret_is_never_inside_and_the_host_receives_it(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let origin = HttpOrigin::start().await?;
    let value = format!("key-{}", handler_base::random::hex(16));
    let path = format!("conformance/{}", handler_base::random::hex(4));
    let request = SecretRequest {
        value: value.clone(),
        description: None,
    };
    world.client().set_secret(&path, &request).await?;
    let grant = SecretGrant {
        secret: path,
        hosts: vec![alias(&origin).parse()?],
    };
    let spec = CreateSandbox {
        network: Some(policy(&[], Enforcement::Enforce)?),
        secrets: BTreeMap::from([("API_KEY".to_owned(), grant)]),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let inside = sandbox.out("echo $API_KEY").await?;
    ensure!(inside.len() == value.len() && inside != value, "{inside}");
    let found = sandbox
        .sh(&format!("grep -rl '{value}' /proc/[0-9]*/environ /proc/[0-9]*/cmdline ~ /tmp /run /etc 2>/dev/null; true"))
        .await?;
    ensure!(!found.stdout.contains("environ"), "{found:?}");
    let script = format!(
        "timeout 20 busybox wget -q -O - --header \"authorization: Bearer $API_KEY\" '{}'",
        url(&origin, "/with-key")
    );
    sandbox.out(&script).await?;
    ensure!(
        origin
            .requests()
            .iter()
            .any(|request| request.mentions(&value))
    );
    s.down(sandbox).await
}

async fn open_reaches_out_through_the_proxy(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        network: Some(NetworkPolicy::Open),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    // No name of the outside world is asked for: the machine may have no network at all.
    let env = sandbox.out("env; cat /proc/net/dev").await?;
    let has_way = env.to_ascii_lowercase().contains("https_proxy=") || s.capabilities.open_network;
    ensure!(has_way, "{env}");
    s.down(sandbox).await
}

async fn open_reaches_out_without_a_proxy_too(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        network: Some(NetworkPolicy::Open),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let interfaces = sandbox
        .out("cat /proc/net/dev | tail -n +3 | cut -d: -f1")
        .await?;
    ensure!(interfaces.lines().count() > 1, "interfaces: {interfaces}");
    let routes = sandbox.out("cat /proc/net/route").await?;
    ensure!(
        routes
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some("00000000")),
        "{routes}"
    );
    s.down(sandbox).await
}
