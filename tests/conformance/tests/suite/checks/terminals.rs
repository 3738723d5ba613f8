//! Terminals that outlive viewers and the daemon.

use super::checks;
use super::life::host_processes;
use crate::subject::Subject;
use anyhow::{Context as _, ensure};
use handler_testkit::eventually;
use handler_testkit::inside::{LONG, Sandbox};
use handler_testkit::viewer::{Ended, Viewer};
use handler_types::guest::TtySize;
use handler_types::terminal::{CreateTerminal, TerminalCommand, TerminalState};
use std::sync::Arc;

checks! { "terminals":
    a_shell_has_the_size_it_was_given_and_knows_its_terminal;
    who_attaches_later_sees_the_present_screen;
    alternate_screen_and_title_come_to_who_attaches_later;
    one_viewer_has_the_size_and_another_can_take_it;
    a_terminal_outlives_a_killed_daemon_and_loses_or_doubles_no_byte;
    the_end_of_a_shell_is_told_and_its_last_screen_is_kept;
    a_closed_terminal_ends_all_it_started;
    the_command_line_opens_lets_go_comes_back_and_looks;
    the_command_line_stays_in_its_terminal_over_a_killed_daemon;
}

async fn open(sandbox: &Sandbox, argv: &[&str], cols: u16, rows: u16) -> anyhow::Result<u32> {
    let request = CreateTerminal {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        size: Some(TtySize { cols, rows }),
        ..CreateTerminal::default()
    };
    let client = &sandbox.client;
    let made = client.create_terminal(&sandbox.id, &request).await?;
    ensure!(made.size == TtySize { cols, rows }, "{made:?}");
    Ok(made.terminal)
}

async fn a_shell_has_the_size_it_was_given_and_knows_its_terminal(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    // No program: a login shell, whichever there is.
    let terminal = open(&sandbox, &[], 100, 30).await?;
    let mut viewer = Viewer::attach(&sandbox, terminal, "").await?;
    viewer
        .type_in("stty size; echo \"TERM is <$TERM>\"; tty; echo \"$((40+2)) grüße 漢字\"\n")
        .await?;
    for wanted in [
        "30 100",
        "TERM is <xterm-256color>",
        "/dev/pts/",
        "42 grüße 漢字",
    ] {
        viewer.until_text(wanted).await?;
    }
    s.down(sandbox).await
}

async fn who_attaches_later_sees_the_present_screen(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let draw = "printf '\\033[31mred\\033[0m \\033[4;10Hthere\\033[1;1H'; exec cat";
    let terminal = open(&sandbox, &["sh", "-c", draw], 72, 18).await?;
    let mut stayed = Viewer::attach(&sandbox, terminal, "").await?;
    stayed.until_text("there").await?;
    stayed.until(|v| v.screen.cursor() == (0, 0)).await?;
    let mut came = Viewer::attach(&sandbox, terminal, "").await?;
    came.until_like(&stayed.screen).await?;
    came.type_in("typed by the second\r").await?;
    stayed.until_text("typed by the second").await?;
    let mut reader = Viewer::attach(&sandbox, terminal, "?mode=read").await?;
    reader.until_text("typed by the second").await?;
    reader.type_in("never\r").await?;
    // It is drawn anew for the reader only when what it typed was read.
    let before = reader.received;
    reader.send(&TerminalCommand::Redraw).await?;
    reader.until(|v| v.received > before).await?;
    stayed.type_in("the end\r").await?;
    reader.until_text("the end").await?;
    let text = reader.screen.rows_text().join("\n");
    ensure!(!text.contains("never"), "a reader typed: {text}");
    s.down(sandbox).await
}

async fn alternate_screen_and_title_come_to_who_attaches_later(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let draw = "echo below; printf '\\033]2;titel ü\\007\\033[?1049h\\033[2J\\033[3;5Hfull'; read x; \
        printf '\\033[?1049l'; exec cat";
    let terminal = open(&sandbox, &["sh", "-c", draw], 60, 12).await?;
    let mut first = Viewer::attach(&sandbox, terminal, "").await?;
    first.until_text("full").await?;
    let mut late = Viewer::attach(&sandbox, terminal, "").await?;
    late.until_like(&first.screen).await?;
    ensure!(late.screen.is_alternate());
    ensure!(late.screen.osc().title.as_deref() == Some("titel ü"));
    let told = sandbox
        .client
        .terminal_screen(&sandbox.id, terminal, 0)
        .await?;
    ensure!(
        told.alternate && told.title.as_deref() == Some("titel ü"),
        "{told:?}"
    );
    // What lies below is there again, for the one who never saw it too.
    late.type_in("\r").await?;
    late.until(|v| !v.screen.is_alternate()).await?;
    late.until_text("below").await?;
    s.down(sandbox).await
}

async fn one_viewer_has_the_size_and_another_can_take_it(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let terminal = open(&sandbox, &["sh"], 80, 24).await?;
    let mut first = Viewer::attach(&sandbox, terminal, "?cols=70&rows=20").await?;
    ensure!(first.owner);
    first.type_in("PS1='$ '; stty size\n").await?;
    first.until_text("20 70").await?;
    let mut second = Viewer::attach(&sandbox, terminal, "?cols=50&rows=10").await?;
    ensure!(!second.owner && second.screen.size().cols == 70);
    let take = TerminalCommand::Take { cols: 52, rows: 12 };
    second.send(&take).await?;
    second
        .until(|v| v.owner && v.screen.size().cols == 52)
        .await?;
    first
        .until(|v| !v.owner && v.screen.size().rows == 12)
        .await?;
    first.type_in("clear; stty size\n").await?;
    second.until_text("12 52").await?;
    let resize = TerminalCommand::Resize { cols: 53, rows: 13 };
    second.send(&resize).await?;
    first.until(|v| v.screen.size().cols == 53).await?;
    first.type_in("stty size\n").await?;
    first.until_text("13 53").await?;
    drop(second);
    first
        .until(|v| v.owner && v.screen.size().cols == 70)
        .await?;
    s.down(sandbox).await
}

/// Prints numbered lines, a third of them for each file that appears, slowly enough to be interrupted.
const COUNT: &str = "n=0; for go in 0 1 2; do while [ ! -e /tmp/go$go ]; do sleep 0.05; done; m=0; \
    while [ $m -lt 300 ]; do echo \"line $n of a long tale that is told in many lines\"; \
    n=$((n+1)); m=$((m+1)); [ $((n % 20)) = 0 ] && sleep 0.05; done; done; echo over; read x; echo \"got $x\"; cat";

async fn a_terminal_outlives_a_killed_daemon_and_loses_or_doubles_no_byte(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    let terminal = open(&sandbox, &["sh", "-c", COUNT], 72, 21).await?;
    for third in 0..3 {
        let mut viewer = Viewer::attach(&sandbox, terminal, "").await?;
        let from = viewer.received;
        sandbox.out(&format!("touch /tmp/go{third}")).await?;
        // In the middle: more is due.
        viewer.until(|v| v.received > from + 4_000).await?;
        world.kill9()?;
        ensure!(viewer.rest().await? == Ended::Closed { retry: true });
        world.start_daemon().await?;
        sandbox.client = world.client();
    }
    // Typed at once: the new daemon may not have found the program again.
    let mut viewer = Viewer::attach(&sandbox, terminal, "").await?;
    viewer.type_in("typed\r").await?;
    viewer.until_text("over").await?;
    viewer.until_text("got typed").await?;
    let all = sandbox
        .client
        .terminal_screen(&sandbox.id, terminal, 5000)
        .await?;
    let lines = all.scrollback.iter().chain(&all.rows);
    let numbers: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("line ")?.split(' ').next())
        .collect();
    let wanted: Vec<String> = (0..900).map(|n: u32| n.to_string()).collect();
    ensure!(
        numbers == wanted,
        "lost or doubled, {} lines: {numbers:?}",
        numbers.len()
    );
    s.down(sandbox).await
}

async fn the_end_of_a_shell_is_told_and_its_last_screen_is_kept(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    let terminal = open(&sandbox, &["sh"], 80, 24).await?;
    let mut viewer = Viewer::attach(&sandbox, terminal, "").await?;
    viewer.type_in("echo \"last $((1+1))\"; exit 5\n").await?;
    let end = viewer.rest().await?;
    ensure!(
        matches!(&end, Ended::Exited(Some(exit)) if exit.code == 5),
        "{end:?}"
    );
    world.kill9()?;
    world.start_daemon().await?;
    sandbox.client = world.client();
    let client = &sandbox.client;
    let view = client.terminal(&sandbox.id, terminal).await?;
    ensure!(view.state == TerminalState::Ended, "{view:?}");
    ensure!(view.exit.map(|exit| exit.code) == Some(5));
    let kept = client.terminal_screen(&sandbox.id, terminal, 0).await?;
    ensure!(kept.rows.join("\n").contains("last 2"), "{kept:?}");
    client.close_terminal(&sandbox.id, terminal).await?;
    ensure!(client.terminals(&sandbox.id).await?.is_empty());
    s.down(sandbox).await
}

async fn a_closed_terminal_ends_all_it_started(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let mark = format!("864.{}", u32::from_le_bytes(handler_base::random::bytes()));
    let terminal = open(&sandbox, &["sh"], 80, 24).await?;
    let mut viewer = Viewer::attach(&sandbox, terminal, "").await?;
    let keys = format!("(trap '' HUP; sleep {mark}) & sleep {mark} & setsid sleep {mark}\n");
    viewer.type_in(&keys).await?;
    let count = |wanted: usize| {
        let mark = mark.clone();
        async move { (host_processes(&mark) == wanted).then_some(()) }
    };
    eventually("three processes", LONG, || count(3)).await?;
    sandbox.client.close_terminal(&sandbox.id, terminal).await?;
    eventually("their end", LONG, || count(0)).await?;
    ensure!(sandbox.out("echo here").await? == "here");
    s.down(sandbox).await
}

async fn the_command_line_opens_lets_go_comes_back_and_looks(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let id = sandbox.id.as_str();
    let mut shell = world.on_tty(&["shell", id, "--name", "mine"], (80, 24))?;
    shell.type_in("echo \"is $((40+2))\"\r")?;
    shell.until("is 42").await?;
    // Ctrl-] d lets go.
    shell.type_in("\u{1d}d")?;
    ensure!(shell.ended().await? == 0, "{:?}", shell.text());
    let listed = world.cli_ok(&["sandbox", "terminals", id]).await?;
    ensure!(
        listed.contains("mine") && listed.contains("running"),
        "{listed}"
    );
    let mut again = world.on_tty(&["sandbox", "attach", id], (90, 20))?;
    again.until("is 42").await?;
    again.type_in("stty size\r")?;
    again.until("20 90").await?;
    again.resize((91, 21))?;
    eventually("the new size inside", LONG, || async {
        again.type_in("stty size\r").ok()?;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        again.text().contains("21 91").then_some(())
    })
    .await?;
    let looked = world.cli_ok(&["sandbox", "screen", id, "1"]).await?;
    ensure!(looked.contains("21 91"), "{looked}");
    again.type_in("exit 3\r")?;
    ensure!(again.ended().await? == 3, "{:?}", again.text());
    world.cli_ok(&["sandbox", "close", id, "1"]).await?;
    let args = ["--json", "sandbox", "terminals", id];
    ensure!(world.cli_ok(&args).await?.trim() == "[]");
    s.down(sandbox).await
}

async fn the_command_line_stays_in_its_terminal_over_a_killed_daemon(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    let mut shell = world.on_tty(&["sandbox", "shell", &sandbox.id], (80, 24))?;
    shell.type_in("kept=before; echo \"is $((40+2))\"\r")?;
    shell.until("is 42").await?;
    world.kill9()?;
    shell.type_in("echo \"typed $((60+4)) $kept\"\r")?;
    world.start_daemon().await?;
    shell.until("typed 64 before").await?;
    let typed = shell.text().matches("typed 64 before").count();
    ensure!(typed == 1, "{typed} times: {:?}", shell.text());
    shell.type_in("exit 6\r")?;
    let code = shell.ended().await.context("the shell")?;
    ensure!(code == 6, "{code}: {:?}", shell.text());
    sandbox.client = world.client();
    s.down(sandbox).await
}
