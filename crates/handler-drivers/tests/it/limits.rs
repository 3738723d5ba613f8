//! Limits: enforced where the host allows it, refused or told where not.

use crate::world::{World, skip};
use handler_engine::driver::{Driver, DriverError};
use handler_types::api::CheckStatus;

async fn can_limit(world: &World, test: &str) -> bool {
    let checks = world.driver.check().await;
    let limits = checks
        .iter()
        .find(|check| check.name == "limits")
        .expect("checked");
    if limits.status != CheckStatus::Ok {
        skip(test, &limits.detail);
    }
    limits.status == CheckStatus::Ok
}

#[tokio::test]
async fn a_memory_hog_is_killed_and_nobody_else() {
    let world = World::new();
    if !can_limit(&world, "a_memory_hog_is_killed_and_nobody_else").await {
        return;
    }
    let other = world.sandbox().await;
    let plan = world.plan(|spec| {
        spec.resources.memory_mib = Some(64);
        spec.strict_limits = true;
    });
    let sandbox = world.start(plan).await.expect("starts");
    assert_eq!(sandbox.instance.warnings, [""; 0]);
    let done = sandbox
        .sh("head -c 300M /dev/zero | tail; echo \"after $?\"")
        .await;
    assert!(done.out.ends_with("after 137\n"), "{done:?}");
    assert_eq!(other.sh("echo fine").await.out, "fine\n");
    other.destroy().await;
    sandbox.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_fork_bomb_hits_its_limit() {
    let world = World::new();
    if !can_limit(&world, "a_fork_bomb_hits_its_limit").await {
        return;
    }
    let plan = world.plan(|spec| spec.resources.pids = Some(16));
    let sandbox = world.start(plan).await.expect("starts");
    let done = sandbox
        .sh("i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done; echo no limit")
        .await;
    assert!(!done.out.contains("no limit"), "{done:?}");
    sandbox.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_processor_quota_slows_down() {
    let world = World::new();
    if !can_limit(&world, "a_processor_quota_slows_down").await {
        return;
    }
    let plan = world.plan(|spec| spec.resources.cpus = Some(0.1));
    let sandbox = world.start(plan).await.expect("starts");
    // Half a second of wall time holds at most 0.05 s of processor time plus one period's slice.
    let script = "python3 -c 'import time; end=time.monotonic()+1\nwhile time.monotonic()<end: pass\nprint(time.process_time()<0.5)'";
    let done = sandbox.sh(script).await;
    assert_eq!(done.out, "True\n", "{done:?}");
    sandbox.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_limit_that_cannot_be_enforced_is_refused_or_told() {
    let world = World::new();
    let checks = world.driver.check().await;
    let limits = checks
        .iter()
        .find(|check| check.name == "limits")
        .expect("checked");
    if limits.status == CheckStatus::Ok {
        skip(
            "a_limit_that_cannot_be_enforced_is_refused_or_told",
            "all limits can be enforced here",
        );
        return;
    }
    assert!(limits.mend.is_some());
    let strict = world.plan(|spec| {
        spec.resources.memory_mib = Some(64);
        spec.strict_limits = true;
    });
    let refused = world.driver.start(&strict).await;
    assert!(
        matches!(refused, Err(DriverError::Unenforceable(_))),
        "{refused:?}"
    );
    let best = world.plan(|spec| spec.resources.memory_mib = Some(64));
    let sandbox = world.start(best).await.expect("starts");
    assert_eq!(sandbox.instance.warnings.len(), 1);
    assert!(
        sandbox.instance.warnings[0].contains("memory"),
        "{:?}",
        sandbox.instance.warnings
    );
    sandbox.destroy().await;
    let silent = world.sandbox().await;
    assert_eq!(silent.instance.warnings, [""; 0]);
    silent.destroy().await;
    world.assert_nothing_left().await;
}
