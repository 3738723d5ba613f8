//! Output of commands: as lines while they run, and kept when nobody listens.

use crate::support::{LONG, Sandbox, world};
use anyhow::Context as _;
use handler_client::SocketMessage;
use handler_types::api::{ExecEvent, ExecRequest, StreamCommand, StreamEvent};
use handler_types::sandbox::CreateSandbox;
use http_body_util::{BodyExt as _, Full};
use std::time::Duration;

fn line(text: &str) -> ExecRequest {
    ExecRequest {
        shell: Some(text.to_owned()),
        ..Default::default()
    }
}

/// Everything from an offset to the end: bytes and exit code.
async fn read(sandbox: &Sandbox, process: u32, from: u64) -> anyhow::Result<(Vec<u8>, i32)> {
    let address = format!(
        "/v1/sandboxes/{}/processes/{process}/attach?ack=client&from={from}",
        sandbox.id
    );
    let mut socket = sandbox.client.socket(&address, "process.v1").await?;
    let mut all = Vec::new();
    loop {
        match tokio::time::timeout(LONG, socket.next()).await? {
            SocketMessage::Binary(frame) => {
                all.extend_from_slice(&frame[1..]);
                let up_to = from + all.len() as u64;
                let ack = serde_json::to_string(&StreamCommand::Ack { up_to })?;
                socket.send_text(ack).await.ok();
            }
            SocketMessage::Text(text) => match serde_json::from_str::<StreamEvent>(&text)? {
                StreamEvent::Attached { offset, .. } => assert_eq!(offset, from + all.len() as u64),
                StreamEvent::Exited { exit } => return Ok((all, exit.code)),
                StreamEvent::Closed { reason, .. } => anyhow::bail!("closed: {reason}"),
            },
            SocketMessage::Closed { reason, .. } => anyhow::bail!("broke: {reason}"),
        }
    }
}

#[tokio::test]
async fn a_hundred_megabytes_nobody_watches_are_there_later_over_a_killed_daemon()
-> anyhow::Result<()> {
    let mut world = world().await?;
    let sandbox = Sandbox::up(&world, &CreateSandbox::default()).await?;
    // 100 MB in lines that say where they are.
    let started = sandbox
        .client
        .start_process(
            &sandbox.id,
            &line("seq 1 13000000 | head -c 100000000; echo end; exit 3"),
        )
        .await?;
    // Killed while it is being kept.
    let kept = async || {
        let all = sandbox.client.processes(&sandbox.id).await?;
        all.into_iter()
            .find(|p| p.process == started.process)
            .context("it is listed")
    };
    while kept().await?.output_bytes < 20_000_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.kill9()?;
    world.start_daemon().await?;
    let sandbox = Sandbox {
        client: world.client(),
        id: sandbox.id.clone(),
    };
    tokio::time::timeout(LONG, async {
        loop {
            let all = sandbox.client.processes(&sandbox.id).await?;
            let found = all
                .iter()
                .find(|p| p.process == started.process)
                .context("listed")?;
            if found.exit.is_some() {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .context("it never waits for a viewer")??;
    let expected: Vec<u8> = (1..=13_000_000_u32)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .take(100_000_000)
        .chain(*b"end\n")
        .collect();
    // Twice, and from the middle: it stays.
    for from in [0, 0, 50_000_000] {
        let (all, code) = read(&sandbox, started.process, from).await?;
        assert_eq!(code, 3);
        let from = usize::try_from(from)?;
        assert!(all == expected[from..], "{} bytes from {from}", all.len());
    }
    Ok(())
}

#[tokio::test]
async fn output_comes_as_lines_of_json_while_the_command_runs() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::up(&world, &CreateSandbox::default()).await?;
    let address = format!("/v1/sandboxes/{}/exec?stream=true", sandbox.id);
    let request = line("printf 'aä'; printf '\\377' >&2; read x; echo \"got $x\"; exit 5");
    let mut request = serde_json::to_value(request)?;
    request["stdin"] = "input\n".into();
    let body = serde_json::to_vec(&request)?;
    let request = http::Request::builder()
        .method("POST")
        .uri(&address)
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(body)))?;
    let answer = sandbox.client.send(request).await?;
    assert_eq!(answer.status(), 200);
    let bytes = answer.into_body().collect().await?.to_bytes();
    let events: Vec<ExecEvent> = bytes
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(serde_json::from_slice)
        .collect::<Result<_, _>>()?;
    assert!(
        matches!(events.first(), Some(ExecEvent::Started { .. })),
        "{events:?}"
    );
    let mut stdout = String::new();
    let mut has_bytes = false;
    for event in &events {
        match event {
            ExecEvent::Stdout {
                text: Some(text), ..
            } => stdout.push_str(text),
            ExecEvent::Stderr {
                base64: Some(base64),
                ..
            } => has_bytes |= base64 == "/w==",
            _ => {}
        }
    }
    assert_eq!(stdout, "aägot input\n");
    assert!(has_bytes, "{events:?}");
    let Some(ExecEvent::Exit { exit, .. }) = events.last() else {
        anyhow::bail!("no end: {events:?}");
    };
    assert_eq!(exit.code, 5);
    Ok(())
}
