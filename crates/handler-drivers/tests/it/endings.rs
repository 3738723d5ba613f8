//! Ends: ordered ones, sudden ones, and half-made instances.

use crate::world::{LIMIT, World, until};
use handler_drivers::native::{NativeConfig, NativeDriver};
use handler_engine::driver::Driver;
use std::path::Path;
use std::time::Duration;

fn is_there(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Pids on this host whose environment names this sandbox.
fn members(sandbox: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environ = std::fs::read(entry.path().join("environ")).ok()?;
            let wanted = format!("HANDLER_SANDBOX={sandbox}");
            environ
                .split(|byte| *byte == 0)
                .any(|one| one == wanted.as_bytes())
                .then_some(pid)
        })
        .collect()
}

#[tokio::test]
async fn destroying_ends_a_tree_that_detached_itself() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let done = sandbox
        .sh("setsid sh -c 'setsid sleep 600 & exec sleep 600' >/dev/null 2>&1 & echo started")
        .await;
    assert_eq!(done.out, "started\n");
    let id = sandbox.plan.id.to_string();
    until("two sleepers", || members(&id).len() >= 2).await;
    sandbox.destroy().await;
    assert!(members(&id).is_empty());
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn an_instance_that_ends_by_itself_is_noticed() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let (id, pid) = (sandbox.plan.id.clone(), sandbox.pid());
    assert!(world.driver.is_alive(&id, &sandbox.instance).await);
    let waiting = world.driver.wait(&id, &sandbox.instance);
    let pid_one = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid_one, rustix::process::Signal::KILL).expect("kills");
    tokio::time::timeout(LIMIT, waiting)
        .await
        .expect("is noticed");
    assert!(!world.driver.is_alive(&id, &sandbox.instance).await);
    until("no zombie", || !is_there(pid)).await;
    sandbox.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn an_instance_is_found_and_ended_without_its_reference_and_by_another_daemon() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let config = NativeConfig::new(
        crate::world::guest_program().to_owned(),
        world.folder.path().to_owned(),
    );
    let later = NativeDriver::new(config);
    let found = later.list_owned(&world.owner).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].id, sandbox.plan.id);
    assert!(later.list_owned("somebody-else").await.is_empty());
    assert!(later.is_alive(&sandbox.plan.id, &sandbox.instance).await);
    later
        .destroy(&sandbox.plan.id, "somebody-else", None)
        .await
        .expect("nothing to do");
    assert!(later.is_alive(&sandbox.plan.id, &sandbox.instance).await);
    later
        .destroy(&sandbox.plan.id, &world.owner, None)
        .await
        .expect("is destroyed");
    later
        .destroy(&sandbox.plan.id, &world.owner, None)
        .await
        .expect("again");
    assert!(!later.is_alive(&sandbox.plan.id, &sandbox.instance).await);
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_used_again_pid_is_not_taken_for_the_instance() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let mut stale = sandbox.instance.clone();
    stale.reference["startTicks"] = 1.into();
    stale.reference["pid"] = std::process::id().into();
    assert!(!world.driver.is_alive(&sandbox.plan.id, &stale).await);
    // Must not kill this very process; finds the real one by its arguments.
    let owner = &world.owner;
    world
        .driver
        .destroy(&sandbox.plan.id, owner, Some(&stale))
        .await
        .expect("is destroyed");
    world
        .driver
        .destroy(&sandbox.plan.id, owner, Some(&sandbox.instance))
        .await
        .expect("again");
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn many_starts_and_ends_leave_nothing() {
    let world = World::new();
    let before = std::fs::read_dir("/proc/self/fd").expect("fds").count();
    for _round in 0..200 {
        let plan = world.plan(|_| {});
        let instance = world.driver.start(&plan).await.expect("starts");
        world
            .driver
            .destroy(&plan.id, &world.owner, Some(&instance))
            .await
            .expect("ends");
    }
    world.assert_nothing_left().await;
    let after = || std::fs::read_dir("/proc/self/fd").expect("fds").count();
    // Other tests of this process open files too; a leak would be hundreds.
    assert!(after() < before + 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_given_up_at_any_moment_is_cleared_away() {
    let world = World::new();
    for round in 0..120u64 {
        let plan = world.plan(|_| {});
        // From before the launcher is spawned to after it answered.
        let moment = Duration::from_micros(round * 100);
        let started = tokio::time::timeout(moment, world.driver.start(&plan)).await;
        let instance = started.ok().and_then(Result::ok);
        world
            .driver
            .destroy(&plan.id, &world.owner, instance.as_ref())
            .await
            .expect("ends");
        assert_eq!(
            world.driver.list_owned(&world.owner).await,
            [],
            "round {round}"
        );
    }
    world.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launcher_killed_at_any_moment_leaves_nothing() {
    let world = World::new();
    for round in 0..120u64 {
        let plan = world.plan(|_| {});
        let killer = kill_launcher(plan.id.to_string(), Duration::from_micros(round * 50));
        let (started, ()) = tokio::join!(world.driver.start(&plan), killer);
        if started.is_err() {
            assert_eq!(
                world.driver.list_owned(&world.owner).await,
                [],
                "round {round}"
            );
        }
        world
            .driver
            .destroy(&plan.id, &world.owner, None)
            .await
            .expect("ends");
    }
    world.assert_nothing_left().await;
}

/// Kills the launcher of this sandbox some time after it appeared; nothing when it was too quick.
async fn kill_launcher(id: String, after: Duration) {
    let kill = move || {
        let deadline = std::time::Instant::now() + Duration::from_millis(300);
        while std::time::Instant::now() < deadline {
            let Some(pid) = launcher(&id) else { continue };
            std::thread::sleep(after);
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            return;
        }
    };
    tokio::task::spawn_blocking(kill).await.expect("kills");
}

/// The first process named after this sandbox: its launcher, unless that has ended already.
fn launcher(id: &str) -> Option<i32> {
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let cmdline = std::fs::read(entry.path().join("cmdline")).ok()?;
            let is_it = cmdline
                .split(|byte| *byte == 0)
                .any(|one| one == id.as_bytes());
            is_it.then_some(pid)
        })
}
