//! SSH to a sandbox with the system's own programs, through the product.

use crate::support::{LONG, Sandbox, has_tools, show, status_bytes, world};
use anyhow::Context as _;
use handler_testkit::{World, eventually};
use std::path::PathBuf;
use std::process::{Output, Stdio};

/// A sandbox and the configuration that leads `ssh` to it.
struct Stage {
    world: World,
    sandbox: Sandbox,
    config: PathBuf,
}

impl Stage {
    async fn set(test: &str, tools: &[&str]) -> anyhow::Result<Option<Self>> {
        if !has_tools(test, tools) {
            return Ok(None);
        }
        let world = world().await?;
        world
            .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
            .await?;
        let written = world.cli_ok(&["--quiet", "ssh-config", "--write"]).await?;
        let sandbox = Sandbox {
            client: world.client(),
            id: "box".into(),
        };
        Ok(Some(Self {
            world,
            sandbox,
            config: written.trim().into(),
        }))
    }

    fn command(&self, program: &str) -> tokio::process::Command {
        let ours = self.world.command();
        let mut command = tokio::process::Command::new(program);
        command
            .env_clear()
            .envs(
                ours.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(self.world.work())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<Output> {
        let config = self.config.to_str().context("text")?;
        let mut command = self.command(program);
        command.args(["-F", config]).args(args);
        Ok(tokio::time::timeout(LONG, command.output()).await??)
    }
}

#[tokio::test]
async fn handler_ssh_runs_commands_and_shells_without_a_question() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("handler_ssh_runs_commands", &["ssh"]).await? else {
        return Ok(());
    };
    let world = &stage.world;
    let said = world
        .cli(&["ssh", "box", "--", "echo out; echo err >&2; pwd; exit 42"])
        .await?;
    assert_eq!(said.status.code(), Some(42), "{}", show(&said.stderr));
    assert_eq!(show(&said.stdout), "out\n/home/agent\n");
    assert_eq!(show(&said.stderr), "err\n");
    let said = world
        .cli_with_input(&["ssh", "box", "--", "cat"], "grüße\n".as_bytes())
        .await?;
    assert_eq!(show(&said.stdout), "grüße\n");
    let said = world
        .cli(&[
            "ssh",
            "box",
            "-o",
            "RequestTTY=force",
            "--",
            "tty && stty size",
        ])
        .await?;
    assert!(show(&said.stdout).contains("/dev/pts/"), "{said:?}");
    let said = world.cli(&["ssh", "nobody", "--", "true"]).await?;
    assert_eq!(said.status.code(), Some(4), "{said:?}");
    // The key is kept, known by the sandbox's id, and closed to others.
    let key = world.client().ssh_host_key("box").await?;
    let folder = world.scratch().folder("config").join("ssh");
    let known = std::fs::read_to_string(folder.join("known_hosts"))?;
    assert_eq!(known, format!("{} {}\n", key.alias, key.public_key));
    let again = stage.run("ssh", &["box.handler", "echo again"]).await?;
    assert_eq!(show(&again.stdout), "again\n", "{}", show(&again.stderr));
    Ok(())
}

#[tokio::test]
async fn scp_sftp_and_rsync_bring_files_and_folders_both_ways() -> anyhow::Result<()> {
    let tools = ["ssh", "scp", "sftp", "rsync"];
    let Some(stage) = Stage::set("scp_sftp_and_rsync", &tools).await? else {
        return Ok(());
    };
    let work = stage.world.work();
    let big: Vec<u8> = (0..3_000_000_u64)
        .flat_map(|n| (n * n).to_le_bytes())
        .collect();
    std::fs::write(work.join("big"), &big)?;
    let sent = stage.run("scp", &["-p", "big", "box.handler:big"]).await?;
    assert!(sent.status.success(), "{}", show(&sent.stderr));
    let inside = stage
        .sandbox
        .out("sha256sum big | cut -d' ' -f1; stat -c %Y big")
        .await?;
    let own = tokio::process::Command::new("sh")
        .args(["-c", "sha256sum big | cut -d' ' -f1; stat -c %Y big"])
        .current_dir(&work)
        .output()
        .await?;
    assert_eq!(inside, show(&own.stdout).trim(), "content and time");
    let got = stage.run("scp", &["box.handler:big", "back"]).await?;
    assert!(got.status.success(), "{}", show(&got.stderr));
    assert!(
        std::fs::read(work.join("back"))? == big,
        "changed on the way"
    );

    std::fs::create_dir_all(work.join("tree/deep/er"))?;
    std::fs::write(work.join("tree/deep/er/file name"), "x")?;
    std::os::unix::fs::symlink("deep/er", work.join("tree/link"))?;
    let config = stage.config.display();
    for (from, to) in [("tree", "box.handler:"), ("box.handler:tree/", "round")] {
        let done = stage
            .command("rsync")
            .args(["-a", "-e", &format!("ssh -F {config}"), from, to])
            .output()
            .await?;
        assert!(done.status.success(), "{}", show(&done.stderr));
    }
    let file = work.join("round/link/file name");
    assert_eq!(std::fs::read_to_string(file)?, "x", "links came too");

    let script = work.join("script");
    std::fs::write(
        &script,
        "mkdir q\nput big q/c\nchmod 640 q/c\nrename q/c q/d\nln -s d q/e\nget q/e got\nreget q/d got\nls -l q\n",
    )?;
    let batch = script.to_str().context("text")?;
    let done = stage.run("sftp", &["-b", batch, "box.handler"]).await?;
    assert!(done.status.success(), "{}", show(&done.stderr));
    assert!(
        show(&done.stdout).contains("-rw-r-----"),
        "{}",
        show(&done.stdout)
    );
    assert!(std::fs::read(work.join("got"))? == big, "through a link");
    let mode = stage
        .sandbox
        .out("stat -c '%a %s' q/d; readlink q/e")
        .await?;
    assert_eq!(mode, format!("640 {}\nd", big.len()));
    Ok(())
}

#[tokio::test]
async fn two_hundred_megabytes_both_ways_leave_the_daemon_small() -> anyhow::Result<()> {
    const SIZE: u64 = 200 * 1024 * 1024;
    let Some(stage) = Stage::set("two_hundred_megabytes", &["ssh", "bash"]).await? else {
        return Ok(());
    };
    let pid = stage.world.daemon_pid().context("a daemon")?;
    let before = status_bytes(pid, "VmHWM")?;
    // In and out at the same time: neither direction may wait for the other to end.
    let line = format!(
        "set -o pipefail; head -c {SIZE} /dev/zero | ssh -F '{}' box.handler cat | sha256sum",
        stage.config.display()
    );
    let ran = stage.command("bash").args(["-c", &line]).output();
    let ran = tokio::time::timeout(3 * LONG, ran).await??;
    assert!(ran.status.success(), "{}", show(&ran.stderr));
    let wanted = tokio::process::Command::new("bash")
        .args(["-c", &format!("head -c {SIZE} /dev/zero | sha256sum")])
        .output()
        .await?;
    assert_eq!(show(&ran.stdout), show(&wanted.stdout));
    let grown = status_bytes(pid, "VmHWM")? - before;
    assert!(grown < 48 * 1024 * 1024, "grew by {grown}");
    Ok(())
}

#[tokio::test]
async fn ports_inside_are_reached_with_ssh_and_no_others() -> anyhow::Result<()> {
    let tools = ["ssh", "python3", "curl"];
    let Some(stage) = Stage::set("ports_inside_are_reached_with_ssh", &tools).await? else {
        return Ok(());
    };
    stage.sandbox.out("echo from inside > index.html").await?;
    let server = stage
        .sandbox
        .start("exec /usr/bin/python3 -u -m http.server 8123 --bind 127.0.0.1")
        .await?;
    let mut feed = stage.sandbox.attach(server, None).await?;
    feed.until("Serving").await?;
    let socket = stage.world.work().join("here");
    let forward = format!("{}:localhost:8123", socket.display());
    let config = stage.config.to_str().context("text")?;
    let mut ssh = stage
        .command("ssh")
        .args(["-F", config, "-N", "-L", &forward, "box.handler"])
        .spawn()?;
    let page = eventually("the page", LONG, || async {
        let page = stage
            .command("curl")
            .args(["--silent", "--unix-socket"])
            .arg(&socket)
            .arg("http://localhost/")
            .output()
            .await
            .ok()?;
        page.status.success().then_some(page.stdout)
    });
    assert_eq!(show(&page.await?), "from inside\n");
    ssh.kill().await?;
    let foreign = stage
        .run("ssh", &["-W", "192.0.2.1:80", "box.handler"])
        .await?;
    assert!(!foreign.status.success(), "{foreign:?}");
    // Nothing inside gets at our agent or opens ports of ours.
    let agent = stage
        .run("ssh", &["-A", "box.handler", "echo \"[$SSH_AUTH_SOCK]\""])
        .await?;
    assert_eq!(show(&agent.stdout), "[]\n");
    let options = ["-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:1"];
    let reverse = stage
        .run("ssh", &[&options[..], &["box.handler", "true"]].concat())
        .await?;
    assert!(!reverse.status.success(), "{reverse:?}");
    Ok(())
}
