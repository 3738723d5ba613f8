//! Commands in a sandbox: exit codes, signals, arguments, trees, kept processes, many at once.

use crate::support::{LONG, Piece, Sandbox, project, text, world};
use anyhow::ensure;
use handler_testkit::eventually;
use handler_types::api::{ExecRequest, SignalRequest};
use handler_types::sandbox::CreateSandbox;
use std::collections::BTreeMap;

/// A command that was answered is soon forgotten.
async fn nothing_kept(sandbox: &Sandbox) -> anyhow::Result<()> {
    eventually("answered commands to be forgotten", LONG, || async {
        sandbox
            .client
            .processes(&sandbox.id)
            .await
            .ok()?
            .is_empty()
            .then_some(())
    })
    .await
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
    eventually("the whole tree", LONG, || async {
        (sandbox.sh(count).await.ok()?.stdout == "4\n").then_some(())
    })
    .await?;
    let exit = sandbox.ended(started.process).await?;
    assert!(exit.timed_out && exit.signal == Some(9), "{exit:?}");
    assert_eq!(sandbox.sh(count).await?.stdout, "0\n");
    let host = world
        .processes()
        .iter()
        .any(|member| member.argv.iter().any(|arg| arg.starts_with("753")));
    assert!(!host, "{:?}", world.processes());
    Ok(())
}

#[tokio::test]
async fn the_command_line_ends_as_the_command_did_and_keeps_its_streams_apart() -> anyhow::Result<()>
{
    let world = world().await?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
        .await?;
    let exec = |script: &'static str| ["sandbox", "exec", "box", "--", "sh", "-c", script];
    for code in [0, 1, 7, 127, 255] {
        let script: &'static str = ["exit 0", "exit 1", "exit 7", "exit 127", "exit 255"][match code
        {
            0 => 0,
            1 => 1,
            7 => 2,
            127 => 3,
            _ => 4,
        }];
        assert_eq!(
            world.cli(&exec(script)).await?.status.code(),
            Some(code),
            "{script}"
        );
    }
    assert_eq!(
        world.cli(&exec("kill -TERM $$")).await?.status.code(),
        Some(143)
    );
    let both = world.cli(&exec("echo out; echo err >&2")).await?;
    assert_eq!(
        (both.stdout.as_slice(), both.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    let args = [
        "sandbox",
        "exec",
        "-i",
        "box",
        "--",
        "sh",
        "-c",
        "tr a-z A-Z; exit 3",
    ];
    let piped = world
        .cli_with_input(&args, "grüße\n".repeat(50_000).as_bytes())
        .await?;
    assert_eq!(
        piped.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&piped.stderr)
    );
    assert_eq!(piped.stdout.len(), "grüße\n".len() * 50_000);
    let late = world
        .cli(&[
            "sandbox",
            "exec",
            "--timeout",
            "0.5",
            "box",
            "--",
            "sleep",
            "60",
        ])
        .await?;
    assert_eq!(late.status.code(), Some(137));
    assert!(
        String::from_utf8_lossy(&late.stderr).contains("time limit"),
        "{late:?}"
    );
    let unknown = world
        .cli(&["sandbox", "exec", "box", "--", "no-such-program"])
        .await?;
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        told.contains("no-such-program") && told.lines().count() <= 2,
        "{told}"
    );
    assert!(!unknown.status.success());
    assert_eq!(
        world
            .cli(&["sandbox", "exec", "nobody", "--", "true"])
            .await?
            .status
            .code(),
        Some(4)
    );
    nothing_kept(&Sandbox {
        client: world.client(),
        id: "box".into(),
    })
    .await
}

#[tokio::test]
async fn arguments_variables_and_folders_keep_every_character() -> anyhow::Result<()> {
    let world = world().await?;
    let folder = project(&world, "mit Leerzeichen ü 漢字 'q' \"d\" $HOME;*")?;
    let spec = CreateSandbox {
        scope: Some(text(&folder)?),
        ..Default::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    let odd = [
        "",
        " ",
        "grüße",
        "漢字 🦀",
        "a\nb",
        "$(id)",
        "--",
        "'\"\\",
        "\u{1b}[0m",
    ];
    let mut argv = vec![
        "sh".to_owned(),
        "-c".into(),
        "pwd; printf '%s|' \"$ODD\" \"$@\"".into(),
        "sh".into(),
    ];
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
        let request = ExecRequest {
            argv,
            ..Default::default()
        };
        let error = sandbox
            .client
            .exec(&sandbox.id, &request)
            .await
            .expect_err("refused");
        assert_eq!(
            error.problem().map(|problem| problem.status),
            Some(400),
            "{error}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_detached_process_is_listed_attached_again_from_any_offset_and_signalled()
-> anyhow::Result<()> {
    let world = world().await?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
        .await?;
    let sandbox = Sandbox {
        client: world.client(),
        id: "box".into(),
    };
    let script = "printf 0123456789; read line; printf \"got $line\"; exec sleep 7641";
    let number = world
        .cli_ok(&[
            "sandbox",
            "exec",
            "--detach",
            "box",
            "--",
            "sh",
            "-c",
            "echo one; echo two",
        ])
        .await?;
    let number: u32 = number.trim().parse()?;
    sandbox.ended(number).await?;
    assert_eq!(
        world
            .cli_ok(&["sandbox", "follow", "box", &number.to_string()])
            .await?,
        "one\ntwo\n"
    );
    let request = ExecRequest {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        open_stdin: true,
        tag: "mine".into(),
        ..Default::default()
    };
    let started = sandbox.client.start_process("box", &request).await?;
    let listed = world.cli_ok(&["sandbox", "ps", "box"]).await?;
    assert!(
        listed.contains("printf 0123456789") && listed.contains("running"),
        "{listed}"
    );
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
    assert!(
        said == "got hello" || said == "0123456789got hello",
        "{said}"
    );
    assert_eq!(second.offset, 19);
    // The newest has the stream; the older one is told.
    let mut third = sandbox.attach(started.process, Some(19)).await?;
    assert!(matches!(second.next().await?, Piece::Closed(_)));
    let signal = SignalRequest {
        signal: 15,
        tree: true,
    };
    sandbox
        .client
        .signal("box", started.process, &signal)
        .await?;
    let (rest, exit) = third.rest().await?;
    assert_eq!((rest.len(), exit.code, exit.signal), (0, 143, Some(15)));
    let gone = sandbox.attach(9999, None).await;
    assert!(gone.is_err());
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
            let done = sandbox
                .exec(&[
                    "sh",
                    "-c",
                    "echo \"$1\"; exit $(($1 % 7))",
                    "sh",
                    &number.to_string(),
                ])
                .await?;
            ensure!(
                done.stdout == format!("{number}\n") && done.exit.code == number % 7,
                "{number}: {done:?}"
            );
            anyhow::Ok(())
        });
    }
    let mut answered = 0;
    while let Some(done) = running.join_next().await {
        done??;
        answered += 1;
    }
    assert_eq!(answered, 200);
    nothing_kept(&sandbox).await
}
