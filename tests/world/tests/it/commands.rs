//! Commands in a sandbox: output whole and bounded in memory, exit codes, signals, input, trees, many at once.

use crate::support::{LONG, Piece, Sandbox, has_tools, project, status_bytes, text, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{World, eventually};
use handler_types::api::{ExecRequest, SignalRequest, StreamCommand};
use handler_types::sandbox::CreateSandbox;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

/// How much memory a stalled gigabyte may cost.
const GROWTH: u64 = 64 << 20;

/// The SHA-256 of what is written to it, by the system's own program.
struct Digest(Child);

impl Digest {
    fn new() -> anyhow::Result<Self> {
        let child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        Ok(Self(child))
    }

    fn add(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.0.stdin.as_mut().context("its input")?.write_all(bytes)?)
    }

    fn finish(mut self) -> anyhow::Result<String> {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output()?;
        Ok(String::from_utf8(output.stdout)?.split(' ').next().unwrap_or_default().to_owned())
    }
}

fn guests(world: &World) -> Vec<u32> {
    let is_guest = |argv: &[String]| argv.first().is_some_and(|program| program.contains("handler-guest"));
    let members = world.processes().into_iter();
    members.filter(|member| is_guest(&member.argv)).map(|member| member.pid.cast_unsigned()).collect()
}

#[tokio::test]
async fn a_gigabyte_before_a_stalled_reader_arrives_whole_and_costs_little_memory() -> anyhow::Result<()> {
    if !has_tools("a_gigabyte_before_a_stalled_reader", &["sha256sum", "seq"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let daemon = world.daemon_pid().context("it runs")?;
    // Numbered lines: a lost, doubled or swapped piece changes the digest.
    let make = "seq 1000000000 1097612895";
    let wanted = Command::new("sh").args(["-c", &format!("{make} | sha256sum")]).stdout(Stdio::piped()).spawn()?;
    let inside = guests(&world);
    ensure!(!inside.is_empty(), "no guest is found");
    let before = status_bytes(daemon, "VmRSS")?;
    let guest_before: Vec<u64> = inside.iter().map(|pid| status_bytes(*pid, "VmRSS")).collect::<Result<_, _>>()?;
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
    assert!(exit.is_none() && stalled_at < 64 << 20, "{stalled_at} bytes were taken ahead");
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
    assert!(peak < before + GROWTH, "the daemon grew from {before} to {peak}");
    for (pid, before) in inside.iter().zip(guest_before) {
        let peak = status_bytes(*pid, "VmHWM")?;
        assert!(peak < before + GROWTH, "the guest grew from {before} to {peak}");
    }
    Ok(())
}

#[tokio::test]
async fn a_tree_that_left_its_session_dies_at_the_time_limit() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let script = "(setsid sh -c '(setsid sleep 7531 &) ; (trap \"\" TERM; setsid sleep 7532) & sleep 7533' &) ; \
                  trap '' TERM INT HUP; sleep 7534; sleep 7535";
    let request = ExecRequest {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        timeout_ms: Some(1500),
        ..Default::default()
    };
    let started = sandbox.client.start_process(&sandbox.id, &request).await?;
    let count = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -c '^sleep 753'";
    eventually("the whole tree", LONG, || async { (sandbox.sh(count).await.ok()?.stdout == "4\n").then_some(()) }).await?;
    let exit = sandbox.ended(started.process).await?;
    assert!(exit.timed_out && exit.signal == Some(9), "{exit:?}");
    assert_eq!(sandbox.sh(count).await?.stdout, "0\n");
    let host = world.processes().iter().any(|member| member.argv.iter().any(|arg| arg.starts_with("753")));
    assert!(!host, "{:?}", world.processes());
    Ok(())
}

#[tokio::test]
async fn the_command_line_ends_as_the_command_did_and_keeps_its_streams_apart() -> anyhow::Result<()> {
    let world = world().await?;
    world.cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"]).await?;
    let exec = |script: &'static str| ["sandbox", "exec", "box", "--", "sh", "-c", script];
    for code in [0, 1, 7, 127, 255] {
        let script: &'static str = ["exit 0", "exit 1", "exit 7", "exit 127", "exit 255"][match code {
            0 => 0, 1 => 1, 7 => 2, 127 => 3, _ => 4,
        }];
        assert_eq!(world.cli(&exec(script)).await?.status.code(), Some(code), "{script}");
    }
    assert_eq!(world.cli(&exec("kill -TERM $$")).await?.status.code(), Some(143));
    let both = world.cli(&exec("echo out; echo err >&2")).await?;
    assert_eq!((both.stdout.as_slice(), both.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    let args = ["sandbox", "exec", "-i", "box", "--", "sh", "-c", "tr a-z A-Z; exit 3"];
    let piped = world.cli_with_input(&args, "grüße\n".repeat(50_000).as_bytes()).await?;
    assert_eq!(piped.status.code(), Some(3), "{}", String::from_utf8_lossy(&piped.stderr));
    assert_eq!(piped.stdout.len(), "grüße\n".len() * 50_000);
    let late = world.cli(&["sandbox", "exec", "--timeout", "0.5", "box", "--", "sleep", "60"]).await?;
    assert_eq!(late.status.code(), Some(137));
    assert!(String::from_utf8_lossy(&late.stderr).contains("time limit"), "{late:?}");
    let unknown = world.cli(&["sandbox", "exec", "box", "--", "no-such-program"]).await?;
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(told.contains("no-such-program") && told.lines().count() <= 2, "{told}");
    assert!(!unknown.status.success());
    assert_eq!(world.cli(&["sandbox", "exec", "nobody", "--", "true"]).await?.status.code(), Some(4));
    // Nothing of all this is kept.
    assert_eq!(world.client().processes("box").await?, Vec::new());
    Ok(())
}

#[tokio::test]
async fn arguments_variables_and_folders_keep_every_character() -> anyhow::Result<()> {
    let world = world().await?;
    let folder = project(&world, "mit Leerzeichen ü 漢字 'q' \"d\" $HOME;*")?;
    let spec = CreateSandbox { scope: Some(text(&folder)?), ..Default::default() };
    let sandbox = Sandbox::up(&world, &spec).await?;
    let odd = ["", " ", "grüße", "漢字 🦀", "a\nb", "$(id)", "--", "'\"\\", "\u{1b}[0m"];
    let mut argv = vec!["sh".to_owned(), "-c".into(), "pwd; printf '%s|' \"$ODD\" \"$@\"".into(), "sh".into()];
    argv.extend(odd.map(str::to_owned));
    let request = ExecRequest {
        argv,
        env: BTreeMap::from([("ODD".to_owned(), "é\n漢 '\"".to_owned())]),
        ..Default::default()
    };
    let done = sandbox.client.exec(&sandbox.id, &request).await?;
    let wanted = format!("{}\né\n漢 '\"|{}|", folder.display(), odd.join("|"));
    assert_eq!(done.stdout, wanted);
    for argv in [vec![], vec![String::new()], vec!["a\0b".to_owned()]] {
        let request = ExecRequest { argv, ..Default::default() };
        let error = sandbox.client.exec(&sandbox.id, &request).await.expect_err("refused");
        assert_eq!(error.problem().map(|problem| problem.status), Some(400), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_detached_process_is_listed_attached_again_from_any_offset_and_signalled() -> anyhow::Result<()> {
    let world = world().await?;
    world.cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"]).await?;
    let sandbox = Sandbox { client: world.client(), id: "box".into() };
    let script = "printf 0123456789; read line; printf \"got $line\"; exec sleep 7641";
    let number = world.cli_ok(&["sandbox", "exec", "--detach", "box", "--", "sh", "-c", "echo one; echo two"]).await?;
    let number: u32 = number.trim().parse()?;
    sandbox.ended(number).await?;
    assert_eq!(world.cli_ok(&["sandbox", "attach", "box", &number.to_string()]).await?, "one\ntwo\n");
    let request = ExecRequest {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        open_stdin: true,
        tag: "mine".into(),
        ..Default::default()
    };
    let started = sandbox.client.start_process("box", &request).await?;
    let listed = world.cli_ok(&["sandbox", "ps", "box"]).await?;
    assert!(listed.contains("printf 0123456789") && listed.contains("running"), "{listed}");
    let mut first = sandbox.attach(started.process, None).await?;
    first.until("0123456789").await?;
    first.socket.close().await;
    eventually("all output to be known", LONG, || async {
        (sandbox.progress(started.process).await.ok()?.0 == 10).then_some(())
    })
    .await?;
    let mut second = sandbox.attach(started.process, None).await?;
    second.type_in("hello\n").await?;
    let said = second.until("got hello").await?;
    assert!(said == "got hello" || said == "0123456789got hello", "{said}");
    assert_eq!(second.offset, 19);
    // The newest has the stream; the older one is told.
    let mut third = sandbox.attach(started.process, Some(19)).await?;
    assert!(matches!(second.next().await?, Piece::Closed(_)));
    let signal = SignalRequest { signal: 15, tree: true };
    sandbox.client.signal("box", started.process, &signal).await?;
    let (rest, exit) = third.rest().await?;
    assert_eq!((rest.len(), exit.code, exit.signal), (0, 143, Some(15)));
    let gone = sandbox.attach(9999, None).await;
    assert!(gone.is_err());
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
    assert_eq!(String::from_utf8(out)?, format!("{}  -\n", digest.finish()?));
    let stdin = ExecRequest { argv: vec!["cat".into()], stdin: Some("buffered ü".into()), ..Default::default() };
    assert_eq!(sandbox.client.exec(&sandbox.id, &stdin).await?.stdout, "buffered ü");
    Ok(())
}

#[tokio::test]
async fn two_hundred_clients_at_once_each_get_their_own_answer() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..200 {
        let sandbox = sandbox.clone();
        running.spawn(async move {
            let done = sandbox.exec(&["sh", "-c", "echo \"$1\"; exit $(($1 % 7))", "sh", &number.to_string()]).await?;
            ensure!(done.stdout == format!("{number}\n") && done.exit.code == number % 7, "{number}: {done:?}");
            anyhow::Ok(())
        });
    }
    let mut answered = 0;
    while let Some(done) = running.join_next().await {
        done??;
        answered += 1;
    }
    assert_eq!(answered, 200);
    assert_eq!(sandbox.client.processes(&sandbox.id).await?, Vec::new());
    Ok(())
}
