//! From start to end: stop keeps, destroy removes, and whatever a crash left is found.

use super::world::worlds;
use crate::world::LIMIT;
use handler_engine::driver::{Driver, DriverError};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_stopped_sandbox_starts_again_with_its_home_and_another_guest() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        sandbox.out("echo kept > ~/file; sleep 1000 &").await;
        let (plan, driver) = (sandbox.plan.clone(), &world.driver);
        sandbox.guest.close("stopping");
        driver
            .stop(&plan.id, &plan.owner, Some(&sandbox.instance))
            .await
            .expect("stops");
        driver
            .stop(&plan.id, &plan.owner, Some(&sandbox.instance))
            .await
            .expect("again");
        assert!(!driver.is_alive(&plan.id, &sandbox.instance).await);
        let owned = driver.list_owned(&world.owner).await;
        assert_eq!(
            owned.len(),
            1,
            "{owned:?} {}",
            world.engine.ask(&["ps", "-a", "--no-trunc"])
        );
        assert!(!owned[0].running, "{owned:?}");
        let container = sandbox.instance.reference["container"].clone();
        let again = world.start(plan).await.expect("starts again");
        assert_eq!(
            again.instance.reference["container"], container,
            "the same container"
        );
        assert_eq!(again.out("cat ~/file").await, "kept");
        assert!(world.driver.list_owned(&world.owner).await[0].running);
        // Another spec is another container.
        let mut plan = again.plan.clone();
        again.guest.close("stopping");
        driver
            .stop(&plan.id, &plan.owner, Some(&again.instance))
            .await
            .expect("stops");
        plan.spec.env.insert("NEW".to_owned(), "value".to_owned());
        let changed = world.start(plan).await.expect("starts changed");
        assert_ne!(changed.instance.reference["container"], container);
        assert_eq!(changed.out("echo $NEW; cat ~/file").await, "value\nkept");
        changed.destroy().await;
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn what_a_container_printed_is_its_log() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        let printed = "for i in 1 2 3; do echo line $i >/proc/1/fd/2; done";
        sandbox.out(printed).await;
        let id = &sandbox.plan.id;
        // The engine's monitor writes the log when it comes to it.
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let last = world.driver.log(id, &sandbox.instance, 2).await;
            let last = last.expect("a log");
            if last == ["line 2", "line 3"] {
                break;
            }
            assert!(Instant::now() < until, "{last:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        sandbox.destroy().await;
    }
}

#[tokio::test]
async fn its_end_is_seen_at_once_and_everything_in_it_is_gone() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        // An orphan is taken in by PID 1, and its end is noticed.
        sandbox
            .out("(sleep 0.05 &) ; sleep 0.3; ps | grep -v grep | grep -c 'Z' || true")
            .await;
        assert_eq!(
            sandbox.out("ps -o stat,args | grep '^Z' | wc -l").await,
            "0"
        );
        let process = sandbox.instance.reference["process"]["pid"]
            .as_i64()
            .expect("PID 1 is visible");
        let (id, instance) = (sandbox.plan.id.clone(), sandbox.instance.clone());
        let ended = world.driver.wait(&id, &instance);
        tokio::pin!(ended);
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(100), &mut ended)
                .await
                .is_err()
        );
        assert!(
            world
                .driver
                .is_alive(&sandbox.plan.id, &sandbox.instance)
                .await
        );
        let killed = std::process::Command::new("kill")
            .args(["-9", &process.to_string()])
            .status()
            .expect("kill");
        assert!(killed.success());
        tokio::time::timeout(LIMIT, ended).await.expect("noticed");
        assert!(
            !world
                .driver
                .is_alive(&sandbox.plan.id, &sandbox.instance)
                .await
        );
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn what_a_crash_left_is_found_by_another_daemon_and_removed() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        sandbox.guest.close("the daemon dies");
        let id = sandbox.plan.id.clone();
        world.driver.api().shutdown().await;
        let other = world.another_driver();
        let owned = other.list_owned(&world.owner).await;
        assert_eq!(
            (owned.len(), &owned[0].id, owned[0].running),
            (1, &id, true)
        );
        assert!(other.list_owned("somebody-else").await.is_empty());
        assert!(other.is_alive(&id, &sandbox.instance).await);
        other
            .destroy(&id, "somebody-else", None)
            .await
            .expect("nothing of theirs");
        assert!(other.is_alive(&id, &sandbox.instance).await);
        other
            .destroy(&id, &world.owner, None)
            .await
            .expect("removed");
        other.destroy(&id, &world.owner, None).await.expect("again");
        other
            .destroy(&id, &world.owner, Some(&sandbox.instance))
            .await
            .expect("and again");
        assert!(other.list_owned(&world.owner).await.is_empty());
        other.api().shutdown().await;
    }
}

#[tokio::test]
async fn pause_freezes_where_the_engine_can_and_is_refused_elsewhere() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        let (id, instance, driver) = (&sandbox.plan.id, &sandbox.instance, &world.driver);
        let can = driver.capabilities().await.pause;
        let paused = driver.pause(id, instance).await;
        if !can {
            assert!(
                matches!(paused, Err(DriverError::Unenforceable(_))),
                "{paused:?}"
            );
            sandbox.destroy().await;
            world.assert_nothing_left().await;
            continue;
        }
        paused.expect("pauses");
        driver.pause(id, instance).await.expect("again");
        assert!(driver.is_paused(id, instance).await);
        assert!(driver.is_alive(id, instance).await);
        assert!(driver.list_owned(&world.owner).await[0].running);
        driver.resume(id, instance).await.expect("resumes");
        driver.resume(id, instance).await.expect("again");
        assert!(!driver.is_paused(id, instance).await);
        assert_eq!(sandbox.out("echo awake").await, "awake");
        driver.pause(id, instance).await.expect("pauses");
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}
