//! Commands: results, streams, ends.

use super::checks;
use crate::subject::Subject;
use anyhow::ensure;
use handler_testkit::eventually;
use handler_testkit::inside::LONG;
use handler_types::api::{ExecRequest, SignalRequest, StreamCommand};
use std::collections::BTreeMap;
use std::sync::Arc;

checks! { "commands":
    a_non_zero_exit_is_a_result;
    output_streams_are_told_apart_and_whole;
    input_environment_and_folder_are_given;
    a_line_of_a_megabyte_comes_back_whole;
    a_time_limit_ends_the_whole_tree;
    a_signal_reaches_the_whole_tree;
    a_detached_command_is_found_again_with_all_its_output;
    an_unknown_program_is_told;
    orphans_do_not_pile_up;
    a_killed_daemon_loses_no_output;
}

fn argv(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}

async fn a_non_zero_exit_is_a_result(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    for code in [0, 1, 7, 255] {
        let done = sandbox.sh(&format!("exit {code}")).await?;
        ensure!(done.exit.code == code, "{done:?}");
    }
    let done = sandbox.sh("kill -9 $$").await?;
    ensure!(
        done.exit.signal == Some(9) && done.exit.code == 137,
        "{done:?}"
    );
    s.down(sandbox).await
}

async fn output_streams_are_told_apart_and_whole(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let done = sandbox
        .sh("echo out; echo err >&2; printf 'ünï\\000x'")
        .await?;
    ensure!(
        done.stdout == "out\nünï\0x" && done.stderr == "err\n",
        "{done:?}"
    );
    s.down(sandbox).await
}

async fn input_environment_and_folder_are_given(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let request = ExecRequest {
        argv: argv(&["sh", "-c", "cat; pwd; echo \"$WHO\""]),
        stdin: Some("typed in\n".into()),
        cwd: Some("/tmp".into()),
        env: BTreeMap::from([("WHO".into(), "a b\tc".into())]),
        ..ExecRequest::default()
    };
    let done = sandbox.client.exec(&sandbox.id, &request).await?;
    ensure!(done.stdout == "typed in\n/tmp\na b\tc\n", "{done:?}");
    s.down(sandbox).await
}

async fn a_line_of_a_megabyte_comes_back_whole(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let line = format!("{{\"text\":\"{}\"}}\n", "ä".repeat(512 * 1024));
    let request = ExecRequest {
        argv: argv(&["cat"]),
        stdin: Some(line.clone()),
        max_output: Some(4 << 20),
        ..ExecRequest::default()
    };
    let done = sandbox.client.exec(&sandbox.id, &request).await?;
    ensure!(done.stdout == line, "{} bytes came back", done.stdout.len());
    s.down(sandbox).await
}

/// Starts two generations, the younger detached in a session of its own, that are told by their arguments.
const TREE: &str = "setsid sh -c 'sleep 86413.5 & sleep 86413.5' & sleep 86413.5 & wait";

async fn sleepers(sandbox: &handler_testkit::inside::Sandbox) -> anyhow::Result<usize> {
    let seen = sandbox
        .out("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cx 86413.5; true")
        .await?;
    Ok(seen.trim().parse()?)
}

async fn a_time_limit_ends_the_whole_tree(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let request = ExecRequest {
        argv: argv(&["sh", "-c", TREE]),
        timeout_ms: Some(1500),
        ..ExecRequest::default()
    };
    let done = sandbox.client.exec(&sandbox.id, &request).await?;
    ensure!(done.exit.timed_out, "{done:?}");
    let left = eventually("the end of the tree", LONG, || async {
        (sleepers(&sandbox).await.ok()? == 0).then_some(())
    })
    .await;
    ensure!(left.is_ok(), "some are left");
    s.down(sandbox).await
}

async fn a_signal_reaches_the_whole_tree(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let process = sandbox.start(TREE).await?;
    eventually("the tree", LONG, || async {
        (sleepers(&sandbox).await.ok()? >= 3).then_some(())
    })
    .await?;
    let request = SignalRequest {
        signal: 15,
        tree: true,
    };
    sandbox
        .client
        .signal(&sandbox.id, process, &request)
        .await?;
    sandbox.ended(process).await?;
    eventually("the end of the tree", LONG, || async {
        (sleepers(&sandbox).await.ok()? == 0).then_some(())
    })
    .await?;
    s.down(sandbox).await
}

async fn a_detached_command_is_found_again_with_all_its_output(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let process = sandbox
        .start("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done")
        .await?;
    sandbox.ended(process).await?;
    let (output, exit) = sandbox.attach(process, None).await?.rest().await?;
    let text = String::from_utf8(output)?;
    ensure!(
        exit.code == 0 && text.lines().count() == 2000,
        "{} lines",
        text.lines().count()
    );
    ensure!(
        text.lines()
            .enumerate()
            .all(|(n, line)| line == format!("line {n}"))
    );
    let listed = sandbox.client.processes(&sandbox.id).await?;
    ensure!(
        listed
            .iter()
            .any(|view| view.process == process && view.exit.is_some())
    );
    s.down(sandbox).await
}

async fn an_unknown_program_is_told(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let request = ExecRequest {
        argv: argv(&["no-such-program"]),
        ..ExecRequest::default()
    };
    let told = match sandbox.client.exec(&sandbox.id, &request).await {
        Ok(done) => {
            ensure!(done.exit.code == 127, "{done:?}");
            done.stderr
        }
        Err(error) => error.to_string(),
    };
    ensure!(told.contains("no-such-program"), "{told}");
    s.down(sandbox).await
}

async fn orphans_do_not_pile_up(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    for _ in 0..5 {
        sandbox.sh("(sleep 0.05 &) ; (true &)").await?;
    }
    eventually("no zombies", LONG, || async {
        let stats = sandbox
            .out("grep -h '^State' /proc/[0-9]*/status 2>/dev/null | grep -c Z; true")
            .await
            .ok()?;
        (stats.trim() == "0").then_some(())
    })
    .await?;
    s.down(sandbox).await
}

async fn a_killed_daemon_loses_no_output(s: Arc<Subject>) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    let process = sandbox
        .start("i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.05; done")
        .await?;
    let mut feed = sandbox.attach(process, None).await?;
    let first = feed.until("line 5\n").await?;
    feed.send(&StreamCommand::Ack { up_to: feed.offset })
        .await?;
    let seen = feed.offset;
    world.kill9()?;
    world.start_daemon().await?;
    sandbox.client = world.client();
    // What came before the kill need not be sent again; nothing after it may be missing.
    let (rest, exit) = sandbox.attach(process, Some(seen)).await?.rest().await?;
    let all = first + &String::from_utf8(rest)?;
    ensure!(exit.code == 0);
    ensure!(
        all.lines().count() == 60
            && all
                .lines()
                .enumerate()
                .all(|(n, line)| line == format!("line {n}")),
        "{all}"
    );
    s.down(sandbox).await
}
