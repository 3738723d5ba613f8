//! SSH with the system's own programs, through the product. The image has no bash and no server for files.

use super::checks;
use crate::subject::{Missing, Subject};
use anyhow::{Context as _, ensure};
use handler_testkit::World;
use handler_testkit::inside::{LONG, Sandbox, show};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

checks! { "ssh":
    a_command_has_its_input_output_errors_and_code;
    a_shell_is_found_and_has_a_terminal;
    scp_brings_files_both_ways_unchanged;
    sftp_makes_lists_renames_and_fetches;
    rsync_brings_folders_both_ways;
    a_port_inside_is_reached_and_no_other_machine;
    many_connections_at_once_all_come_up;
    the_host_key_is_the_same_after_a_killed_daemon;
}

/// A folder of the person's with `config` for `ssh`, made as a person would.
async fn folder(s: &Subject, world: &World) -> anyhow::Result<PathBuf> {
    let folder = s.project(world, "ssh")?;
    let config = world.cli_ok(&["ssh-config"]).await?;
    s.put(world, &folder.join("config"), config)?;
    Ok(folder)
}

/// Runs a program of this machine in such a folder.
async fn run(world: &World, folder: &Path, argv: &[&str]) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::from(world.tool(argv[0]));
    command
        .args(&argv[1..])
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(LONG, command.output()).await;
    output
        .with_context(|| format!("{argv:?} hangs"))?
        .with_context(|| format!("start {argv:?}"))
}

/// Runs one that must succeed; what it printed.
async fn run_ok(world: &World, folder: &Path, argv: &[&str]) -> anyhow::Result<String> {
    let done = run(world, folder, argv).await?;
    ensure!(
        done.status.success(),
        "{argv:?}: {} {}",
        done.status,
        show(&done.stderr)
    );
    Ok(show(&done.stdout))
}

fn bytes(count: u64) -> Vec<u8> {
    (0..count / 8).flat_map(|n| (n * n).to_le_bytes()).collect()
}

async fn a_command_has_its_input_output_errors_and_code(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let script = "echo out; echo err >&2; cd; pwd; exit 42";
    let said = world.cli(&["ssh", &sandbox.id, "--", script]).await?;
    ensure!(said.status.code() == Some(42), "{}", show(&said.stderr));
    let home = sandbox.out("cd; pwd").await?;
    ensure!(show(&said.stdout) == format!("out\n{home}\n"), "{said:?}");
    ensure!(show(&said.stderr) == "err\n", "{}", show(&said.stderr));
    let args = ["ssh", &sandbox.id, "--", "cat"];
    let said = world.cli_with_input(&args, "grüße\n".as_bytes()).await?;
    ensure!(show(&said.stdout) == "grüße\n", "{said:?}");
    let nobody = world.cli(&["ssh", "nobody", "--", "true"]).await?;
    ensure!(nobody.status.code() == Some(4), "{nobody:?}");
    s.down(sandbox).await
}

async fn a_shell_is_found_and_has_a_terminal(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let mut shell = world.on_tty(&["ssh", &sandbox.id], (93, 31))?;
    shell.type_in("tty; stty size; echo \"is $((40+2))\"\r")?;
    for wanted in ["/dev/pts/", "31 93", "is 42"] {
        shell.until(wanted).await?;
    }
    shell.type_in("exit 4\r")?;
    ensure!(shell.ended().await? == 4, "{:?}", shell.text());
    s.down(sandbox).await
}

async fn scp_brings_files_both_ways_unchanged(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let folder = folder(&s, &world).await?;
    let big = bytes(6_000_000);
    s.put(&world, &folder.join("big"), &big)?;
    let there = format!("{}.handler:big", sandbox.id);
    run_ok(
        &world,
        &folder,
        &["scp", "-F", "config", "-p", "big", &there],
    )
    .await?;
    let inside = sandbox
        .out("sha256sum ~/big | cut -d' ' -f1; stat -c %Y ~/big")
        .await?;
    let sum = "sha256sum big | cut -d' ' -f1; stat -c %Y big";
    let own = run_ok(&world, &folder, &["sh", "-c", sum]).await?;
    ensure!(inside == own.trim(), "content and time: {inside}, {own}");
    run_ok(&world, &folder, &["scp", "-F", "config", &there, "back"]).await?;
    ensure!(
        std::fs::read(folder.join("back"))? == big,
        "changed on the way"
    );
    s.down(sandbox).await
}

async fn sftp_makes_lists_renames_and_fetches(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let folder = folder(&s, &world).await?;
    let content = bytes(300_000);
    s.put(&world, &folder.join("c"), &content)?;
    let script =
        "mkdir q\nput c q/c\nchmod 640 q/c\nrename q/c q/d\nln -s d q/e\nget q/e got\nls -l q\n";
    s.put(&world, &folder.join("batch"), script)?;
    let host = format!("{}.handler", sandbox.id);
    let said = run_ok(
        &world,
        &folder,
        &["sftp", "-F", "config", "-b", "batch", &host],
    )
    .await?;
    ensure!(said.contains("-rw-r-----"), "{said}");
    ensure!(
        std::fs::read(folder.join("got"))? == content,
        "through a link"
    );
    let seen = sandbox.out("cd; stat -c '%a %s' q/d; readlink q/e").await?;
    ensure!(seen == format!("640 {}\nd", content.len()), "{seen}");
    s.down(sandbox).await
}

async fn rsync_brings_folders_both_ways(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    if sandbox.sh("command -v rsync").await?.exit.code != 0 {
        s.down(sandbox).await?;
        return Err(Missing("the image has rsync").into());
    }
    let folder = folder(&s, &world).await?;
    let make =
        "mkdir -p tree/deep/er && echo x >'tree/deep/er/file name' && ln -s deep/er tree/link";
    run_ok(&world, &folder, &["sh", "-c", make]).await?;
    let there = format!("{}.handler:", sandbox.id);
    let from = format!("{there}tree/");
    for (from, to) in [("tree", there.as_str()), (from.as_str(), "round")] {
        run_ok(
            &world,
            &folder,
            &["rsync", "-a", "-e", "ssh -F config", from, to],
        )
        .await?;
    }
    let file = folder.join("round/link/file name");
    ensure!(std::fs::read_to_string(file)? == "x\n");
    s.down(sandbox).await
}

async fn a_port_inside_is_reached_and_no_other_machine(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let folder = folder(&s, &world).await?;
    sandbox
        .start("exec busybox nc -ll -p 4300 -e echo from inside")
        .await?;
    let host = format!("{}.handler", sandbox.id);
    let reach = |target: &'static str| {
        let argv = ["ssh", "-F", "config", "-W", target, &host].map(str::to_owned);
        let (world, folder) = (&world, &folder);
        async move { run(world, folder, &argv.each_ref().map(String::as_str)).await }
    };
    handler_testkit::eventually("the port", LONG, || async {
        let said = reach("localhost:4300").await.ok()?;
        (show(&said.stdout) == "from inside\n").then_some(())
    })
    .await?;
    let foreign = reach("192.0.2.1:80").await?;
    ensure!(!foreign.status.success(), "{foreign:?}");
    s.down(sandbox).await
}

async fn many_connections_at_once_all_come_up(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    // New sandboxes: each connection has a key to learn, and none may forget another's.
    let mut sandboxes: Vec<Sandbox> = Vec::new();
    for _ in 0..4 {
        sandboxes.push(s.plain(&world).await?);
    }
    let all = sandboxes.iter().map(|sandbox| {
        let world = &world;
        async move { world.cli_ok(&["ssh", &sandbox.id, "--", "echo here"]).await }
    });
    for said in futures::future::join_all(all).await {
        ensure!(said? == "here\n");
    }
    for sandbox in sandboxes {
        s.down(sandbox).await?;
    }
    Ok(())
}

async fn the_host_key_is_the_same_after_a_killed_daemon(s: Arc<Subject>) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    let folder = folder(&s, &world).await?;
    let host = format!("{}.handler", sandbox.id);
    let key = world.client().ssh_host_key(&sandbox.id).await?;
    let argv = ["ssh", "-F", "config", &host, "echo here"];
    ensure!(run_ok(&world, &folder, &argv).await? == "here\n");
    world.kill9()?;
    world.start_daemon().await?;
    sandbox.client = world.client();
    ensure!(sandbox.client.ssh_host_key(&sandbox.id).await? == key);
    ensure!(run_ok(&world, &folder, &argv).await? == "here\n");
    let known = world.scratch().folder("config").join("ssh/known_hosts");
    let line = format!("{} {}", key.alias, key.public_key);
    let known = std::fs::read_to_string(known)?;
    ensure!(known.lines().any(|known| known == line), "{known}");
    s.down(sandbox).await
}
