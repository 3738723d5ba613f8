//! The life of sandboxes: made, found, stopped, started, limited, removed, and nothing left of them.

use crate::support::{LONG, Sandbox, has_tools, is_root, is_soak, project, say, show, text, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{World, skip};
use handler_types::sandbox::{CreateSandbox, SandboxState};
use std::os::unix::fs::MetadataExt as _;

#[tokio::test]
async fn a_sandbox_is_made_shown_stopped_started_with_its_home_and_removed() -> anyhow::Result<()> {
    let world = world().await?;
    let folder = project(&world, "app")?;
    let args = [
        "sandbox",
        "up",
        "--folder",
        folder.to_str().context("text")?,
        "--name",
        "box",
        "--label",
        "team=a",
    ];
    assert_eq!(world.cli_ok(&args).await?, "box\n");
    let sandbox = Sandbox {
        client: world.client(),
        id: "box".into(),
    };
    sandbox
        .out("echo kept > ~/file; echo lost > /tmp/file; echo shared > file")
        .await?;
    let list = world.cli_ok(&["sandbox", "list"]).await?;
    assert!(
        list.contains("box") && list.contains("running") && list.contains("/app"),
        "{list}"
    );
    let shown: serde_json::Value =
        serde_json::from_str(&world.cli_ok(&["sandbox", "show", "box"]).await?)?;
    assert_eq!(
        (shown["state"].as_str(), shown["labels"]["team"].as_str()),
        (Some("running"), Some("a"))
    );
    world.cli_ok(&["sandbox", "stop", "box"]).await?;
    assert_eq!(
        world.client().sandbox("box").await?.state,
        SandboxState::Stopped
    );
    let early = world.cli(&["sandbox", "exec", "box", "--", "true"]).await?;
    assert_eq!(early.status.code(), Some(1), "{early:?}");
    assert!(show(&early.stderr).contains("stopped"), "{early:?}");
    let inside = world
        .leftovers()
        .into_iter()
        .any(|left| matches!(left, handler_testkit::Leftover::Process(_)));
    assert!(!inside, "{:?}", world.leftovers());
    world.cli_ok(&["sandbox", "start", "box"]).await?;
    assert_eq!(
        sandbox
            .out("cat ~/file file; ls /tmp/file 2>/dev/null || echo gone")
            .await?,
        "kept\nshared\ngone"
    );
    world.cli_ok(&["sandbox", "down", "box"]).await?;
    assert_eq!(
        world.cli(&["sandbox", "show", "box"]).await?.status.code(),
        Some(4)
    );
    assert_eq!(std::fs::read(folder.join("file"))?, b"shared\n");
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn names_are_unique_ids_are_found_by_their_beginning_and_lists_have_pages()
-> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let named = |name: &str| CreateSandbox {
        name: Some(name.into()),
        ..Default::default()
    };
    let first = client.create_sandbox(&named("one")).await?;
    let again = client
        .create_sandbox(&named("one"))
        .await
        .expect_err("taken");
    assert_eq!(
        again.problem().map(|problem| problem.status),
        Some(409),
        "{again}"
    );
    // Many that want the same name at once: one gets it.
    let mut race = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        race.spawn(async move { client.create_sandbox(&named_race()).await.is_ok() });
    }
    let won = race.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
    let id = first.id.as_str();
    for text in [id, &id[..14], "one"] {
        assert_eq!(client.sandbox(text).await?.id, first.id, "{text}");
    }
    let ambiguous = client.sandbox("sb").await.expect_err("both");
    assert_eq!(
        ambiguous.problem().map(|problem| problem.status),
        Some(409),
        "{ambiguous}"
    );
    assert_eq!(
        client
            .sandbox("sbzz")
            .await
            .expect_err("none")
            .problem()
            .map(|p| p.status),
        Some(404)
    );
    for wrong in [
        "Upper",
        "with space",
        "ü",
        "-a",
        "",
        "a/b",
        "..",
        &"x".repeat(64),
        id,
    ] {
        let name = format!("--name={wrong}");
        let refused = world.cli(&["sandbox", "up", "--no-folder", &name]).await?;
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{wrong}: {}",
            show(&refused.stderr)
        );
        assert!(
            show(&refused.stderr).lines().count() <= 2,
            "{}",
            show(&refused.stderr)
        );
    }
    client.create_sandbox(&named("three")).await?;
    let page = client.sandboxes("", 2).await?;
    let next = page.next_cursor.context("a second page")?;
    let rest = client.sandboxes(&next, 2).await?;
    let names: Vec<&str> = page
        .items
        .iter()
        .chain(&rest.items)
        .map(|view| view.name.as_str())
        .collect();
    assert_eq!(names, ["three", "raced", "one"]);
    assert!(rest.next_cursor.is_none());
    for cursor in ["nonsense", "\0", "../x", &next[..4]] {
        assert!(client.sandboxes(cursor, 2).await.is_err(), "{cursor}");
    }
    Ok(())
}

fn named_race() -> CreateSandbox {
    CreateSandbox {
        name: Some("raced".into()),
        ..Default::default()
    }
}

/// Whether limits can be enforced here; else says so.
async fn has_limits(world: &World, test: &str) -> anyhow::Result<bool> {
    let backends = world.client().backends().await?;
    let native = backends
        .iter()
        .find(|backend| backend.name == "native")
        .context("native")?;
    let limits = native
        .checks
        .iter()
        .find(|check| check.name == "limits")
        .context("limits")?;
    let can = limits.status == handler_types::api::CheckStatus::Ok;
    if !can {
        skip(test, &limits.detail);
    }
    Ok(can)
}

#[tokio::test]
async fn a_limit_is_enforced_or_refused_and_never_pretended() -> anyhow::Result<()> {
    if !has_tools("a_limit_is_enforced_or_refused", &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let up = [
        "sandbox",
        "up",
        "--no-folder",
        "--name",
        "small",
        "--memory",
        "64",
        "--pids",
        "40",
    ];
    if !has_limits(
        &world,
        "a_limit_is_enforced (what cannot be enforced is refused: tested)",
    )
    .await?
    {
        let refused = world.cli(&up).await?;
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        let taken = world
            .cli(&[&up[..], &["--best-effort-limits"]].concat())
            .await?;
        assert!(
            taken.status.success() && show(&taken.stderr).contains("warning"),
            "{taken:?}"
        );
        return Ok(());
    }
    world.cli_ok(&up).await?;
    let sandbox = Sandbox {
        client: world.client(),
        id: "small".into(),
    };
    let hog = sandbox
        .python("x=[]\nwhile len(x)<400: x.append(bytearray(b'x')*(1<<20))\nprint('had it all')")
        .await?;
    assert!(
        hog.exit.code != 0 && !hog.stdout.contains("had it all"),
        "{hog:?}"
    );
    let forked = "import os,signal\nmade=[]\ntry:\n  while len(made)<200:\n    pid=os.fork()\n    if pid==0: signal.pause()\n\
                  \x20   made.append(pid)\nexcept OSError as error: print(error)\n\
                  for pid in made: os.kill(pid,9); os.waitpid(pid,0)\nprint(len(made))";
    let forked = sandbox.python(forked).await?.stdout;
    let count: u32 = forked.lines().last().context("a number")?.parse()?;
    assert!(
        (10..40).contains(&count) && forked.contains("unavailable"),
        "{forked}"
    );
    // The sandbox goes on, and so does its neighbour.
    assert_eq!(sandbox.out("echo on").await?, "on");
    let other = Sandbox::plain(&world).await?;
    assert_eq!(other.out("echo on").await?, "on");
    world
        .cli_ok(&["sandbox", "down", "small", &other.id])
        .await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn what_is_made_in_the_project_belongs_to_the_caller_and_stays() -> anyhow::Result<()> {
    let world = world().await?;
    let folder = project(&world, "app")?;
    std::fs::write(folder.join("before"), "mine")?;
    let spec = CreateSandbox {
        scope: Some(text(&folder)?),
        ..Default::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    assert_eq!(sandbox.out("pwd").await?, text(&folder)?);
    sandbox.out("mkdir -p deep/er && echo new > deep/er/file && chmod 000 deep/er/file && git init -q . || true").await?;
    let meta = std::fs::metadata(folder.join("deep/er/file"))?;
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (uid, gid, 0));
    let second = Sandbox::up(&world, &spec).await?;
    assert_eq!(second.out("cat before").await?, "mine");
    for id in [&sandbox.id, &second.id] {
        world.cli_ok(&["sandbox", "down", id]).await?;
    }
    assert_eq!(std::fs::read(folder.join("before"))?, b"mine");
    assert!(folder.join("deep/er/file").exists());
    world.assert_clean(LONG).await
}

/// One sandbox made, used and removed.
async fn round(world: &World, number: usize) -> anyhow::Result<()> {
    let spec = CreateSandbox {
        scope: Some(text(project(world, "app")?)?),
        ..Default::default()
    };
    let sandbox = Sandbox::up(world, &spec)
        .await
        .with_context(|| format!("round {number}"))?;
    match number % 3 {
        0 => ensure!(
            sandbox
                .out("(setsid sleep 900 &); echo on; mkdir -p ~/a/b; touch ~/a/b/c")
                .await?
                == "on"
        ),
        1 => {
            sandbox.start("exec sleep 900").await?;
        }
        _ => {}
    }
    Ok(world.client().delete_sandbox(&sandbox.id).await?)
}

fn daemon_counts(world: &World) -> anyhow::Result<(usize, usize, usize)> {
    let pid = world.daemon_pid().context("it runs")?;
    let count = |what: &str| anyhow::Ok(std::fs::read_dir(format!("/proc/{pid}/{what}"))?.count());
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    Ok((
        count("fd")?,
        count("task")?,
        children.split_whitespace().count(),
    ))
}

#[tokio::test]
async fn many_rounds_of_making_and_removing_leave_nothing_behind() -> anyhow::Result<()> {
    let rounds: usize = if is_soak() { 2000 } else { 150 };
    let world = world().await?;
    for number in 0..8 {
        round(&world, number).await?;
    }
    let before = daemon_counts(&world)?;
    let next = std::sync::atomic::AtomicUsize::new(0);
    let worker = || async {
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if number >= rounds {
                return anyhow::Ok(());
            }
            round(&world, number).await?;
        }
    };
    tokio::try_join!(worker(), worker(), worker(), worker())?;
    assert_eq!(world.client().sandboxes("", 10).await?.items.len(), 0);
    world.assert_clean(LONG).await?;
    let after = daemon_counts(&world)?;
    assert!(
        after.0 <= before.0 + 8 && after.1 <= before.1 + 8 && after.2 <= before.2,
        "{before:?} became {after:?}"
    );
    let rows = world.scratch().folder("state");
    let left: Vec<_> = std::fs::read_dir(rows)?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(left.len() < 16, "{left:?}");
    say(&format!(
        "{rounds} rounds of create and destroy left nothing (root: {})",
        is_root()
    ));
    Ok(())
}
