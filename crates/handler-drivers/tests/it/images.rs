//! Sandboxes whose root is an image, and images shown in sandboxes, for real.

use crate::world::{LIMIT, Sandbox, World, skip};
use handler_engine::driver::{Driver, DriverError};
use handler_engine::images::{ImageError, ImageStore};
use handler_types::image::{ImageConfig, ImageMount, ImageUse};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Static, so that it runs without anything else.
const BUSYBOX: &str = "/bin/busybox";
const APPLETS: [&str; 19] = [
    "sh", "cat", "ls", "echo", "id", "touch", "mkdir", "rm", "mount", "stat", "grep", "sleep",
    "test", "pwd", "env", "wc", "readlink", "hostname", "find",
];

/// Whether images can be tried here; says why not.
async fn can(world: &World, name: &str) -> bool {
    if !Path::new(BUSYBOX).exists() {
        skip(name, "no /bin/busybox (package busybox-static)");
        return false;
    }
    if !world.driver.capabilities().await.images {
        skip(name, "this kernel has no overlayfs for user namespaces");
        return false;
    }
    true
}

fn store(world: &World) -> Arc<dyn ImageStore> {
    world.driver.images().expect("a store")
}

/// Makes an archive of a small root file system; `more` is added to it.
fn archive(world: &World, name: &str, more: &[(&str, &str)]) -> std::path::PathBuf {
    let root = world.dir(&format!("rootfs-{name}"));
    for folder in ["bin", "etc", "data", "var/tmp", "usr/bin"] {
        std::fs::create_dir_all(root.join(folder)).expect("folder");
    }
    std::fs::copy(BUSYBOX, root.join("bin/busybox")).expect("busybox");
    for applet in APPLETS {
        let link = root.join("bin").join(applet);
        if !link.exists() {
            std::os::unix::fs::symlink("busybox", link).expect("link");
        }
    }
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/:/bin/sh\ndaemon:x:1:1::/:/x\n",
    )
    .expect("passwd");
    std::fs::write(root.join("etc/image"), name).expect("mark");
    for (path, text) in more {
        std::fs::write(root.join(path), text).expect("file");
    }
    let tar = world.folder.path().join(format!("{name}.tar"));
    let done = std::process::Command::new("tar")
        .arg("-cf")
        .arg(&tar)
        .arg("-C")
        .arg(&root)
        .arg(".")
        .status()
        .expect("tar runs");
    assert!(done.success());
    tar
}

async fn import(world: &World, name: &str, more: &[(&str, &str)]) -> ImageUse {
    let tar = archive(world, name, more);
    let config = ImageConfig {
        env: [
            ("PATH", "/bin:/usr/bin"),
            ("FROM_IMAGE", "yes"),
            ("HOME", "/nowhere"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        ..ImageConfig::default()
    };
    let (lines, mut said) = mpsc::channel(64);
    let drain = async move { while said.recv().await.is_some() {} };
    let store = store(world);
    let cancel = CancellationToken::new();
    let import = async {
        store
            .import(&tar, Some(name), &config, &lines, &cancel)
            .await
    };
    let drain = tokio::spawn(drain);
    let id = import.await.expect("imports");
    drop(lines);
    drain.await.expect("drained");
    ImageUse {
        reference: name.to_owned(),
        id,
    }
}

async fn start<'w>(world: &'w World, image: &ImageUse) -> Sandbox<'w> {
    let image = image.clone();
    let plan = world.plan(|spec| {
        spec.image = Some(image);
        spec.path_append = vec!["/opt/x/bin".to_owned()];
    });
    world.start(plan).await.expect("starts")
}

#[tokio::test]
async fn an_image_is_the_root_and_nothing_of_the_hosts_system_is_there() {
    let world = World::new();
    if !can(&world, "an_image_is_the_root").await {
        return;
    }
    let image = import(&world, "base", &[]).await;
    let sandbox = start(&world, &image).await;
    let done = sandbox
        .sh("cat /etc/image; echo; ls /usr /usr/bin; test -e /lib || echo; echo $PATH $FROM_IMAGE $HOME $SHELL")
        .await;
    assert!(
        done.out.starts_with("base\n/usr:\nbin\n\n/usr/bin:\n\n"),
        "{done:?}"
    );
    assert!(
        done.out
            .contains("/home/agent/.local/bin:/bin:/usr/bin:/opt/x/bin yes /home/agent /bin/sh"),
        "{done:?}"
    );
    let who = sandbox
        .sh("id -un; cat /etc/passwd; cat /etc/hostname")
        .await;
    assert!(who.out.starts_with("agent\nagent:x:"), "{who:?}");
    assert!(
        who.out.contains("\ndaemon:x:1:1:"),
        "the image's names stay: {who:?}"
    );
    let scope = sandbox.plan.spec.scope.clone().expect("scope");
    let wrote = sandbox.sh("pwd; echo hi > f; echo h > ~/kept; echo t > /tmp/t; echo t > /var/tmp/t; cat /tmp/t /var/tmp/t").await;
    assert_eq!(wrote.out, format!("{scope}\nt\nt\n"), "{wrote:?}");
    let bundle = sandbox
        .sh("wc -c < $SSL_CERT_FILE; cat /etc/ssl/certs/ca-certificates.crt | wc -c")
        .await;
    let sizes: Vec<&str> = bundle.out.lines().collect();
    assert!(sizes.len() == 2 && sizes[0] == sizes[1], "{bundle:?}");
    sandbox.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn the_root_is_read_only_and_the_shared_layers_are_never_changed() {
    let world = World::new();
    if !can(&world, "the_root_is_read_only").await {
        return;
    }
    let image = import(&world, "base", &[]).await;
    let one = start(&world, &image).await;
    let two = start(&world, &image).await;
    for script in [
        "echo x > /data/new",
        "echo x >> /etc/image",
        "rm /bin/cat",
        "mkdir /x",
        "touch /run/handler/x",
        "echo x > /etc/passwd",
    ] {
        let done = one.sh(script).await;
        assert_ne!(done.code, 0, "{script}: {done:?}");
    }
    let home = one.sh("echo mine > ~/x").await;
    assert_eq!(home.code, 0, "{home:?}");
    let seen = two.sh("ls -A ~ /data; cat /etc/image").await;
    assert!(
        !seen.out.contains('x') && seen.out.ends_with("base"),
        "{seen:?}"
    );
    one.destroy().await;
    two.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_home_stays_over_a_restart_and_a_used_image_cannot_be_removed() {
    let world = World::new();
    if !can(&world, "a_used_image").await {
        return;
    }
    let image = import(&world, "base", &[]).await;
    let sandbox = start(&world, &image).await;
    sandbox
        .sh("echo kept > ~/kept; echo gone > /tmp/gone")
        .await;
    let store = store(&world);
    let refused = store.remove("base").await;
    let id = sandbox.plan.id.to_string();
    assert!(
        matches!(&refused, Err(ImageError::InUse(text)) if text.contains(&id)),
        "{refused:?}"
    );
    let plan = sandbox.plan.clone();
    world
        .driver
        .stop(&plan.id, &plan.owner, Some(&sandbox.instance))
        .await
        .expect("stops");
    assert!(
        matches!(store.remove("base").await, Err(ImageError::InUse(_))),
        "a stopped sandbox uses it too"
    );
    let kept = world.driver.list_owned(&world.owner).await;
    assert!(kept.len() == 1 && !kept[0].running, "{kept:?}");
    let again = world.start(plan).await.expect("starts again");
    let done = again
        .sh("cat ~/kept; test -e /tmp/gone && echo there")
        .await;
    assert_eq!(done.out, "kept\n", "{done:?}");
    again.destroy().await;
    store.remove("base").await.expect("nobody uses it any more");
    let layers = std::fs::read_dir(world.folder.path().join("images/layers"))
        .expect("reads")
        .count();
    assert_eq!(layers, 0);
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn another_image_is_shown_read_only_in_either_kind_of_root() {
    let world = World::new();
    if !can(&world, "another_image_is_shown").await {
        return;
    }
    let base = import(&world, "base", &[]).await;
    let tools = import(&world, "tools", &[("data/tool", "sharp")]).await;
    for root in [None, Some(base)] {
        let plan = world.plan(|spec| {
            spec.image.clone_from(&root);
            spec.image_mounts = vec![ImageMount {
                image: tools.clone(),
                target: "/srv/tools".to_owned(),
            }];
            spec.writable_paths = vec!["/var/cache/x".to_owned()];
        });
        let sandbox = world.start(plan).await.expect("starts");
        let done = sandbox
            .sh("cat /srv/tools/data/tool; touch /srv/tools/x || echo no; touch /var/cache/x/y && ls /var/cache/x")
            .await;
        assert_eq!(done.out, "sharpno\ny\n", "{done:?}");
        sandbox.destroy().await;
    }
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn an_image_that_is_not_there_is_refused_by_name_and_leaves_nothing() {
    let world = World::new();
    let plan = world.plan(|spec| {
        spec.image = Some(ImageUse {
            reference: "gone".to_owned(),
            id: format!("sha256:{}", "a".repeat(64)),
        });
    });
    let refused = world.driver.start(&plan).await;
    assert!(
        matches!(&refused, Err(DriverError::Invalid(text)) if text.contains("sha256:aaaa")),
        "{refused:?}"
    );
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn what_an_image_puts_in_our_places_is_not_taken_for_ours() {
    let world = World::new();
    if !can(&world, "what_an_image_puts_in_our_places").await {
        return;
    }
    let root = world.dir("rootfs-sly");
    for folder in ["run/handler/files", "run/handler/egress", "dev"] {
        std::fs::create_dir_all(root.join(folder)).expect("folder");
    }
    std::fs::write(root.join("run/handler/files/0"), "forged").expect("file");
    std::os::unix::fs::symlink("/home/agent/ca", root.join("run/handler/ca-bundle.pem"))
        .expect("link");
    let image = import(&world, "sly", &[]).await;
    let plan = world.plan(|spec| {
        spec.image = Some(image);
        spec.files.push(handler_types::sandbox::FileSpec {
            target: "/home/agent/fixed".into(),
            content: "true".into(),
            mode: 0o444,
            writable: false,
        });
    });
    let sandbox = world.start(plan).await.expect("starts");
    let done = sandbox.sh("cat ~/fixed; ls -A /run/handler/egress 2>&1 | wc -l; test -L /run/handler/ca-bundle.pem || echo plain").await;
    assert!(done.out.starts_with("true"), "{done:?}");
    assert!(done.out.ends_with("plain\n"), "{done:?}");
    sandbox.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn many_starts_leave_neither_mounts_nor_processes_nor_notes() {
    let world = World::new();
    if !can(&world, "many_starts").await {
        return;
    }
    let image = import(&world, "base", &[]).await;
    let mounts = || {
        let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        // Container engines mount and unmount of their own accord meanwhile.
        text.lines()
            .filter(|line| !line.contains("containers/"))
            .count()
    };
    let before = mounts();
    for _round in 0..25 {
        let image = &image;
        let start = || async {
            let plan = world.plan(|spec| spec.image = Some(image.clone()));
            let instance = world.driver.start(&plan).await.expect("starts");
            let (driver, owner) = (&world.driver, &plan.owner);
            driver
                .destroy(&plan.id, owner, Some(&instance))
                .await
                .expect("is destroyed");
        };
        tokio::join!(
            start(),
            start(),
            start(),
            start(),
            start(),
            start(),
            start(),
            start()
        );
    }
    // What engines of other tests have mounted meanwhile goes with them; what we left would stay.
    let deadline = tokio::time::Instant::now() + 2 * LIMIT;
    while mounts() > before && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let now = mounts();
    assert!(now <= before, "{now} mounts, {before} before");
    world.assert_nothing_left().await;
    store(&world).remove("base").await.expect("nobody uses it");
}
