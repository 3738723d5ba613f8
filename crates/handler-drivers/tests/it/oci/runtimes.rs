//! The container runtime is a choice.

use super::world::worlds;
use handler_drivers::oci::Flavour;
use handler_engine::driver::Driver;

#[tokio::test]
async fn gvisor_runs_the_guest_where_it_can_and_is_refused_elsewhere() {
    for world in worlds() {
        let can = world.driver.capabilities().await.runtimes;
        if !can.iter().any(|name| name == "runsc") {
            let plan = world.plan(|spec| spec.runtime = Some("runsc".to_owned()));
            world.driver.start(&plan).await.expect_err("refused");
            crate::world::skip("gVisor", "there is no runsc, or this engine cannot use it");
            continue;
        }
        let sandbox = world
            .sandbox(|spec| spec.runtime = Some("runsc".to_owned()))
            .await;
        let name = world.engine.flavour.name();
        // gVisor tells programs that it is this Linux.
        let version = sandbox.out("cat /proc/version").await;
        assert!(version.contains("4.4.0"), "{name}: {version}");
        assert_ne!(sandbox.out("id -u").await, "0");
        sandbox.out("echo x > ~/file; cat ~/file").await;
        assert!(
            world
                .driver
                .is_alive(&sandbox.plan.id, &sandbox.instance)
                .await
        );
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_named_runtime_is_the_one_that_is_used() {
    for world in worlds() {
        if world.engine.flavour != Flavour::Podman {
            continue;
        }
        let sandbox = world
            .sandbox(|spec| spec.runtime = Some("runc".to_owned()))
            .await;
        let container = sandbox.instance.reference["container"]
            .as_str()
            .expect("id")
            .to_owned();
        assert_eq!(
            world
                .engine
                .ask(&["inspect", "--format", "{{.OCIRuntime}}", &container]),
            "runc"
        );
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}
