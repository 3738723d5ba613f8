//! What a sandbox may reach is changed while it runs.

use crate::support::{LONG, Sandbox, alias, filtered, has_tools, tunnel_to, world};
use handler_testkit::{HttpOrigin, TcpOrigin, World, eventually};
use handler_types::api::NetworkUpdate;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::CreateSandbox;

#[tokio::test]
async fn a_new_policy_counts_for_the_next_request_and_closes_open_tunnels() -> anyhow::Result<()> {
    if !has_tools(
        "a_new_policy_counts_for_the_next_request",
        &["curl", "python3"],
    ) {
        return Ok(());
    }
    let world = world().await?;
    let (origin, echo) = (HttpOrigin::start().await?, TcpOrigin::start().await?);
    let (web, tunnel) = (alias(origin.port()), alias(echo.port()));
    let spec = CreateSandbox {
        network: Some(filtered(std::slice::from_ref(&tunnel))?),
        ..Default::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    let curl = format!("curl -sS -m 20 -o /dev/null -w '%{{http_code}}' http://{web}/");
    assert_eq!(sandbox.sh(&curl).await?.stdout, "403");
    let program = tunnel_to(&tunnel);
    let process = sandbox
        .start(&format!("exec python3 -c \"{program}\""))
        .await?;
    let mut feed = sandbox.attach(process, None).await?;
    feed.until("open\n").await?;
    assert_eq!(echo.open(), 1);
    // A policy that still lists the tunnel leaves it open.
    let both = NetworkUpdate {
        network: filtered(&[tunnel.clone(), web.clone()])?,
    };
    sandbox.client.set_network(&sandbox.id, &both).await?;
    assert_eq!(sandbox.sh(&curl).await?.stdout, "200");
    assert_eq!(echo.open(), 1);
    world
        .cli_ok(&["sandbox", "network", &sandbox.id, "--allow", &web])
        .await?;
    let (rest, exit) = feed.rest().await?;
    assert_eq!((rest.as_slice(), exit.code), (&b"closed\n"[..], 0));
    eventually("the end of the tunnel outside", LONG, || async {
        (echo.open() == 0).then_some(())
    })
    .await?;
    assert_eq!(sandbox.sh(&curl).await?.stdout, "200");
    world
        .cli_ok(&["sandbox", "network", &sandbox.id, "--network", "filtered"])
        .await?;
    assert_eq!(sandbox.sh(&curl).await?.stdout, "403");
    // None is another kind of sandbox: it cannot be entered while it runs.
    let none = NetworkUpdate {
        network: NetworkPolicy::None,
    };
    assert!(
        sandbox
            .client
            .set_network(&sandbox.id, &none)
            .await
            .is_err()
    );
    Ok(())
}

#[tokio::test]
async fn a_sandbox_that_only_logs_reaches_what_is_not_listed_and_says_so() -> anyhow::Result<()> {
    if !has_tools("a_sandbox_that_only_logs", &["curl"]) {
        return Ok(());
    }
    // The machine reaches the outside through a proxy, which stands for all of it here.
    let outside = HttpOrigin::start().await?;
    let proxy = format!("http://127.0.0.1:{}", outside.port());
    let world = World::builder()
        .env("HTTPS_PROXY", proxy)
        .env("NO_PROXY", "")
        .start()
        .await?;
    world
        .cli_ok(&[
            "sandbox",
            "up",
            "--no-folder",
            "--name",
            "learner",
            "--log-only",
        ])
        .await?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "strict"])
        .await?;
    for name in ["strict", "learner"] {
        let sandbox = Sandbox {
            client: world.client(),
            id: name.into(),
        };
        sandbox
            .sh("curl -sS -m 20 http://unheard-of.example/")
            .await?;
    }
    let told = world.cli_ok(&["sandbox", "egress", "learner"]).await?;
    assert!(
        told.contains("unlisted") && told.contains("unheard-of.example:80"),
        "{told}"
    );
    let told = world.cli_ok(&["sandbox", "egress", "strict"]).await?;
    assert!(
        told.contains("denied") && told.contains("unheard-of.example:80"),
        "{told}"
    );
    let asked = outside.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(
        (asked[0].method.as_str(), asked[0].headers["host"].to_str()?),
        ("CONNECT", "unheard-of.example:80")
    );
    Ok(())
}
