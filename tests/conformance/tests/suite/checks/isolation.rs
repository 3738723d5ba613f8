//! A2, A3, A6, A8: what is seen and what may be done inside.

use super::{Need, checks};
use crate::probe;
use crate::subject::Subject;
use anyhow::ensure;
use handler_types::sandbox::{CreateSandbox, MountSpec};
use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;

const IMAGE_MOUNTS: Need = Need {
    name: "shows other images inside",
    has: |c| c.image_mounts,
};
const IMAGES: Need = Need {
    name: "starts from images",
    has: |c| c.images,
};

checks! { "isolation":
    only_the_listed_mounts_of_the_host_are_seen;
    the_project_folder_is_writable_at_its_own_path_and_files_belong_to_the_person;
    the_way_up_ends_at_the_root;
    a_read_only_mount_cannot_be_written;
    there_are_no_capabilities_no_new_privileges_and_a_system_call_filter;
    nobody_inside_is_root;
    the_system_is_read_only_and_home_and_tmp_are_not;
    no_process_of_the_host_is_seen;
    no_unix_socket_of_the_host_is_reached;
    the_environment_is_the_sandboxs_own;
    two_sandboxes_see_nothing_of_each_other;
    the_hosts_system_is_not_seen_in_an_image [IMAGES];
    an_image_mount_is_read_only_and_pinned [IMAGES, IMAGE_MOUNTS];
}

async fn only_the_listed_mounts_of_the_host_are_seen(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let project = s.project(&world, "app")?;
    let beside = s.project(&world, "beside")?;
    let mark = format!("planted-{}", handler_base::random::hex(8));
    let planted = [
        beside.join(&mark),
        world.scratch().folder("home").join(&mark),
        world.scratch().folder("state").join(&mark),
        std::path::Path::new("/tmp").join(&mark),
    ];
    for file in &planted {
        std::fs::write(file, "private")?;
    }
    std::fs::write(project.join(&mark), "shared")?;
    let spec = CreateSandbox {
        scope: Some(project.to_string_lossy().into_owned()),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let found = sandbox
        .sh(&format!("find / -name '{mark}' 2>/dev/null"))
        .await?;
    let _ = std::fs::remove_file(&planted[3]);
    ensure!(
        found.stdout.trim() == project.join(&mark).to_string_lossy(),
        "found: {found:?}"
    );
    s.down(sandbox).await
}

async fn the_project_folder_is_writable_at_its_own_path_and_files_belong_to_the_person(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let project = s.project(&world, "app")?;
    let path = project.to_string_lossy().into_owned();
    let spec = CreateSandbox {
        scope: Some(path.clone()),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    ensure!(
        sandbox.out("pwd").await? == path,
        "the working folder is the project"
    );
    sandbox
        .out(&format!(
            "echo from inside >'{path}/made' && mkdir '{path}/folder'"
        ))
        .await?;
    let made = std::fs::metadata(project.join("made"))?;
    ensure!(std::fs::read_to_string(project.join("made"))? == "from inside\n");
    let owner = std::fs::metadata(&project)?.uid();
    ensure!(
        made.uid() == owner,
        "made by {}, the folder is {owner}'s",
        made.uid()
    );
    std::fs::write(project.join("outside"), "from outside")?;
    s.give(&world, &project.join("outside"))?;
    ensure!(sandbox.out("cat outside").await? == "from outside");
    sandbox.out("echo more >>outside && rm made").await?;
    ensure!(!project.join("made").exists());
    s.down(sandbox).await
}

async fn the_way_up_ends_at_the_root(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = crate::transfer::in_project(&s, &world).await?;
    let project = folder.to_string_lossy();
    let up = "../".repeat(24);
    let root = sandbox.out("stat -c %d:%i /.").await?;
    // What lies on a root is seen by `..` of what is mounted below it, not by `/`.
    for place in [
        "/",
        "/tmp",
        "/proc/self",
        "/dev/shm",
        "/etc",
        "/home/agent",
        &project,
    ] {
        for path in [format!("{place}/{up}"), format!("{place}/{up}.")] {
            let seen = sandbox.out(&format!("stat -c %d:%i '{path}'")).await?;
            ensure!(seen == root, "{path} is {seen}, the root is {root}");
        }
    }
    let mounts = sandbox
        .out("cut -d' ' -f5 /proc/self/mountinfo | grep -cx /")
        .await?;
    ensure!(mounts == "1", "{mounts} mounts lie at the root");
    s.down(sandbox).await
}

async fn a_read_only_mount_cannot_be_written(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let source = s.project(&world, "data")?;
    std::fs::write(source.join("file"), "kept")?;
    world.share(&source.join("file"))?;
    let spec = CreateSandbox {
        mounts: vec![MountSpec {
            source: source.to_string_lossy().into_owned(),
            target: "/data".into(),
            read_only: true,
        }],
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    ensure!(sandbox.out("cat /data/file").await? == "kept");
    for script in [
        "echo x >/data/file",
        "echo x >/data/new",
        "rm /data/file",
        "mount -o remount,rw /data",
    ] {
        sandbox.fails(script).await?;
    }
    ensure!(std::fs::read_to_string(source.join("file"))? == "kept");
    s.down(sandbox).await
}

async fn there_are_no_capabilities_no_new_privileges_and_a_system_call_filter(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    for field in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        let value = sandbox.out(&probe::status(field)).await?;
        ensure!(value.chars().all(|c| c == '0'), "{field} is {value}");
    }
    ensure!(sandbox.out(&probe::status("NoNewPrivs")).await? == "1");
    ensure!(sandbox.out(&probe::status("Seccomp")).await? == "2");
    for script in [
        "mount -t tmpfs none /tmp",
        "umount /proc",
        "chroot / true",
        "hostname other",
        "mknod /tmp/disk b 8 0",
    ] {
        sandbox.fails(&format!("busybox {script}")).await?;
    }
    s.down(sandbox).await
}

async fn nobody_inside_is_root(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let project = s.project(&world, "app")?;
    let spec = CreateSandbox {
        scope: Some(project.to_string_lossy().into_owned()),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let inside: u32 = sandbox.out("id -u").await?.parse()?;
    if s.uid() != 0 {
        ensure!(
            inside == s.uid(),
            "inside {inside}, the person is {}",
            s.uid()
        );
    }
    // Root of this machine may be shown as 0 in a user namespace of its own, without any power.
    if inside == 0 {
        let map = sandbox.out("cat /proc/self/uid_map").await?;
        let fields: Vec<&str> = map.split_whitespace().collect();
        ensure!(
            fields.len() == 3 && fields[2] == "1",
            "root with a whole map: {map}"
        );
    }
    s.down(sandbox).await
}

async fn the_system_is_read_only_and_home_and_tmp_are_not(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    for folder in ["/", "/bin", "/usr", "/etc"] {
        sandbox
            .fails(&format!("echo x >{folder}/handler-was-here"))
            .await?;
    }
    for folder in ["/tmp", "$HOME", "/dev/shm"] {
        sandbox
            .out(&format!("echo x >{folder}/file && cat {folder}/file"))
            .await?;
    }
    let home = sandbox.out("echo $HOME").await?;
    ensure!(home == "/home/agent", "HOME is {home}");
    s.down(sandbox).await
}

async fn no_process_of_the_host_is_seen(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let mut outside = std::process::Command::new("sleep").arg("86411.5").spawn()?;
    let sandbox = s.plain(&world).await?;
    let seen = sandbox
        .out("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls /proc | grep -c '^[0-9]'")
        .await;
    outside.kill()?;
    outside.wait()?;
    let seen = seen?;
    ensure!(
        !seen.contains("86411.5") && !seen.contains("egress\n") && !seen.contains("--port"),
        "{seen}"
    );
    let count: u32 = seen.lines().last().unwrap_or_default().parse()?;
    ensure!(count < 12, "{count} processes are seen");
    s.down(sandbox).await
}

async fn no_unix_socket_of_the_host_is_reached(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let name = format!("conformance-{}", handler_base::random::hex(8));
    let abstract_one = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let sandbox = s.plain(&world).await?;
    let seen = sandbox.out("cat /proc/net/unix").await?;
    ensure!(!seen.contains(&name), "the host's sockets are listed");
    drop(abstract_one);
    let found = sandbox
        .sh("find / -type s -not -path '/proc/*' 2>/dev/null")
        .await?
        .stdout;
    for path in found.lines() {
        ensure!(
            path.starts_with("/run/handler/"),
            "a socket is seen: {path}"
        );
    }
    for path in [
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
    ] {
        sandbox.fails(&format!("ls {path}")).await?;
    }
    s.down(sandbox).await
}

async fn the_environment_is_the_sandboxs_own(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        env: BTreeMap::from([("GREETING".into(), "grüß 'dich' $HOME \"x\"".into())]),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let env = sandbox.out("env").await?;
    ensure!(env.contains("GREETING=grüß 'dich' $HOME \"x\""), "{env}");
    for foreign in [
        "HANDLER_STATE_DIR",
        "HANDLER_DOCKER_SOCKET",
        "SUDO_",
        "SSH_",
    ] {
        ensure!(!env.contains(foreign), "{foreign} is inside: {env}");
    }
    s.down(sandbox).await
}

async fn two_sandboxes_see_nothing_of_each_other(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (one, other) = (s.plain(&world).await?, s.plain(&world).await?);
    one.out("echo secret >~/mine; echo secret >/tmp/mine; echo secret >/dev/shm/mine")
        .await?;
    one.start("exec sleep 86412.5").await?;
    let seen = other
        .out("ls -A ~ /tmp /dev/shm; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
        .await?;
    ensure!(
        !seen.contains("mine") && !seen.contains("86412.5"),
        "{seen}"
    );
    s.down(one).await?;
    s.down(other).await
}

async fn the_hosts_system_is_not_seen_in_an_image(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    if s.image.is_none() {
        return Ok(());
    }
    let sandbox = s.plain(&world).await?;
    ensure!(sandbox.out("cat /opt/tool/mark").await? == "from the image");
    sandbox
        .fails("ls /usr/bin/python3 /usr/lib/x86_64-linux-gnu /bin/bash")
        .await?;
    s.down(sandbox).await
}

async fn an_image_mount_is_read_only_and_pinned(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let Some(image) = s.image.clone() else {
        return Ok(());
    };
    let spec = CreateSandbox {
        image_mounts: BTreeMap::from([("/tool".to_owned(), image)]),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    ensure!(sandbox.out("cat /tool/opt/tool/mark").await? == "from the image");
    sandbox.fails("echo x >/tool/opt/tool/mark").await?;
    sandbox.fails("echo x >/tool/new").await?;
    s.down(sandbox).await
}
