//! Much output and much input: whole, in order, and with bounded memory.

use crate::support::{LONG, Piece, Sandbox, has_tools, status_bytes, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{World, eventually};
use handler_types::api::{ExecRequest, StreamCommand};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

/// How much memory a stalled gigabyte may cost.
const GROWTH: u64 = 64 << 20;

/// The SHA-256 of what is written to it, by the system's own program.
struct Digest(Child);

impl Digest {
    fn new() -> anyhow::Result<Self> {
        let child = Command::new("sha256sum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    fn add(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self
            .0
            .stdin
            .as_mut()
            .context("its input")?
            .write_all(bytes)?)
    }

    fn finish(mut self) -> anyhow::Result<String> {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output()?;
        Ok(String::from_utf8(output.stdout)?
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned())
    }
}

fn guests(world: &World) -> Vec<u32> {
    let is_guest = |argv: &[String]| {
        argv.first()
            .is_some_and(|program| program.contains("handler-guest"))
    };
    let members = world.processes().into_iter();
    members
        .filter(|member| is_guest(&member.argv))
        .map(|member| member.pid.cast_unsigned())
        .collect()
}

#[tokio::test]
async fn a_gigabyte_before_a_stalled_reader_arrives_whole_and_costs_little_memory()
-> anyhow::Result<()> {
    if !has_tools("a_gigabyte_before_a_stalled_reader", &["sha256sum", "seq"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let daemon = world.daemon_pid().context("it runs")?;
    // Numbered lines: a lost, doubled or swapped piece changes the digest.
    let make = "seq 1000000000 1097612895";
    let wanted = Command::new("sh")
        .args(["-c", &format!("{make} | sha256sum")])
        .stdout(Stdio::piped())
        .spawn()?;
    let inside = guests(&world);
    ensure!(!inside.is_empty(), "no guest is found");
    let before = status_bytes(daemon, "VmRSS")?;
    let guest_before: Vec<u64> = inside
        .iter()
        .map(|pid| status_bytes(*pid, "VmRSS"))
        .collect::<Result<_, _>>()?;
    let process = sandbox.start(&format!("exec {make}")).await?;
    let mut feed = sandbox.attach(process, None).await?;
    let mut digest = Digest::new()?;
    if let Piece::Output(1, bytes) = feed.next().await? {
        digest.add(&bytes)?;
    }
    // Nobody reads: the process is stopped by back-pressure, and others go on.
    let last = std::cell::Cell::new(0);
    eventually("the process to stall", LONG, || async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let now = sandbox.progress(process).await.ok()?.0;
        let has_stalled = now > 0 && now == last.replace(now);
        has_stalled.then_some(())
    })
    .await?;
    let (stalled_at, exit) = sandbox.progress(process).await?;
    assert!(
        exit.is_none() && stalled_at < 64 << 20,
        "{stalled_at} bytes were taken ahead"
    );
    assert_eq!(sandbox.out("echo others go on").await?, "others go on");
    let exit = loop {
        match feed.next().await? {
            Piece::Output(stream, bytes) => {
                ensure!(stream == 1, "stream {stream}");
                digest.add(&bytes)?;
            }
            Piece::Exited(exit) => break exit,
            Piece::Closed(reason) => anyhow::bail!("closed: {reason}"),
        }
    };
    assert_eq!((exit.code, feed.offset), (0, 1_073_741_856));
    let wanted = String::from_utf8(wanted.wait_with_output()?.stdout)?;
    assert_eq!(Some(digest.finish()?.as_str()), wanted.split(' ').next());
    let peak = status_bytes(daemon, "VmHWM")?;
    assert!(
        peak < before + GROWTH,
        "the daemon grew from {before} to {peak}"
    );
    for (pid, before) in inside.iter().zip(guest_before) {
        let peak = status_bytes(*pid, "VmHWM")?;
        assert!(
            peak < before + GROWTH,
            "the guest grew from {before} to {peak}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn input_is_taken_whole_over_the_socket_and_by_offset_over_http() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let request = ExecRequest {
        argv: ["sha256sum"].map(str::to_owned).to_vec(),
        open_stdin: true,
        ..Default::default()
    };
    let started = sandbox.client.start_process(&sandbox.id, &request).await?;
    let mut feed = sandbox.attach(started.process, None).await?;
    let mut digest = Digest::new()?;
    for number in 0..400_u32 {
        let piece = number.to_be_bytes().repeat(4096);
        digest.add(&piece)?;
        feed.socket.send_binary(piece.into()).await?;
    }
    feed.send(&StreamCommand::CloseStdin).await?;
    let (out, exit) = feed.rest().await?;
    assert_eq!(exit.code, 0);
    assert_eq!(
        String::from_utf8(out)?,
        format!("{}  -\n", digest.finish()?)
    );
    let stdin = ExecRequest {
        argv: vec!["cat".into()],
        stdin: Some("buffered ü".into()),
        ..Default::default()
    };
    assert_eq!(
        sandbox.client.exec(&sandbox.id, &stdin).await?.stdout,
        "buffered ü"
    );
    Ok(())
}
