//! A terminal over the WebSocket: from a key to its echo.

use super::sandbox;
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{ms_since, series};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use handler_client::{Client, Socket, SocketMessage};
use handler_types::terminal::{CreateTerminal, TerminalEvent};
use std::time::{Duration, Instant};

/// How long one message may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let world = context.world().await?;
    let client = world.client();
    let view = sandbox::create(&client, None).await?;
    // The terminal itself echoes; the program only keeps it open.
    let mut socket = open(&client, view.id.as_str(), &["cat"]).await?;
    let samples = series(20, context.pick(1_000, 50), async || {
        let began = Instant::now();
        socket.send_binary(Bytes::from_static(b"k")).await?;
        let (_, echoed) = output(&mut socket).await?.context("the terminal ended")?;
        anyhow::ensure!(echoed.as_ref() == b"k", "the terminal echoed {echoed:?}");
        Ok(ms_since(began))
    });
    Ok(vec![
        Line::new(
            "terminal/echo",
            "terminal: key → echo",
            Unit::Ms,
            &samples.await?,
        )
        .promised(Target::Value(Bound::AtMost(3.0))),
    ])
}

/// Opens a terminal with a program and attaches to it.
pub(crate) async fn open(client: &Client, id: &str, argv: &[&str]) -> anyhow::Result<Socket> {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    let request = CreateTerminal {
        argv,
        ..CreateTerminal::default()
    };
    let view = client
        .create_terminal(id, &request)
        .await
        .context("open a terminal")?;
    let path = format!("/v1/sandboxes/{id}/terminals/{}", view.terminal);
    let mut socket = client
        .socket(&path, "terminal.v1")
        .await
        .context("attach to a terminal")?;
    match event(&mut socket).await? {
        Said::Event(TerminalEvent::Attached { .. }) => {}
        other => bail!("the terminal said {other:?} first"),
    }
    Ok(socket)
}

/// What a terminal says.
#[derive(Debug)]
enum Said {
    Event(TerminalEvent),
    Output(Bytes),
}

async fn event(socket: &mut Socket) -> anyhow::Result<Said> {
    let message = tokio::time::timeout(PATIENCE, socket.next()).await;
    match message.context("the terminal is silent")? {
        SocketMessage::Binary(frame) => Ok(Said::Output(frame)),
        SocketMessage::Text(text) => Ok(Said::Event(serde_json::from_str(&text)?)),
        SocketMessage::Closed { reason, .. } => bail!("the terminal closed: {reason}"),
    }
}

/// Next bytes that belong on a viewer's screen, those of a redraw as well.
pub(crate) async fn shown(socket: &mut Socket) -> anyhow::Result<Bytes> {
    loop {
        match event(socket).await? {
            Said::Output(bytes) => return Ok(bytes),
            Said::Event(TerminalEvent::Exited { .. }) => bail!("its program ended"),
            Said::Event(TerminalEvent::Closed { reason, .. }) => bail!("it closed: {reason}"),
            Said::Event(_) => {}
        }
    }
}

/// Next bytes a terminal printed, after so many that were left out; none at its end.
pub(crate) async fn output(socket: &mut Socket) -> anyhow::Result<Option<(u64, Bytes)>> {
    let mut left_out = 0;
    let mut is_redraw = false;
    loop {
        match event(socket).await? {
            Said::Output(bytes) if !is_redraw => return Ok(Some((left_out, bytes))),
            Said::Output(_) => {}
            Said::Event(TerminalEvent::RedrawBegin { skipped }) => {
                left_out += skipped;
                is_redraw = true;
            }
            Said::Event(TerminalEvent::RedrawEnd) => {
                is_redraw = false;
                if left_out > 0 {
                    return Ok(Some((left_out, Bytes::new())));
                }
            }
            Said::Event(TerminalEvent::Exited { .. }) => return Ok(None),
            Said::Event(TerminalEvent::Closed { reason, .. }) => bail!("it closed: {reason}"),
            Said::Event(_) => {}
        }
    }
}
