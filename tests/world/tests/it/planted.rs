//! Keys are planted, used in every way a program can, with the filter and the daemon killed in between; then
//! everything there is is searched for them. The filter has them, or the search would show nothing; nobody else.

pub(crate) mod everywhere;
mod uses;

use crate::clients::Place;
use crate::clients::origin::Server;
use crate::search::{ArgvWatch, spellings};
use crate::sessions::stage::Stage;
use crate::support::{LONG, has_tools};
use anyhow::{Context as _, ensure};
use everywhere::{Everywhere, Heard};
use handler_testkit::{World, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// A key whose spellings in addresses and JSON differ from it.
fn key() -> String {
    let random = handler_base::random::hex(32);
    format!("pk-{}/+\"\\%={}", &random[..20], &random[20..])
}

/// The filter's process.
pub(crate) fn filter(world: &World) -> anyhow::Result<i32> {
    let members = world.processes();
    let filter = members
        .iter()
        .find(|member| member.argv.get(1).is_some_and(|verb| verb == "egress"));
    Ok(filter.context("a filter")?.pid)
}

fn kill_filter(world: &World) -> anyhow::Result<()> {
    let pid = Pid::from_raw(filter(world)?).context("a pid")?;
    kill_process(pid, Signal::KILL)?;
    Ok(())
}

#[tokio::test]
async fn a_stored_secret_used_in_every_way_is_nowhere_but_in_the_filter() -> anyhow::Result<()> {
    let test = "a_stored_secret_used_in_every_way";
    if !has_tools(test, &["curl", "python3"]) {
        return Ok(());
    }
    let value = key();
    let wanted = spellings(&value);
    let watch = ArgvWatch::start(wanted.clone());
    let mut place = Place::with(Server::Https, &value).await?;
    let heard = Heard::start(&place.world)?;
    uses::all(test, &place).await?;
    let process = uses::keep(&place).await?;
    kill_filter(&place.world)?;
    let again = uses::again(&place);
    eventually("the filter to be back", LONG, || async {
        let done = place.sandbox.sh(&again).await.ok()?;
        (done.exit.code == 0).then_some(())
    })
    .await?;
    place.world.kill9()?;
    place.world.start_daemon().await?;
    let more = Heard::start(&place.world)?;
    uses::all(test, &place).await?;
    let (_, seen) = watch.finish();
    ensure!(seen.is_empty(), "arguments: {seen:?}");
    let everywhere = Everywhere {
        test,
        world: &place.world,
        sandbox: &place.sandbox,
        wanted: &wanted,
        stand_in: &place.phantom,
    };
    everywhere.answers(process).await?;
    for heard in [heard, more] {
        heard.has_not(&wanted, "\"injected\"")?;
    }
    everywhere.processes(filter(&place.world)?).await?;
    everywhere.folders_inside()?;
    place.world.stop_daemon().await?;
    everywhere::files(&place.world, &wanted)?;
    place.world.start_daemon().await?;
    place.end().await
}

#[tokio::test]
async fn a_providers_key_used_by_a_session_is_nowhere_but_in_the_filter() -> anyhow::Result<()> {
    let test = "a_providers_key_used_by_a_session";
    let Some(mut stage) = Stage::set(test, &["pi"]).await? else {
        return Ok(());
    };
    let wanted = spellings(&stage.key);
    let heard = Heard::start(&stage.world)?;
    let mut viewer = stage.open(&stage.request("pi")).await?;
    viewer.turn("PLAN:text:Before.").await?;
    kill_filter(&stage.world)?;
    stage.world.kill9()?;
    stage.world.start_daemon().await?;
    let mut viewer = stage.attach(&viewer.id.clone(), 0).await?;
    let (said, _) = viewer.turn("PLAN:text:After.").await?;
    ensure!(said == "After.", "{said}");
    for message in &viewer.seen {
        let text = message.to_string();
        ensure!(!crate::search::holds(text.as_bytes(), &wanted), "{text}");
    }
    let view = stage.client().session(&viewer.id).await?;
    let id = view.sandbox_id.context("a sandbox")?;
    let sandbox = crate::support::Sandbox {
        client: stage.client(),
        id: id.to_string(),
    };
    let everywhere = Everywhere {
        test,
        world: &stage.world,
        sandbox: &sandbox,
        wanted: &wanted,
        stand_in: &stage.key[..13],
    };
    everywhere.answers(1).await?;
    heard.has_not(&wanted, "")?;
    everywhere.processes(filter(&stage.world)?).await?;
    everywhere.folders_inside()?;
    stage.world.stop_daemon().await?;
    everywhere::files(&stage.world, &wanted)
}
