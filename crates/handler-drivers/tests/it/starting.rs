//! Starts that are refused, and what they leave: nothing.

use crate::world::{World, guest_program};
use handler_drivers::native::{NativeConfig, NativeDriver};
use handler_engine::driver::{Driver, DriverError};
use handler_types::api::CheckStatus;
use handler_types::sandbox::MountSpec;
use std::os::unix::fs::symlink;

fn refused<T>(result: Result<T, DriverError>) -> DriverError {
    match result {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_missing_mount_source_is_refused_by_name_and_leaves_nothing() {
    let world = World::new();
    let plan = world.plan(|spec| {
        spec.mounts.push(MountSpec {
            source: "/proc/nonexistent/source".into(),
            target: "/data".into(),
            read_only: true,
        });
    });
    let runtime = plan.runtime_dir.clone();
    let error = refused(world.start(plan).await);
    assert!(matches!(error, DriverError::Invalid(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("/proc/nonexistent/source: it does not exist"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(runtime).expect("reads").count(), 0);
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_link_put_in_place_of_a_source_is_not_followed() {
    let world = World::new();
    let real = world.dir("real");
    let link = world
        .folder
        .path()
        .canonicalize()
        .expect("path")
        .join("link");
    symlink(&real, &link).expect("links");
    for source in [link.clone(), link.join("below")] {
        std::fs::create_dir_all(real.join("below")).expect("makes");
        let text = source.to_str().expect("utf-8").to_owned();
        let plan = world.plan(|spec| spec.scope = Some(text));
        let error = refused(world.start(plan).await);
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn links_left_in_the_home_do_not_lead_a_later_start_outside() {
    let world = World::new();
    let outside = world.dir("outside");
    let plan = world.plan(|spec| {
        spec.files.push(handler_types::sandbox::FileSpec {
            target: "/home/agent/.config/fixed".into(),
            content: "x".into(),
            mode: 0o644,
            writable: false,
        });
    });
    std::fs::create_dir_all(plan.dir.join("home")).expect("makes");
    symlink(&outside, plan.dir.join("home/.config")).expect("links");
    let error = refused(world.start(plan).await);
    assert!(error.to_string().contains("/home/agent/.config"), "{error}");
    assert_eq!(std::fs::read_dir(outside).expect("reads").count(), 0);
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_guest_program_that_is_none_is_the_hosts_fault() {
    let world = World::new();
    for program in ["/proc/nonexistent/guest", "/bin/true"] {
        let config = NativeConfig::new(program.into(), world.folder.path().to_owned());
        let driver = NativeDriver::new(config);
        let error = refused(driver.start(&world.plan(|_| {})).await);
        assert!(matches!(error, DriverError::HostNotReady(_)), "{error:?}");
    }
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn wrong_specs_are_refused_before_anything_is_made() {
    let world = World::new();
    let refuse = |change: fn(&mut handler_types::sandbox::SandboxSpec)| {
        world
            .driver
            .accept(&world.plan(change).spec)
            .expect_err("is refused")
    };
    assert!(matches!(
        refuse(|spec| spec.backend = "podman".into()),
        DriverError::Invalid(_)
    ));
    assert!(matches!(
        refuse(|spec| spec.resources.memory_mib = Some(1)),
        DriverError::Invalid(_)
    ));
    assert!(matches!(
        refuse(|spec| spec.resources.cpus = Some(0.0)),
        DriverError::Invalid(_)
    ));
    assert!(matches!(
        refuse(|spec| spec.resources.pids = Some(1)),
        DriverError::Invalid(_)
    ));
    assert!(matches!(
        refuse(|spec| spec.home = "home".into()),
        DriverError::Invalid(_)
    ));
    assert!(matches!(
        refuse(|spec| spec.scope = Some("/usr".into())),
        DriverError::Invalid(_)
    ));
}

#[tokio::test]
async fn the_hosts_checks_find_this_host_fit() {
    let world = World::new();
    let checks = world.driver.check().await;
    for name in [
        "kernel",
        "user namespaces",
        "mounts",
        "seccomp",
        "limits",
        "disk space",
        "node",
    ] {
        assert!(
            checks.iter().any(|check| check.name == name),
            "{name} is missing"
        );
    }
    for check in checks {
        assert_ne!(check.status, CheckStatus::Failed, "{check:?}");
    }
}

#[tokio::test]
async fn a_sandbox_keeps_its_home_over_a_second_start_and_its_seeded_files_too() {
    let world = World::new();
    let plan = world.plan(|spec| {
        spec.files.push(handler_types::sandbox::FileSpec {
            target: "/home/agent/.seed".into(),
            content: "first".into(),
            mode: 0o600,
            writable: true,
        });
    });
    let sandbox = world.start(plan.clone()).await.expect("starts");
    let before = sandbox
        .sh("cat ~/.seed /etc/machine-id; echo changed > ~/.seed; echo x > /tmp/kept")
        .await;
    sandbox.destroy().await;
    let sandbox = world.start(plan).await.expect("starts again");
    let after = sandbox
        .sh("cat ~/.seed /etc/machine-id; ls /tmp/kept")
        .await;
    assert_eq!(before.out.replace("first", "changed\n"), after.out);
    sandbox.destroy().await;
    assert!(guest_program().exists());
}
