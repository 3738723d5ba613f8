//! There is one way out, and it leads only where it was allowed: not by name, address, IPv6 or DNS around it.

use crate::support::{Sandbox, alias, filtered, has_tools, world};
use anyhow::Context as _;
use handler_testkit::{HttpOrigin, World};
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::CreateSandbox;

async fn with_network(world: &World, network: NetworkPolicy) -> anyhow::Result<Sandbox> {
    let spec = CreateSandbox {
        network: Some(network),
        ..Default::default()
    };
    Sandbox::up(world, &spec).await
}

/// A host, and an address for it, that no list of this file has.
const UNLISTED: [&str; 7] = [
    "http://example.com/",
    "http://192.0.2.1/",
    "http://93.184.216.34/",
    "http://[2001:db8::1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://metadata.google.internal/",
];

#[tokio::test]
async fn what_is_not_listed_is_refused_by_name_address_and_ipv6_and_there_is_no_other_way()
-> anyhow::Result<()> {
    if !has_tools("what_is_not_listed_is_refused", &["curl"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = with_network(&world, filtered(&["listed.example:443".into()])?).await?;
    for url in UNLISTED {
        let answer = sandbox
            .out(&format!("curl -sS -g -m 20 -w '\\n%{{http_code}}' '{url}'"))
            .await?;
        let (body, code) = answer.rsplit_once('\n').context("a status")?;
        assert_eq!(code, "403", "{url}: {body}");
        let refusal: serde_json::Value = serde_json::from_str(body)?;
        assert_eq!(refusal["error"], "handler_egress_denied", "{url}: {body}");
        let tls = url.replace("http://", "https://");
        let answer = sandbox
            .sh(&format!(
                "curl -sS -g -m 20 -o /dev/null -w '%{{http_connect}}' '{tls}'"
            ))
            .await?;
        assert_eq!(answer.stdout, "403", "{tls}: {answer:?}");
        sandbox
            .fails(&format!("curl -sS -g -m 20 --noproxy '*' '{url}'"))
            .await?;
    }
    let events = sandbox.client.sandbox_egress(&sandbox.id).await?;
    let denied = |host: &str| events.iter().any(|event| event.host == host);
    assert!(
        denied("example.com:80") && denied("example.com:443") && denied("[2001:db8::1]:80"),
        "{events:?}"
    );
    Ok(())
}

#[tokio::test]
async fn the_metadata_address_is_refused_even_when_listed_and_when_open() -> anyhow::Result<()> {
    if !has_tools("the_metadata_address_is_refused", &["curl"]) {
        return Ok(());
    }
    let world = world().await?;
    let listed = filtered(&["169.254.169.254:80".into(), "[fe80::1]:80".into()])?;
    for network in [listed, NetworkPolicy::Open] {
        let sandbox = with_network(&world, network).await?;
        for url in [
            "http://169.254.169.254/",
            "http://[fe80::1]/",
            "http://[::ffff:169.254.169.254]/",
        ] {
            let answer = sandbox.out(&format!("curl -sS -g -m 20 '{url}'")).await?;
            let refusal: serde_json::Value = serde_json::from_str(&answer)?;
            assert_eq!(refusal["error"], "handler_egress_denied", "{url}: {answer}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn names_are_not_resolved_inside_and_no_resolver_is_reached() -> anyhow::Result<()> {
    if !has_tools("names_are_not_resolved_inside", &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let query = "import socket,sys\ns=socket.socket(%F,socket.SOCK_DGRAM)\ns.settimeout(30)\n\
                 q=b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7example\\3com\\0\\0\\1\\0\\1'\n\
                 s.connect(('%A',53)); s.send(q); print(s.recv(512))";
    for (family, address) in [
        ("socket.AF_INET", "8.8.8.8"),
        ("socket.AF_INET", "1.1.1.1"),
        ("socket.AF_INET", "127.0.0.1"),
        ("socket.AF_INET", "127.0.0.53"),
        ("socket.AF_INET6", "2001:4860:4860::8888"),
        ("socket.AF_INET6", "::1"),
    ] {
        let done = sandbox
            .python(&query.replace("%F", family).replace("%A", address))
            .await?;
        assert_ne!(done.exit.code, 0, "{address} answered");
        // Refused at once by the kernel, not after a time limit.
        assert!(!done.stderr.contains("timed out"), "{address}: {done:?}");
        let at_once = ["unreachable", "refused", "Cannot assign"];
        assert!(
            at_once.iter().any(|word| done.stderr.contains(word)),
            "{address}: {done:?}"
        );
    }
    for name in [
        "example.com",
        "host.containers.internal",
        "metadata.google.internal",
    ] {
        let done = sandbox
            .python(&format!(
                "import socket\nprint(socket.getaddrinfo('{name}',80))"
            ))
            .await?;
        assert!(done.stderr.contains("gaierror"), "{name}: {done:?}");
    }
    assert!(
        sandbox
            .python("import socket\nsocket.getaddrinfo('localhost',80)")
            .await?
            .exit
            .code
            == 0
    );
    Ok(())
}

#[tokio::test]
async fn a_service_of_this_machine_is_reached_only_when_listed() -> anyhow::Result<()> {
    if !has_tools(
        "a_service_of_this_machine_is_reached_only_when_listed",
        &["curl"],
    ) {
        return Ok(());
    }
    let world = world().await?;
    let origin = HttpOrigin::start().await?;
    let port = origin.port();
    let unlisted = Sandbox::plain(&world).await?;
    let open = with_network(&world, NetworkPolicy::Open).await?;
    for sandbox in [&unlisted, &open] {
        for host in [
            "127.0.0.1",
            "localhost",
            "[::1]",
            "host.containers.internal",
            "127.1",
            "0.0.0.0",
        ] {
            let url = format!("http://{host}:{port}/");
            sandbox
                .fails(&format!("curl -sS -g -m 20 --noproxy '*' '{url}'"))
                .await?;
            let through =
                format!("curl -sS -g -m 20 --noproxy '' -w '%{{http_code}}' -o /dev/null '{url}'");
            assert_eq!(sandbox.sh(&through).await?.stdout, "403", "{url}");
        }
    }
    assert_eq!(origin.requests().len(), 0, "{:?}", origin.requests());
    let listed = with_network(&world, filtered(&[alias(port)])?).await?;
    let url = format!("http://{}/", alias(port));
    assert_eq!(
        listed.out(&format!("curl -sS -m 20 {url}")).await?,
        "hello from origin"
    );
    assert_eq!(origin.requests().len(), 1);
    listed
        .fails(&format!(
            "curl -sS -f -m 20 --noproxy '' http://127.0.0.1:{port}/"
        ))
        .await?;
    assert_eq!(origin.requests().len(), 1);
    Ok(())
}

#[tokio::test]
async fn without_network_nothing_at_all_is_reached() -> anyhow::Result<()> {
    if !has_tools(
        "without_network_nothing_at_all_is_reached",
        &["curl", "python3"],
    ) {
        return Ok(());
    }
    let world = world().await?;
    let origin = HttpOrigin::start().await?;
    let sandbox = with_network(&world, NetworkPolicy::None).await?;
    let urls = UNLISTED.map(str::to_owned);
    let own = [
        format!("http://{}/", alias(origin.port())),
        format!("http://127.0.0.1:{}/", origin.port()),
    ];
    for url in urls.iter().chain(&own) {
        sandbox.fails(&format!("curl -sS -g -m 20 '{url}'")).await?;
        sandbox
            .fails(&format!(
                "curl -sS -g -m 20 -x http://127.0.0.1:3128 '{url}'"
            ))
            .await?;
    }
    assert_eq!(origin.requests().len(), 0);
    assert_eq!(sandbox.sh("env | grep -ci proxy").await?.stdout, "0\n");
    assert_eq!(sandbox.sh("find /run/handler -type s").await?.stdout, "");
    let interfaces = sandbox
        .out("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
        .await?;
    assert_eq!(interfaces, "lo");
    Ok(())
}
