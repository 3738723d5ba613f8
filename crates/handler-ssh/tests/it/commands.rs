//! Commands, their ends, their streams; files written in odd ways; clients that leave.

use crate::stage::{LONG, Stage, text};
use std::process::Stdio;
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn a_command_has_its_streams_its_environment_and_its_code() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_command_has_its_streams", &["ssh"]).await? else {
        return Ok(());
    };
    let ran = stage.ssh("echo out; echo err >&2; pwd; exit 3").await?;
    assert_eq!(ran.status.code(), Some(3));
    assert_eq!(
        text(&ran.stdout),
        format!("out\n{}\n", stage.work().display())
    );
    assert_eq!(text(&ran.stderr), "err\n");
    let options = ["-o", "SetEnv=GREETING=good", "it", "echo $GREETING day"];
    let ran = stage.run("ssh", &options).await?;
    assert_eq!(text(&ran.stdout), "good day\n");
    let ran = stage.ssh("no-such-program").await?;
    assert_eq!(ran.status.code(), Some(127));
    // A signal is told as one, which OpenSSH turns into 255.
    let ran = stage.ssh("kill -KILL $$").await?;
    assert_eq!(ran.status.code(), Some(255), "{}", text(&ran.stderr));
    // What goes on in the background does not hold the connection.
    let ran = stage.ssh("sleep 5 >/dev/null 2>&1 & echo on").await?;
    assert_eq!(text(&ran.stdout), "on\n");
    stage.all_forgotten().await
}

#[tokio::test]
async fn a_terminal_has_the_size_asked_for_and_the_clients_kind() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_terminal_has_the_size", &["ssh", "script"]).await? else {
        return Ok(());
    };
    let inner = "ssh -F config -t it 'stty size; echo $TERM'";
    let ran = tokio::process::Command::new("script")
        .args([
            "-qec",
            &format!("stty rows 33 cols 111; TERM=vt220 {inner}"),
            "/dev/null",
        ])
        .current_dir(stage.temp.path())
        .stdin(Stdio::null())
        .output();
    let ran = tokio::time::timeout(LONG, ran).await??;
    let said = text(&ran.stdout);
    assert!(
        said.contains("33 111\r\n") && said.contains("vt220\r\n"),
        "{said:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_command_that_does_not_read_stalls_no_other_and_reads_all_later() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_command_that_does_not_read", &["ssh"]).await? else {
        return Ok(());
    };
    let control = stage.temp.path().join("c");
    let control = format!("ControlPath={}", control.display());
    let mut master = stage
        .command("ssh")
        .args(["-M", "-N", "-o", &control, "it"])
        .spawn()?;
    let end = Instant::now() + LONG;
    while !stage.temp.path().join("c").exists() {
        anyhow::ensure!(Instant::now() < end, "no master");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // Both are channels of one connection. The first takes nothing until a file is there.
    let mut stalled = stage
        .command("ssh")
        .args([
            "-o",
            &control,
            "it",
            "while ! [ -e go ]; do sleep 0.1; done; wc -c",
        ])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = stalled.stdin.take().expect("piped");
    let feed = tokio::spawn(async move {
        for _ in 0..400 {
            input.write_all(&[7; 50_000]).await?;
        }
        input.shutdown().await
    });
    let flood = ["-o", control.as_str(), "it", "head -c 30000000 /dev/zero"];
    let ran = stage.run("ssh", &flood).await?;
    assert_eq!(ran.stdout.len(), 30_000_000, "{}", text(&ran.stderr));
    let echo = ["-o", control.as_str(), "it", "cat; touch go"];
    let ran = stage.run("ssh", &echo).await?;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    tokio::time::timeout(LONG, feed).await???;
    let done = tokio::time::timeout(LONG, stalled.wait_with_output()).await??;
    assert_eq!(
        text(&done.stdout).trim(),
        "20000000",
        "{}",
        text(&done.stderr)
    );
    master.kill().await?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_hangs_up_its_command_and_the_server_can_be_stopped()
-> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_client_that_leaves", &["ssh"]).await? else {
        return Ok(());
    };
    let mut client = stage
        .command("ssh")
        .args([
            "it",
            "trap 'echo hung up > told; exit' HUP; echo ready; while :; do sleep 0.1; done",
        ])
        .spawn()?;
    let mut said = [0; 6];
    let output = client.stdout.as_mut().expect("piped");
    tokio::time::timeout(LONG, output.read_exact(&mut said)).await??;
    client.kill().await?;
    stage.all_forgotten().await?;
    assert_eq!(
        std::fs::read_to_string(stage.work().join("told"))?,
        "hung up\n"
    );
    let client = stage
        .command("ssh")
        .args(["it", "echo ready; cat"])
        .stdin(Stdio::piped())
        .spawn();
    let mut client = client?;
    let output = client.stdout.as_mut().expect("piped");
    tokio::time::timeout(LONG, output.read_exact(&mut said)).await??;
    stage.stop.cancel();
    let ended = tokio::time::timeout(LONG, client.wait()).await??;
    assert_eq!(ended.code(), Some(255));
    Ok(())
}

#[tokio::test]
async fn files_are_gone_on_with_appended_to_and_cut_and_links_followed() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("files_are_gone_on_with", &["sftp", "scp"]).await? else {
        return Ok(());
    };
    let work = stage.work();
    let here = stage.temp.path();
    std::fs::write(here.join("whole"), "0123456789")?;
    std::fs::write(work.join("part"), "0123")?;
    std::fs::write(work.join("odd \\ name"), "odd")?;
    std::os::unix::fs::symlink("part", work.join("link"))?;
    std::fs::create_dir(work.join("many"))?;
    for index in 0..250 {
        std::fs::write(work.join(format!("many/f{index}")), "")?;
    }
    let script = "reput whole part\nget \"odd \\\\ name\" odd\nget link linked\nls -1 many\nrename part moved\n\
                  mkdir deep\n-rename whole2 x\nrm moved\nrmdir deep\n";
    std::fs::write(here.join("script"), script)?;
    let ran = stage.run("sftp", &["-b", "script", "it"]).await?;
    assert!(
        ran.status.success(),
        "{}{}",
        text(&ran.stdout),
        text(&ran.stderr)
    );
    assert_eq!(std::fs::read_to_string(here.join("linked"))?, "0123456789");
    assert_eq!(std::fs::read_to_string(here.join("odd"))?, "odd");
    assert_eq!(text(&ran.stdout).matches("many/f").count(), 250);
    assert!(!work.join("moved").exists() && !work.join("deep").exists());
    // What is given up half-way leaves what was there; what cannot be is told.
    std::fs::write(work.join("kept"), "old")?;
    let ran = stage.run("scp", &["whole", "it:no/such/folder"]).await?;
    assert!(!ran.status.success());
    let ran = stage.run("scp", &["whole", "it:kept"]).await?;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_eq!(std::fs::read_to_string(work.join("kept"))?, "0123456789");
    Ok(())
}

#[tokio::test]
async fn a_stream_that_is_no_ssh_ends_with_an_error() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_stream_that_is_no_ssh", &["ssh"]).await? else {
        return Ok(());
    };
    let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
    let key = handler_ssh::HostKey::of_folder(stage.temp.path())?;
    let target = handler_ssh::Target {
        guest: stage.guest.clone(),
        workdir: "/".into(),
        home: "/".into(),
        dial: std::sync::Arc::new(|_| Box::pin(async { Err(std::io::Error::other("none")) })),
    };
    let serving = handler_ssh::serve(theirs, key, target, stage.stop.clone());
    let talk = async {
        ours.write_all(b"SSH-2.0-x\r\n").await?;
        ours.write_all(&[0xff; 50_000]).await?;
        anyhow::Ok(())
    };
    let (served, _) = tokio::time::timeout(LONG, async { tokio::join!(serving, talk) }).await?;
    assert!(served.is_err());
    Ok(())
}
