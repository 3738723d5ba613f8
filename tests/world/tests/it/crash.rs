//! The daemon is killed at whatever it does: nothing is doubled or left over.

use crate::support::{LONG, Sandbox, alias, filtered, is_soak, project, say, text, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{HttpOrigin, Leftover, World, eventually};
use handler_types::sandbox::{CreateSandbox, SandboxState, SandboxView};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How many times the daemon is killed in each of the two tests.
fn points() -> u64 {
    if is_soak() { 220 } else { 25 }
}

/// A time below `most`, by chance.
pub(crate) fn chance(most: Duration) -> Duration {
    let drawn = u32::from_be_bytes(handler_base::random::bytes());
    most.mul_f64(f64::from(drawn) / f64::from(u32::MAX))
}

/// All sandboxes, once none is on its way to another state.
async fn settled(world: &World) -> anyhow::Result<Vec<SandboxView>> {
    eventually("sandboxes to settle", LONG, || async {
        let page = world.client().sandboxes("", 500).await.ok()?;
        let rest = [
            SandboxState::Running,
            SandboxState::Stopped,
            SandboxState::Failed,
        ];
        page.items
            .iter()
            .all(|view| rest.contains(&view.state))
            .then_some(page.items)
    })
    .await
}

/// Whether a process is the first one of its namespace.
fn is_first(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    inside.is_some_and(|pids| pids.split_whitespace().nth(1) == Some("1"))
}

/// Waits until only what belongs to these running sandboxes exists: three folders and one tree each.
async fn only(world: &World, running: &BTreeSet<String>) -> anyhow::Result<()> {
    let look = || {
        let mut strange = Vec::new();
        let mut roots = BTreeSet::new();
        for left in world.leftovers() {
            let is_known = match &left {
                Leftover::Folder(path) => running.iter().any(|id| path.ends_with(id)),
                // One for each, and one around them all.
                Leftover::Cgroup(path) => running
                    .iter()
                    .any(|id| path.ends_with(id) || path.join(id).exists()),
                // The guest names its sandbox; what it runs is looked at through it.
                Leftover::Process(member) => {
                    let named = member.argv.iter().find(|arg| running.contains(*arg));
                    let is_guest = member.argv.iter().any(|arg| arg.contains("handler-guest"));
                    match named {
                        Some(id) if is_first(member.pid) => roots.insert(id.clone()),
                        Some(_) => true,
                        None => !is_guest,
                    }
                }
                Leftover::Mount(_) => false,
            };
            if !is_known {
                strange.push(left.to_string());
            }
        }
        (strange, roots.len())
    };
    let mut last = (Vec::new(), 0);
    let clean = eventually("nothing strange", LONG, || {
        last = look();
        let is_clean = last.0.is_empty() && last.1 == running.len();
        std::future::ready(is_clean.then_some(()))
    })
    .await;
    clean.with_context(|| {
        format!(
            "{} of {} run; strange: {:#?}",
            last.1,
            running.len(),
            last.0
        )
    })
}

#[tokio::test]
async fn killed_while_making_a_sandbox_the_next_daemon_finishes_or_undoes_it() -> anyhow::Result<()>
{
    let mut world = world().await?;
    let control = Sandbox::plain(&world).await?;
    control.out("echo kept > ~/file").await?;
    let spec = CreateSandbox {
        scope: Some(text(project(&world, "app")?)?),
        ..Default::default()
    };
    let begun = Instant::now();
    let probe = Sandbox::up(&world, &spec).await?;
    let usual = begun.elapsed();
    world.client().delete_sandbox(&probe.id).await?;
    let (mut made, mut unmade) = (0, 0);
    for round in 0..points() {
        let client = world.client();
        let named = CreateSandbox {
            name: Some(format!("round{round}")),
            ..spec.clone()
        };
        let making = tokio::spawn(async move { client.create_sandbox(&named).await });
        tokio::time::sleep(chance(usual.mul_f64(1.2))).await;
        world.kill9()?;
        let answered = making.await?.is_ok();
        world
            .start_daemon()
            .await
            .with_context(|| format!("round {round}"))?;
        let all = settled(&world).await?;
        let of_round: Vec<_> = all
            .iter()
            .filter(|view| view.name == format!("round{round}"))
            .collect();
        ensure!(
            of_round.len() <= 1 && all.len() == 1 + of_round.len(),
            "round {round}: {all:?}"
        );
        ensure!(
            !answered || of_round.len() == 1,
            "round {round}: it was said to run and is gone"
        );
        let mut running = BTreeSet::from([control.id.clone()]);
        if let Some(view) = of_round.first() {
            made += 1;
            ensure!(
                view.state == SandboxState::Running,
                "round {round}: {view:?}"
            );
            running.insert(view.id.to_string());
            let sandbox = Sandbox {
                client: world.client(),
                id: view.id.to_string(),
            };
            assert_eq!(sandbox.out("echo on").await?, "on", "round {round}");
        } else {
            unmade += 1;
        }
        only(&world, &running)
            .await
            .with_context(|| format!("round {round}"))?;
        if let Some(view) = of_round.first() {
            world.client().delete_sandbox(view.id.as_str()).await?;
        }
        assert_eq!(control.out("cat ~/file").await?, "kept");
    }
    say(&format!(
        "killed {} times while making: {made} made, {unmade} undone",
        points()
    ));
    world.client().delete_sandbox(&control.id).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn killed_while_removing_a_sandbox_the_next_daemon_removes_it() -> anyhow::Result<()> {
    let mut world = world().await?;
    let control = Sandbox::plain(&world).await?;
    let origin = HttpOrigin::start().await?;
    let spec = CreateSandbox {
        network: Some(filtered(&[alias(origin.port())])?),
        ..Default::default()
    };
    let probe = Sandbox::up(&world, &spec).await?;
    let begun = Instant::now();
    world.client().delete_sandbox(&probe.id).await?;
    let usual = begun.elapsed();
    let mut unbegun = 0;
    for round in 0..points() {
        let sandbox = Sandbox::up(&world, &spec).await?;
        sandbox
            .out("mkdir -p ~/a/b/c && touch ~/a/b/c/d && (setsid sleep 900 &) ; true")
            .await?;
        let (client, id) = (world.client(), sandbox.id.clone());
        let removing = tokio::spawn(async move { client.delete_sandbox(&id).await });
        tokio::time::sleep(chance(usual.mul_f64(1.2))).await;
        world.kill9()?;
        let answered = removing.await?.is_ok();
        world
            .start_daemon()
            .await
            .with_context(|| format!("round {round}"))?;
        let all = settled(&world).await?;
        let mut running = BTreeSet::from([control.id.clone()]);
        if all.iter().any(|view| view.id.as_str() == sandbox.id) {
            // The wish had not been written down: the sandbox is whole.
            ensure!(!answered, "round {round}: it was said to be gone");
            running.insert(sandbox.id.clone());
            assert_eq!(sandbox.out("ls ~/a/b/c").await?, "d", "round {round}");
            unbegun += 1;
        }
        ensure!(all.len() == running.len(), "round {round}: {all:?}");
        only(&world, &running)
            .await
            .with_context(|| format!("round {round}"))?;
        if running.len() == 2 {
            world.client().delete_sandbox(&sandbox.id).await?;
        }
        assert_eq!(control.out("echo on").await?, "on");
    }
    say(&format!(
        "killed {} times while removing: {unbegun} had not begun",
        points()
    ));
    world.client().delete_sandbox(&control.id).await?;
    world.assert_clean(LONG).await
}
