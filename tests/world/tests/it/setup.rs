//! From a fresh machine to a running daemon and back: `setup`, the service of systemd, `uninstall`.

use crate::support::{LONG, text};
use anyhow::{Context as _, ensure};
use handler_testkit::{World, eventually, skip};
use handler_types::sandbox::CreateSandbox;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A world whose daemon the command line starts.
fn fresh() -> anyhow::Result<World> {
    World::builder().env("HANDLER_PORT", "0").prepare()
}

/// The folders that are Handler's.
fn own(world: &World) -> [PathBuf; 5] {
    ["config", "state", "data", "cache", "run"].map(|name| world.scratch().folder(name))
}

#[tokio::test]
async fn what_setup_makes_uninstall_takes_away() -> anyhow::Result<()> {
    let world = fresh()?;
    let work = text(world.work())?;
    let args = ["setup", "--yes", "--no-service", "--folder", work.as_str()];
    let output = world.cli(&args).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && said.contains("nothing can run here yet") {
        skip("setup and uninstall", &said);
        return Ok(());
    }
    ensure!(
        output.status.success() && said.contains("Ready. Next:"),
        "{said}"
    );
    let client = world.client();
    let folders = client.folders().await?;
    ensure!(
        folders.folders.iter().any(|f| f.path == work),
        "{folders:?} lacks {work}"
    );
    // A second time nothing is done twice.
    world.cli_ok(&args).await?;
    ensure!(client.folders().await? == folders);
    let sandbox = CreateSandbox {
        scope: Some(work),
        ..CreateSandbox::default()
    };
    client.create_sandbox(&sandbox).await?;

    let unasked = world.cli(&["uninstall"]).await?;
    ensure!(unasked.status.code() == Some(2), "nobody was asked");
    ensure!(
        client.sandboxes("", 10).await?.items.len() == 1,
        "nothing was done"
    );
    let kept = world.cli(&["uninstall", "--yes"]).await?;
    let said = String::from_utf8_lossy(&kept.stderr).into_owned();
    ensure!(kept.status.success() && said.contains("kept"), "{said}");
    ensure!(world.processes().is_empty(), "{:?}", world.processes());
    ensure!(own(&world)[0].join("token").exists(), "settings are kept");
    world.cli_ok(&["uninstall", "--yes", "--purge"]).await?;
    ensure!(world.processes().is_empty(), "{:?}", world.processes());
    for folder in own(&world) {
        ensure!(!folder.exists(), "{} is left", folder.display());
    }
    ensure!(world.work().exists(), "the project folder stays");
    world.assert_clean(LONG).await
}

/// A systemd of the person's own, as a login starts it; ends with the test.
struct Manager(Child);

impl Manager {
    /// In a mount namespace in which the machine looks as if systemd had booted it.
    fn start(world: &World) -> anyhow::Result<Self> {
        let script =
            "mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system && exec systemd --user";
        let mut command = world.tool("unshare");
        command.args(["--mount", "sh", "-c", script]);
        Self::surround(&mut command, world);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self(child))
    }

    fn surround(command: &mut Command, world: &World) {
        command
            .env("XDG_RUNTIME_DIR", world.scratch().folder("xdg"))
            .env(
                "XDG_CONFIG_HOME",
                world.scratch().folder("xdg").join("config"),
            );
    }

    /// Runs a program where that systemd is; gives its status and what it said.
    fn run(&self, world: &World, words: &[&str]) -> anyhow::Result<(bool, String)> {
        let mut command = world.tool("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.0.id()));
        command.args(words);
        Self::surround(&mut command, world);
        let output = command.output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    }

    fn ok(&self, world: &World, words: &[&str]) -> anyhow::Result<String> {
        let (is_ok, said) = self.run(world, words)?;
        ensure!(is_ok, "{words:?}: {said}");
        Ok(said)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn can_have_a_manager() -> bool {
    let is_there = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).exists())
    };
    rustix::process::geteuid().is_root()
        && ["systemd", "systemctl", "unshare", "nsenter"]
            .into_iter()
            .all(is_there)
        && std::path::Path::new("/run/systemd").is_dir()
}

#[tokio::test]
async fn the_daemon_is_a_service_that_comes_back_when_it_fails() -> anyhow::Result<()> {
    if !can_have_a_manager() {
        skip(
            "the daemon is a service",
            "no systemd, or no root to give it a namespace",
        );
        return Ok(());
    }
    let world = fresh()?;
    std::fs::create_dir_all(world.scratch().folder("xdg").join("config"))?;
    let program = text(World::program().context("handler is not built")?)?;
    let refused = world.cli(&["daemon", "install"]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && said.contains("handler daemon start"),
        "{said}"
    );

    let manager = Manager::start(&world)?;
    let is_up = ["systemctl", "--user", "is-system-running", "--wait"];
    eventually("systemd", LONG, || async {
        let (_, said) = manager.run(&world, &is_up).ok()?;
        ["running", "degraded"].contains(&said.trim()).then_some(())
    })
    .await?;
    manager.ok(&world, &[&program, "daemon", "install"])?;
    let first = world.client().health().await?.pid;
    let shown = [
        "systemctl",
        "--user",
        "show",
        "-p",
        "MainPID",
        "--value",
        "handler",
    ];
    ensure!(
        manager.ok(&world, &shown)?.trim() == first.to_string(),
        "systemd started it"
    );

    let pid = rustix::process::Pid::from_raw(i32::try_from(first)?).context("a process")?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    eventually("another daemon", LONG, || async {
        let health = world.client().health().await.ok()?;
        (health.pid != first).then_some(())
    })
    .await?;
    // Stopped by its person it stays so, until it is wanted again.
    manager.ok(&world, &[&program, "daemon", "stop"])?;
    let is_active = ["systemctl", "--user", "is-active", "handler"];
    ensure!(!manager.run(&world, &is_active)?.0, "it came back");
    manager.ok(&world, &[&program, "daemon", "start"])?;
    ensure!(manager.run(&world, &is_active)?.0, "as a service again");
    manager.ok(&world, &[&program, "uninstall", "--yes", "--purge"])?;
    let unit = world
        .scratch()
        .folder("xdg")
        .join("config/systemd/user/handler.service");
    ensure!(!unit.exists(), "the unit is gone");
    ensure!(world.client().health().await.is_err(), "the daemon is gone");
    Ok(())
}
