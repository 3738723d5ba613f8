//! A3, A4: the way out.

use super::{Need, checks};
use crate::probe;
use crate::subject::Subject;
use anyhow::ensure;
use handler_testkit::inside::{LONG, Sandbox};
use handler_testkit::{HttpOrigin, eventually};
use handler_types::api::{NetworkUpdate, SecretRequest};
use handler_types::egress::EgressDecision;
use handler_types::network::{Enforcement, NetworkPolicy, Transparent};
use handler_types::sandbox::{CreateSandbox, SecretGrant};
use std::collections::BTreeMap;
use std::sync::Arc;

const OPEN: Need = Need {
    name: "open is the engine's own network",
    has: |c| c.open_network,
};

pub(super) const TRANSPARENT: Need = Need {
    name: "transparent mode",
    has: |c| c.transparent,
};

checks! { "network":
    none_has_no_interface_but_loopback;
    filtered_reaches_what_is_allowed_and_nothing_else;
    filtered_has_no_other_way_out;
    a_program_that_knows_no_proxy_reaches_what_is_allowed_and_nothing_else [TRANSPARENT];
    the_device_of_transparent_mode_is_the_guests_alone [TRANSPARENT];
    transparent_mode_can_be_switched_off;
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
    let port = origin.port();
    let mut hosts = vec!["127.0.0.1", "10.0.2.2", "172.17.0.1", "10.88.0.1"];
    let mut wanted = vec!["lo"];
    // The device of transparent mode leads to the filter as well, and by name to what is allowed.
    match is_transparent(&sandbox).await? {
        true => wanted.insert(0, "handler0"),
        false => hosts.push("host.containers.internal"),
    }
    let interfaces = sandbox.out(INTERFACES).await?;
    ensure!(
        interfaces.split_whitespace().eq(wanted),
        "interfaces: {interfaces}"
    );
    for host in hosts {
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

/// Network interfaces, sorted.
const INTERFACES: &str = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort";

async fn is_transparent(sandbox: &Sandbox) -> anyhow::Result<bool> {
    let view = sandbox.client.sandbox(&sandbox.id).await?;
    Ok(view.transparent.is_some_and(|state| state.on))
}

async fn a_program_that_knows_no_proxy_reaches_what_is_allowed_and_nothing_else(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let (allowed, other) = (HttpOrigin::start().await?, HttpOrigin::start().await?);
    let spec = CreateSandbox {
        network: Some(policy(&[alias(&allowed)], Enforcement::Enforce)?),
        transparent: Transparent::Required,
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    ensure!(is_transparent(&sandbox).await?, "it is not on");
    let said = sandbox.out(&probe::get_direct(&url(&allowed, "/"))).await?;
    ensure!(said.trim() == "hello from origin", "{said}");
    let port = other.port();
    for host in [
        "127.0.0.1",
        "10.0.2.2",
        "172.17.0.1",
        "10.88.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "198.18.0.1",
        "198.18.0.2",
        "host.containers.internal",
        "unlisted.example",
    ] {
        sandbox
            .fails(&probe::get_direct(&format!("http://{host}:{port}/")))
            .await?;
    }
    ensure!(other.requests().is_empty(), "something arrived");
    s.down(sandbox).await
}

/// The guest's own program makes the device, or attaches to it. Native sandboxes have neither it nor the node.
const ATTACH: &str = "test -e /dev/net/tun || { echo No such file >&2; exit 1; }; /run/handler/init serve \
    --socket /tmp/own.sock --workdir / --egress-socket /tmp/own --egress-port 1 --transparent $(id -u):$(id -g)";

async fn the_device_of_transparent_mode_is_the_guests_alone(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        network: Some(policy(&[], Enforcement::Enforce)?),
        transparent: Transparent::Required,
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    // Every process, the first one too: no capability in any set, and none to be gained.
    let rights =
        "cat /proc/[0-9]*/status | grep -E '^(Cap...|NoNewPrivs):' | tr -s ' \\t' ' ' | sort -u";
    let rights = sandbox.out(rights).await?;
    let none =
        ["CapAmb", "CapBnd", "CapEff", "CapInh", "CapPrm"].map(|set| format!("{set}: {:016}\n", 0));
    ensure!(rights.trim() == none.concat() + "NoNewPrivs: 1", "{rights}");
    let first = sandbox.out("grep ^Uid: /proc/1/status").await?;
    let own = sandbox.out("grep ^Uid: /proc/self/status").await?;
    ensure!(
        first == own,
        "the first process is another user: {first}, {own}"
    );
    // Neither a device of one's own, nor a second end of that one, by the very call the guest makes.
    for attempt in ["busybox tunctl -t mine", ATTACH] {
        let refused = sandbox.fails(attempt).await?.stderr;
        let is_refused = refused.contains("not permitted") || refused.contains("No such file");
        ensure!(is_refused, "{attempt}: {refused}");
    }
    for change in [
        "ip link set handler0 down",
        "ip addr add 198.18.0.9/15 dev handler0",
        "ip route del default",
        "ip route add 192.0.2.0/24 dev lo",
    ] {
        sandbox.fails(&format!("busybox {change}")).await?;
    }
    let look = "for n in $(busybox seq 0 40); do readlink /proc/1/fd/$n && exit 0; done; exit 1";
    sandbox.fails(look).await?;
    sandbox.fails("head -c 1 /proc/1/mem").await?;
    let interfaces = sandbox.out(INTERFACES).await?;
    ensure!(interfaces.trim() == "handler0\nlo", "{interfaces}");
    s.down(sandbox).await
}

async fn transparent_mode_can_be_switched_off(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let origin = HttpOrigin::start().await?;
    let spec = CreateSandbox {
        network: Some(policy(&[alias(&origin)], Enforcement::Enforce)?),
        transparent: Transparent::Off,
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    ensure!(!is_transparent(&sandbox).await?, "it is on");
    let interfaces = sandbox.out(INTERFACES).await?;
    ensure!(interfaces.trim() == "lo", "interfaces: {interfaces}");
    sandbox
        .fails(&probe::get_direct(&url(&origin, "/")))
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
