//! What is out of reach from inside: the host's files, processes, sockets, kernel settings.

use crate::support::{Sandbox, has_tools, project, text, world};
use anyhow::Context as _;
use handler_types::sandbox::CreateSandbox;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

#[tokio::test]
async fn the_homes_and_private_files_of_the_host_are_not_there() -> anyhow::Result<()> {
    let world = world().await?;
    let name = format!("planted-{}", handler_base::random::hex(8));
    let home = world.scratch().folder("home");
    std::fs::create_dir_all(home.join(".ssh"))?;
    let mut planted = Vec::new();
    for folder in [
        home.join(".ssh"),
        home.clone(),
        world.work(),
        std::env::temp_dir(),
    ] {
        let file = folder.join(&name);
        std::fs::write(&file, "private")?;
        planted.push(file);
    }
    let spec = CreateSandbox {
        scope: Some(text(project(&world, "app")?)?),
        ..Default::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    std::fs::write(project(&world, "app")?.join(&name), "shared")?;
    // The search finds what is there to be found.
    let found = sandbox
        .sh(&format!("find / -name '{name}' 2>/dev/null"))
        .await?
        .stdout;
    let shared = text(project(&world, "app")?.join(&name))?;
    assert_eq!(found.trim(), shared);
    for file in &planted {
        sandbox.fails(&format!("cat '{}'", file.display())).await?;
    }
    let token = text(world.scratch().token_file())?;
    for path in [
        token.as_str(),
        "/root",
        "/etc/shadow",
        "/etc/ssh",
        "/etc/sudoers",
        "/boot",
        "/var/lib",
        "/var/run/docker.sock",
        "/host",
        "/mnt",
        "/media",
        "/srv",
    ] {
        sandbox.fails(&format!("ls -d '{path}'")).await?;
    }
    assert_eq!(sandbox.out("ls -A /home").await?, "agent");
    std::fs::remove_file(&planted[3])?;
    Ok(())
}

#[tokio::test]
async fn other_processes_are_neither_seen_nor_signalled() -> anyhow::Result<()> {
    let world = world().await?;
    let mut outside = tokio::process::Command::new("sleep")
        .arg("86421.5")
        .kill_on_drop(true)
        .spawn()?;
    let sandbox = Sandbox::plain(&world).await?;
    let neighbour = Sandbox::plain(&world).await?;
    neighbour.start("exec sleep 86422.5").await?;
    let look = "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'";
    let seen = sandbox
        .out(&format!("sleep 86423.5 & {look}; kill $!"))
        .await?;
    assert!(seen.contains("86423.5"), "its own are seen: {seen}");
    assert!(
        !seen.contains("86421.5") && !seen.contains("86422.5"),
        "{seen}"
    );
    assert!(
        !seen.contains("serve") && !seen.contains("egress"),
        "{seen}"
    );
    let pids: u32 = sandbox.out("ls /proc | grep -c '^[0-9]'").await?.parse()?;
    assert!(pids < 10, "{pids} processes are seen");
    let pid = outside.id().context("it runs")?;
    let daemon = world.daemon_pid().context("the daemon runs")?;
    for pid in [pid, daemon] {
        sandbox.fails(&format!("kill -0 {pid}")).await?;
    }
    assert!(outside.try_wait()?.is_none(), "the process outside lives");
    for script in [
        "cat /proc/1/environ",
        "cat /proc/1/mem",
        "readlink /proc/1/exe",
        "ls /proc/1/fd/ /proc/1/root/",
    ] {
        sandbox.fails(script).await?;
    }
    Ok(())
}

#[tokio::test]
async fn unix_sockets_of_the_host_cannot_be_reached() -> anyhow::Result<()> {
    if !has_tools("unix_sockets_of_the_host_cannot_be_reached", &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let path = world.scratch().folder("home").join("outside.sock");
    let pathname = UnixListener::bind(&path)?;
    let name = format!("world-{}", handler_base::random::hex(8));
    let abstract_one = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    pathname.set_nonblocking(true)?;
    abstract_one.set_nonblocking(true)?;
    let sandbox = Sandbox::plain(&world).await?;
    // The way of trying works: a socket of its own is reached.
    let own = "import socket\ns=socket.socket(socket.AF_UNIX)\ns.bind('\\0own')\ns.listen()\n\
               c=socket.socket(socket.AF_UNIX)\nc.connect('\\0own')\nprint('reached')";
    assert_eq!(sandbox.python(own).await?.stdout, "reached\n");
    let egress = world.scratch().folder("run").join("egress.sock");
    for target in [
        text(path.clone())?,
        text(world.scratch().socket())?,
        text(egress)?,
        format!("\\0{name}"),
        "/run/docker.sock".into(),
        "/var/run/docker.sock".into(),
        "/run/podman/podman.sock".into(),
        "/run/dbus/system_bus_socket".into(),
        "/run/systemd/private".into(),
        "/run/handler/guest.sock".into(),
    ] {
        let program =
            format!("import socket\ns=socket.socket(socket.AF_UNIX)\ns.connect('{target}')");
        let done = sandbox.python(&program).await?;
        assert_ne!(done.exit.code, 0, "{target} was reached");
        assert!(done.stderr.contains("Error"), "{target}: {done:?}");
    }
    assert!(
        pathname.accept().is_err() && abstract_one.accept().is_err(),
        "somebody connected"
    );
    let sockets = sandbox
        .sh("find / -path /proc -prune -o -type s -print 2>/dev/null")
        .await?
        .stdout;
    let strange: Vec<&str> = sockets
        .lines()
        .filter(|line| !line.starts_with("/run/handler/egress/"))
        .collect();
    assert_eq!(strange, Vec::<&str>::new());
    Ok(())
}

#[tokio::test]
async fn a_sandbox_has_no_rights_over_the_kernel() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let status = sandbox.out("cat /proc/self/status").await?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim().to_owned())
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set).as_deref(), Some("0000000000000000"), "{set}");
    }
    assert_eq!(field("NoNewPrivs").as_deref(), Some("1"));
    assert_eq!(field("Seccomp").as_deref(), Some("2"));
    let uid = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(sandbox.out("id -u").await?, uid);
    assert_eq!(sandbox.out("ulimit -Hc; ulimit -Sc").await?, "0\n0");
    for script in [
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "mount -t tmpfs x /tmp",
        "mount -o remount,rw /",
        "umount /proc",
        "chroot / true",
        "hostname other",
        "date -s 2001-01-01",
        "mknod /tmp/d b 8 0",
        "echo x > /proc/sys/kernel/hostname",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 0 > /proc/sys/vm/overcommit_memory",
        "echo b > /proc/sysrq-trigger",
        "touch /usr/x",
        "touch /etc/x",
        "dmesg",
        "cat /proc/kcore",
        "cat /dev/mem",
        "ip link add x type dummy",
        "su -c true",
        "sudo true",
    ] {
        sandbox.fails(script).await?;
    }
    let script = "ulimit -c unlimited; sh -c 'kill -SEGV $$'; find / -name 'core*' -newer /proc/self/cmdline -type f \
                  -not -path '/proc/*' -not -path '/sys/*' 2>/dev/null";
    assert_eq!(sandbox.sh(script).await?.stdout, "", "a core was left");
    Ok(())
}
