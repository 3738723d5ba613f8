//! What is inside a container, and as whom one is there.

use super::world::worlds;
use handler_types::image::{ImageMount, ImageUse};
use handler_types::sandbox::{FileSpec, MountSpec};

#[tokio::test]
async fn commands_run_as_an_ordinary_user_in_the_project_folder_and_the_home_is_theirs() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        let uid = if rustix::process::geteuid().is_root() {
            4321
        } else {
            rustix::process::geteuid().as_raw()
        };
        assert_eq!(sandbox.out("id -u").await, uid.to_string());
        assert_eq!(sandbox.out("id -un").await, "agent");
        let scope = sandbox.plan.spec.scope.clone().expect("scope");
        assert_eq!(sandbox.out("pwd").await, scope);
        assert_eq!(
            sandbox.out("echo $HOME; cd; pwd").await,
            "/home/agent\n/home/agent"
        );
        sandbox
            .out("echo made > file; mkdir ~/deep; echo x > ~/deep/file")
            .await;
        use std::os::unix::fs::MetadataExt;
        let made = std::fs::metadata(std::path::Path::new(&scope).join("file")).expect("made");
        assert_eq!(made.uid(), uid);
        assert_eq!(
            sandbox
                .out("cat /proc/1/comm; tr '\\0' '\\n' < /proc/1/environ | grep HANDLER_SANDBOX")
                .await,
            format!("init\nHANDLER_SANDBOX={}", sandbox.plan.id)
        );
        assert_eq!(
            sandbox
                .out("echo $FROM_IMAGE; grep imageuser /etc/passwd")
                .await,
            "yes\nimageuser:x:777:777::/:/bin/sh"
        );
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn only_what_was_asked_for_is_there_and_only_writable_where_asked() {
    for world in worlds() {
        let shown = world.dir("shown");
        std::fs::write(shown.join("there"), "seen").expect("writes");
        let hidden = world.dir("hidden");
        let sandbox = world
            .sandbox(|spec| {
                spec.mounts.push(MountSpec {
                    source: shown.to_str().expect("utf-8").to_owned(),
                    target: "/home/agent/deep/inside".to_owned(),
                    read_only: true,
                });
                spec.writable_paths = vec!["/opt/cache".to_owned(), "/opt/with".to_owned()];
                spec.path_append = vec!["/opt/tools".to_owned()];
                spec.image_mounts = if world.engine.flavour.name() == "podman" {
                    vec![ImageMount {
                        image: ImageUse {
                            reference: "test".to_owned(),
                            id: world.engine.image.clone(),
                        },
                        target: "/opt/other".to_owned(),
                    }]
                } else {
                    Vec::new()
                };
                let file = |target: &str, writable| FileSpec {
                    target: target.to_owned(),
                    content: format!("for {target}"),
                    mode: 0o640,
                    writable,
                };
                spec.files = vec![
                    file("/etc/made", false),
                    file("/home/agent/.config/tool/settings", true),
                    file("/home/agent/.config/tool/fixed", false),
                    file("/opt/with/inner/seed", true),
                    file("/usr/changeable", true),
                ];
            })
            .await;
        assert_eq!(
            sandbox
                .out("cat deep/inside/there 2>/dev/null || cat ~/deep/inside/there")
                .await,
            "seen"
        );
        for denied in [
            "echo x > ~/deep/inside/new",
            "echo x > /etc/new",
            "echo x > /new",
            "echo x > /etc/made",
            "echo x > ~/.config/tool/fixed",
            "rm /usr/changeable",
            "echo x > /run/handler/x",
            "echo x > /etc/passwd",
        ] {
            assert_ne!(
                sandbox.sh(denied).await.code,
                0,
                "{denied} on {}",
                world.engine.flavour.name()
            );
        }
        for allowed in [
            "echo x > ~/deep/beside",
            "echo x > /opt/cache/a",
            "mkdir /opt/with/inner/more",
            "echo x > /tmp/a",
            "echo x > ~/.config/tool/beside",
            "echo more >> ~/.config/tool/settings",
            "echo x >> /usr/changeable",
            "echo x >> /opt/with/inner/seed",
            "echo '#!/bin/sh' > /tmp/run; chmod +x /tmp/run; /tmp/run",
        ] {
            assert_eq!(
                sandbox.sh(allowed).await.code,
                0,
                "{allowed} on {}",
                world.engine.flavour.name()
            );
        }
        assert_eq!(sandbox.out("cat /etc/made").await, "for /etc/made");
        assert_eq!(sandbox.out("echo $PATH").await, "/bin:/usr/bin:/opt/tools");
        assert_ne!(
            sandbox.sh(&format!("ls {}", hidden.display())).await.code,
            0
        );
        if world.engine.flavour.name() == "podman" {
            assert_eq!(
                sandbox.out("cat /opt/other/opt/data/file").await,
                "of the image"
            );
            assert_ne!(sandbox.sh("echo x > /opt/other/new").await.code, 0);
        }
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn without_network_there_is_nothing_but_loopback() {
    for world in worlds() {
        let sandbox = world.sandbox(|_| {}).await;
        assert_eq!(sandbox.out("ls /sys/class/net").await, "lo");
        assert_eq!(sandbox.out("cat /proc/net/route | wc -l").await, "1");
        assert_eq!(
            sandbox.sh("echo $HTTP_PROXY$https_proxy").await.out.trim(),
            ""
        );
        assert_eq!(
            sandbox.out("cat /etc/resolv.conf | grep nameserver").await,
            "nameserver 127.0.0.1"
        );
        sandbox.destroy().await;
        world.assert_nothing_left().await;
    }
}
