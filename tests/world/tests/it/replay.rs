//! What clients build on: a request sent twice is done once, lists have pages, changes are told as events.

use crate::api::{Speaker, problem};
use crate::support::{LONG, Reply, Sandbox, world};
use anyhow::Context as _;
use handler_types::api::NetworkUpdate;
use handler_types::event::ServerEvent;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::SandboxState;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn a_request_sent_again_under_its_key_makes_one_sandbox_even_after_a_restart()
-> anyhow::Result<()> {
    let mut world = world().await?;
    let to = Speaker::new(&world)?;
    let key = "Idempotency-Key: once";
    let json = "Content-Type: application/json";
    let first = to
        .say("POST /v1/sandboxes", &[key, json], "{\"name\":\"one\"}")
        .await?;
    assert_eq!(first.status, 201, "{first:?}");
    let id =
        |reply: &Reply| serde_json::from_str::<Value>(&reply.body).expect("JSON")["id"].clone();
    let again = to
        .say("POST /v1/sandboxes", &[key, json], "{\"name\":\"one\"}")
        .await?;
    assert_eq!((again.status, id(&again)), (201, id(&first)));
    assert!(
        again.head.contains("idempotency-replayed: true"),
        "{}",
        again.head
    );
    problem(
        &to.say("POST /v1/sandboxes", &[key, json], "{\"name\":\"two\"}")
            .await?,
        409,
        "conflict",
    );
    world.kill9()?;
    world.start_daemon().await?;
    let to = Speaker::new(&world)?;
    let later = to
        .say("POST /v1/sandboxes", &[key, json], "{\"name\":\"one\"}")
        .await?;
    assert_eq!((later.status, id(&later)), (201, id(&first)));
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 1);
    let long = format!("Idempotency-Key: {}", "k".repeat(201));
    problem(
        &to.say("POST /v1/sandboxes", &[&long, json], "{}").await?,
        400,
        "invalid",
    );
    // Many at once under one key: one is made; the others wait their turn or are told so.
    let head = ["Idempotency-Key: race", json];
    let racing = (0..6).map(|_| to.say("POST /v1/sandboxes", &head, "{}"));
    for reply in futures::future::try_join_all(racing).await? {
        assert!(reply.status == 201 || reply.status == 409, "{reply:?}");
    }
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_list_is_read_page_by_page_while_others_are_made() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let mut wanted = Vec::new();
    for _ in 0..7 {
        wanted.insert(0, Sandbox::plain(&world).await?.id);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.sandboxes(&cursor, 3).await?;
        assert!(page.items.len() <= 3);
        seen.extend(page.items.iter().map(|view| view.id.to_string()));
        // What is new comes before the first page, and moves no later one.
        Sandbox::plain(&world).await?;
        match page.next_cursor {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!(seen, wanted);
    let to = Speaker::new(&world)?;
    let running = to.say("GET /v1/sandboxes?state=stopped", &[], "").await?;
    assert!(running.body.starts_with("{\"items\":[]"), "{running:?}");
    Ok(())
}

#[tokio::test]
async fn what_changes_is_told_as_events() -> anyhow::Result<()> {
    let world = world().await?;
    let mut events = world.client().events().await?;
    let sandbox = Sandbox::plain(&world).await?;
    sandbox
        .sh("curl -sS -m 20 http://denied.example/ || wget -q -O- http://denied.example/")
        .await?;
    let update = NetworkUpdate {
        network: NetworkPolicy::Open,
    };
    sandbox.client.set_network(&sandbox.id, &update).await?;
    world.client().delete_sandbox(&sandbox.id).await?;
    let (mut states, mut denied, mut opened) = (Vec::new(), false, false);
    loop {
        let event = tokio::time::timeout(LONG, events.next())
            .await??
            .context("the stream ended")?;
        match event {
            ServerEvent::Sandbox { sandbox: view } if view.id.as_str() == sandbox.id => {
                opened |= view.network == NetworkPolicy::Open;
                states.push(view.state);
            }
            ServerEvent::Egress { event } => denied |= event.host == "denied.example:80",
            ServerEvent::SandboxRemoved { id } if id == sandbox.id => break,
            ServerEvent::Missed => anyhow::bail!("events were missed"),
            _ => {}
        }
    }
    states.dedup();
    assert_eq!(states.first(), Some(&SandboxState::Creating), "{states:?}");
    assert!(states.contains(&SandboxState::Running), "{states:?}");
    assert!(opened, "the change of the network was not told");
    assert!(denied, "the denied request was not told");
    // As a browser reads it: named events with rising numbers, and no answer kept.
    let to = Speaker::new(&world)?;
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", to.port)).await?;
    let request = format!(
        "GET /v1/events HTTP/1.1\r\n{}\r\n{}\r\n\r\n",
        to.host, to.token
    );
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    let mut block = [0; 4096];
    let mut made = None;
    while !text.contains("event: sandbox-removed") {
        let count = tokio::time::timeout(LONG, stream.read(&mut block)).await??;
        anyhow::ensure!(count > 0, "the stream ended: {text}");
        text.push_str(&String::from_utf8_lossy(&block[..count]));
        if made.is_none() && text.contains("text/event-stream") {
            let sandbox = Sandbox::plain(&world).await?;
            world.client().delete_sandbox(&sandbox.id).await?;
            made = Some(sandbox.id);
        }
    }
    let numbers: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("id: ")?.trim().parse().ok())
        .collect();
    assert!(numbers.len() > 2 && numbers.is_sorted(), "{numbers:?}");
    assert!(
        text.contains("event: sandbox\n") || text.contains("event: sandbox\r\n"),
        "{text}"
    );
    Ok(())
}
