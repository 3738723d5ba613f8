//! C.3: one socket, one sandbox, one agent process, whichever ends first.

use super::stage::{Plain, Talk};
use crate::sessions::stage::LONG;
use anyhow::{Context as _, ensure};
use handler_testkit::eventually;

#[tokio::test]
async fn close_and_the_sandbox_is_gone() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("close").await? else {
        return Ok(());
    };
    let first = plain.open().await?;
    let second = plain.open().await?;
    let page = plain.stage.client().sandboxes("", 10).await?;
    ensure!(page.items.len() == 2, "one each: {page:#?}");
    first.socket.close().await;
    drop(second);
    plain.no_sandbox().await?;
    // Gone before the agent runs: nothing stays behind either.
    let early = Talk::connect(&plain.stage.client(), &plain.path("")).await?;
    drop(early);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    plain.no_sandbox().await?;
    plain.stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn the_agent_exits_and_the_socket_is_closed_with_1011() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("agent exit").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    talk.prompt("exit 7").await?;
    let closed = talk.closed().await?;
    ensure!(
        closed == (1011, "agent exited (7)".to_owned()),
        "{closed:?}"
    );
    plain.no_sandbox().await?;
    // What it said on standard error is in the daemon's log only.
    ensure!(
        !talk
            .seen
            .iter()
            .any(|m| m.to_string().contains("standard error"))
    );
    let log = plain.stage.world.daemon_tail();
    ensure!(log.contains("a word on standard error"), "{log}");
    plain.stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn an_agent_that_is_removed_takes_its_connections_along() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("a removed agent").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    let id = plain.agent.id.as_str();
    plain.stage.client().delete_agent(id).await?;
    ensure!(talk.closed().await?.0 == 1011);
    plain.no_sandbox().await?;
    plain.stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn a_daemon_that_stops_or_is_killed_leaves_no_orphan() -> anyhow::Result<()> {
    let Some(mut plain) = Plain::set("no orphan").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    plain.stage.world.stop_daemon().await?;
    ensure!(talk.closed().await?.0 == 1001);
    let sandboxes = plain
        .stage
        .world
        .scratch()
        .folder("state")
        .join("sandboxes");
    let left = std::fs::read_dir(&sandboxes).context("sandboxes")?.count();
    ensure!(left == 0, "the daemon took {left} along only in part");
    plain.stage.world.start_daemon().await?;
    let _talk = plain.open().await?;
    plain.stage.world.kill9()?;
    plain.stage.world.start_daemon().await?;
    eventually("the next daemon to clear up", LONG, || async {
        plain.no_sandbox().await.ok()
    })
    .await?;
    plain.stage.world.assert_clean(LONG).await
}
