//! How locked down a container is, and which limits hold.

use super::world::worlds;
use handler_engine::driver::{Driver, DriverError};
use handler_types::sandbox::{Confinement, Resources};

#[tokio::test]
async fn strict_has_no_capabilities_and_gains_no_privileges() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        let status = sandbox.out("cat /proc/self/status").await;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(field(name), "0000000000000000", "{name}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("Seccomp:"), "2");
        assert_ne!(sandbox.sh("mount -t tmpfs none /tmp").await.code, 0);
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn nested_has_its_devices_and_files_and_privileged_everything_but_a_writable_root() {
    for world in worlds() {
        if !world.driver.capabilities().await.nested {
            crate::world::skip("nested confinement", "the engine or the host cannot");
            continue;
        }
        for confinement in [Confinement::Nested, Confinement::Privileged] {
            let sandbox = world.sandbox(|spec| spec.confinement = confinement).await;
            let name = world.engine.flavour.name();
            assert_eq!(
                sandbox.out("ls /dev/fuse /dev/net/tun | wc -l").await,
                "2",
                "{name} {confinement:?}"
            );
            assert!(sandbox.out("cat /etc/subuid").await.starts_with("agent:"));
            assert!(
                sandbox
                    .out("cat /etc/containers/containers.conf")
                    .await
                    .contains("cgroupfs")
            );
            assert_ne!(sandbox.out("id -u").await, "0");
            assert_ne!(sandbox.sh("echo x > /etc/new").await.code, 0);
            let status = sandbox.out("cat /proc/self/status").await;
            assert!(
                !status.contains("CapBnd:\t0000000000000000"),
                "{name} {confinement:?}: {status}"
            );
            sandbox.destroy().await;
        }
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn limits_hold_or_are_refused_or_said() {
    for world in worlds() {
        let resources = Resources {
            memory_mib: Some(64),
            cpus: Some(0.5),
            pids: Some(50),
        };
        let can = world.driver.capabilities().await;
        let plan = world.plan(|spec| {
            spec.resources = resources;
            spec.strict_limits = true;
        });
        if !(can.memory_limit && can.cpu_limit && can.pids_limit) {
            let refused = world.driver.start(&plan).await;
            assert!(
                matches!(refused, Err(DriverError::Unenforceable(_))),
                "{refused:?}"
            );
            let sandbox = world.sandbox(|spec| spec.resources = resources).await;
            assert_eq!(
                sandbox.instance.warnings.len(),
                3,
                "{:?}",
                sandbox.instance.warnings
            );
            sandbox.destroy().await;
            world.assert_nothing_left().await;
            continue;
        }
        let sandbox = world.start(plan).await.expect("starts");
        let hungry = sandbox
            .sh("dd if=/dev/zero of=/dev/null bs=200M count=1")
            .await;
        assert_ne!(hungry.code, 0, "{hungry:?}");
        assert_eq!(sandbox.out("echo lives").await, "lives");
        let many = sandbox.sh("for i in $(echo 1 2 3 4 5 6 7 8 9 10); do for j in $(echo 1 2 3 4 5 6 7 8 9 10); do sleep 2 & done; done; wait").await;
        assert!(many.err.contains("fork") || many.code != 0, "{many:?}");
        let stats = world
            .driver
            .stats(&sandbox.plan.id, &sandbox.instance)
            .await;
        assert!(
            stats
                .memory_bytes
                .is_some_and(|bytes| bytes > 0 && bytes <= 64 << 20),
            "{stats:?}"
        );
        assert!(stats.processes.is_some_and(|count| count >= 1), "{stats:?}");
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}

/// What is asked for besides the usual.
type Change = Box<dyn Fn(&mut handler_types::sandbox::SandboxSpec)>;

#[tokio::test]
async fn what_cannot_be_is_refused_and_leaves_nothing() {
    for world in worlds() {
        let attempts: [(&str, Change); 6] = [
            (
                "runtime",
                Box::new(|spec| spec.runtime = Some("no-such-runtime".to_owned())),
            ),
            ("image", Box::new(|spec| spec.image = None)),
            (
                "gone image",
                Box::new(|spec| {
                    spec.image.as_mut().expect("image").id = format!("sha256:{}", "0".repeat(64));
                }),
            ),
            (
                "display",
                Box::new(|spec| spec.display = Some("/etc/passwd".to_owned())),
            ),
            (
                "twice",
                Box::new(|spec| spec.writable_paths = vec!["/x".to_owned(), "/x".to_owned()]),
            ),
            (
                "newline",
                Box::new(|spec| {
                    spec.env.insert("A".to_owned(), "a\nb".to_owned());
                }),
            ),
        ];
        for (what, change) in attempts {
            let plan = world.plan(|spec| change(spec));
            let refused = world.driver.start(&plan).await;
            let fits = matches!(
                refused,
                Err(DriverError::Unenforceable(_) | DriverError::Invalid(_))
            );
            assert!(
                fits,
                "{what} on {}: {refused:?}",
                world.engine.flavour.name()
            );
        }
        world.assert_nothing_left().await;
    }
}
