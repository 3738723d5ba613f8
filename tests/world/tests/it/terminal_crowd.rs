//! Many terminals, much output, viewers that do not read.

use crate::support::{LONG, Sandbox, has_tools, is_soak, say, status_bytes, world};
use anyhow::{Context as _, ensure};
use handler_testkit::eventually;
use handler_testkit::viewer::{Ended, Viewer};
use handler_types::terminal::{CreateTerminal, TerminalState};
use std::time::{Duration, Instant};

/// How much the daemon may grow, however much is printed, bytes: its screen with the lines before it, snapshots of
/// that, and what waits for three viewers.
const GROWTH: u64 = 32 * 1024 * 1024;

async fn shell(sandbox: &Sandbox, line: &str) -> anyhow::Result<u32> {
    let request = CreateTerminal {
        argv: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    let made = sandbox
        .client
        .create_terminal(&sandbox.id, &request)
        .await?;
    Ok(made.terminal)
}

/// A gibibyte in the long form.
#[tokio::test]
async fn a_viewer_that_stands_still_costs_little_and_keeps_nobody_waiting() -> anyhow::Result<()> {
    if !has_tools("a_viewer_that_stands_still", &["seq"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let daemon = world.daemon_pid().context("it runs")?;
    let last = if is_soak() {
        1_107_374_182
    } else {
        1_006_100_000
    };
    let other = shell(&sandbox, "exec cat").await?;
    let mut typist = Viewer::attach(&sandbox, other, "").await?;
    typist.type_in("warm\n").await?;
    typist.until_text("warm").await?;
    let before = status_bytes(daemon, "VmRSS")?;
    let flood = shell(
        &sandbox,
        &format!("read go; seq 1000000000 {last}; echo over"),
    )
    .await?;
    let mut stalled = Viewer::attach(&sandbox, flood, "").await?;
    let mut silent = Viewer::attach(&sandbox, flood, "?ack=client").await?;
    let mut fluent = Viewer::attach(&sandbox, flood, "?cols=80&rows=24").await?;
    fluent.type_in("\n").await?;
    let began = Instant::now();
    // Someone on another terminal types all the while.
    let typing = async {
        let mut slowest = Duration::ZERO;
        let mut count = 0;
        loop {
            let text = format!("key{count}.");
            let at = Instant::now();
            typist.type_in(&text).await?;
            typist.until_text(&text).await?;
            typist.type_in("\u{15}").await?;
            slowest = slowest.max(at.elapsed());
            count += 1;
            if count > 10_000 {
                return anyhow::Ok(slowest);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::select! {
        ended = fluent.rest() => ended?,
        typed = typing => anyhow::bail!("typing ended first: {typed:?}"),
    };
    let took = began.elapsed();
    let Ended::Exited(Some(exit)) = ended else {
        anyhow::bail!("it ended by {ended:?}");
    };
    assert_eq!(exit.code, 0);
    let peak = status_bytes(daemon, "VmHWM")?;
    let bytes = (last - 1_000_000_000 + 1) * 12;
    say(&format!(
        "{} MiB in {took:?}, the fluent viewer missed {} KiB, the daemon grew {} KiB",
        bytes >> 20,
        fluent.skipped >> 10,
        peak.saturating_sub(before) >> 10
    ));
    ensure!(
        peak < before + GROWTH,
        "the daemon grew from {before} to {peak}"
    );
    // Both that did not read were skipped forward, and now see what the other sees.
    for viewer in [&mut stalled, &mut silent] {
        viewer.rest().await?;
        ensure!(viewer.skipped > 0, "nothing was left out");
        assert_eq!(viewer.screen.rows_text(), fluent.screen.rows_text());
        ensure!(viewer.received < bytes, "all came");
    }
    let rows = fluent.screen.rows_text();
    assert_eq!(
        rows[21..],
        [last.to_string(), "over".to_owned(), String::new()]
    );
    Ok(())
}

#[tokio::test]
async fn five_hundred_terminals_at_once_are_all_there_after_the_daemon_was_killed()
-> anyhow::Result<()> {
    const COUNT: usize = 500;
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let daemon = world.daemon_pid().context("it runs")?;
    let before = status_bytes(daemon, "VmRSS")?;
    let began = Instant::now();
    let mut numbers = Vec::new();
    for index in 0..COUNT {
        numbers.push(shell(&sandbox, &format!("echo this is {index}; exec cat")).await?);
    }
    let took = began.elapsed();
    let shows_all = async |what: &str| -> anyhow::Result<()> {
        for (index, number) in numbers.iter().enumerate() {
            eventually("its text", LONG, || async {
                let screen = sandbox
                    .client
                    .terminal_screen(&sandbox.id, *number, 0)
                    .await
                    .ok()?;
                (screen.rows[0] == format!("this is {index}")).then_some(())
            })
            .await
            .with_context(|| format!("terminal {number} {what}"))?;
        }
        Ok(())
    };
    shows_all("at first").await?;
    let grown = status_bytes(daemon, "VmRSS")?.saturating_sub(before);
    say(&format!(
        "{COUNT} terminals opened in {took:?}; {} KiB of the daemon each",
        grown / 1024 / COUNT as u64
    ));
    world.kill9()?;
    world.start_daemon().await?;
    shows_all("after the daemon was killed").await?;
    let mut viewer = Viewer::attach(&sandbox, numbers[COUNT / 2], "").await?;
    viewer.type_in("still\n").await?;
    viewer.until_text("still").await?;
    let all = sandbox.client.terminals(&sandbox.id).await?;
    let running = all.iter().filter(|t| t.state == TerminalState::Running);
    assert_eq!(running.count(), COUNT);
    Ok(())
}
