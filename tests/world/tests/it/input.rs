//! Bad input: one clear message each, and the documented exit code.

use crate::support::{Sandbox, project, show, text, world};
use anyhow::{Context as _, ensure};
use handler_testkit::World;
use handler_types::api::ProviderRequest;
use handler_types::provider::{Protocol, ProviderModel};
use handler_types::sandbox::CreateSandbox;
use std::os::unix::fs::symlink;
use std::process::Output;

/// The one message of a failure: one line, perhaps a hint below; no trace, no nested dump.
pub(crate) fn message(output: &Output, code: i32) -> anyhow::Result<String> {
    let told = show(&output.stderr);
    ensure!(
        output.status.code() == Some(code),
        "{:?}, not {code}: {told}",
        output.status
    );
    let lines: Vec<&str> = told.lines().collect();
    ensure!(
        !lines.is_empty() && lines.len() <= 2,
        "not one message: {told}"
    );
    ensure!(lines[0].starts_with("handler: "), "{told}");
    ensure!(
        lines.get(1).is_none_or(|line| line.starts_with("hint: ")),
        "{told}"
    );
    ensure!(
        !told.contains("panicked") && !told.contains("Error {") && lines[0].len() < 600,
        "{told}"
    );
    Ok(told)
}

fn model(world: &World) -> ProviderRequest {
    ProviderRequest {
        name: "fake".into(),
        endpoints: [(Protocol::OpenaiChat, "http://127.0.0.1:9/v1".to_owned())].into(),
        models: vec![ProviderModel {
            id: "m".into(),
            ..Default::default()
        }],
        key: Some(format!("sk-{}", world.scratch().mark())),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_unknown_harness_and_a_missing_provider_are_named_with_what_to_do() -> anyhow::Result<()>
{
    let world = world().await?;
    let none = world.cli(&["run", "x"]).await?;
    let told = message(&none, none.status.code().unwrap_or(-1))?;
    assert!([2, 3].contains(&none.status.code().unwrap_or(-1)), "{told}");
    world.client().add_provider(&model(&world)).await?;
    let unknown = world
        .cli(&["run", "--harness", "nope", "--provider", "fake", "x"])
        .await?;
    let told = message(&unknown, unknown.status.code().unwrap_or(-1))?;
    assert!(
        [2, 3, 4].contains(&unknown.status.code().unwrap_or(-1)),
        "{told}"
    );
    assert!(
        told.contains("nope") && told.contains("pi") && told.contains("claude-code"),
        "{told}"
    );
    let missing = world
        .cli(&["run", "--harness", "pi", "--provider", "nobody", "x"])
        .await?;
    let told = message(&missing, 3)?;
    assert!(
        told.contains("nobody") && told.contains("handler provider add"),
        "{told}"
    );
    let absent = world
        .cli(&["run", "--harness", "pi", "--provider", "fake", "x"])
        .await?;
    let told = message(&absent, 3)?;
    assert!(told.contains("handler harness install pi"), "{told}");
    let install = world
        .cli(&["--quiet", "harness", "install", "nope"])
        .await?;
    let told = message(&install, install.status.code().unwrap_or(-1))?;
    assert!(told.contains("nope"), "{told}");
    let template = world
        .cli(&["provider", "add", "x", "--from", "nope", "--no-key"])
        .await?;
    let told = message(&template, 2)?;
    assert!(
        told.contains("nope") && told.contains("anthropic"),
        "{told}"
    );
    Ok(())
}

#[tokio::test]
async fn a_broken_provider_file_is_listed_with_its_line_and_breaks_no_other() -> anyhow::Result<()>
{
    let world = world().await?;
    world.client().add_provider(&model(&world)).await?;
    let folder = world.scratch().folder("config").join("providers");
    let good = std::fs::read_to_string(folder.join("fake.toml"))?;
    std::fs::write(
        folder.join("torn.toml"),
        "apiVersion = \"handler/v1\nendpoints",
    )?;
    std::fs::write(
        folder.join("typo.toml"),
        format!("descripton = \"x\"\n{good}"),
    )?;
    std::fs::write(folder.join("bytes.toml"), [0xff, 0xfe, 0])?;
    let listed = world.cli_ok(&["provider", "list"]).await?;
    let line = |name: &str| {
        listed
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(line("fake").contains("ready"), "{listed}");
    assert!(
        line("torn").contains("invalid") && line("torn").contains("torn.toml:"),
        "{listed}"
    );
    assert!(line("bytes").contains("invalid"), "{listed}");
    let typo = line("typo");
    assert!(
        typo.contains("descripton") && typo.contains("did you mean `description`"),
        "{listed}"
    );
    for name in ["torn", "typo", "bytes"] {
        let used = world
            .cli(&["run", "--harness", "pi", "--provider", name, "x"])
            .await?;
        let told = message(&used, 3)?;
        assert!(told.contains(&format!("{name}.toml")), "{told}");
    }
    let folders = world.scratch().folder("config").join("folders.toml");
    std::fs::write(&folders, "rots = [\"~/code\"]\n")?;
    let up = world
        .cli(&[
            "sandbox",
            "up",
            "--folder",
            world.work().to_str().context("text")?,
        ])
        .await?;
    let told = message(&up, 3)?;
    assert!(
        told.contains("folders.toml:1") && told.contains("did you mean `roots`"),
        "{told}"
    );
    Ok(())
}

#[tokio::test]
async fn a_folder_outside_the_work_folders_is_refused_however_it_is_named() -> anyhow::Result<()> {
    let world = world().await?;
    let home = world.scratch().folder("home");
    let hidden = home.join(".ssh");
    let outside = world.scratch().path().join("outside");
    for folder in [&hidden, &outside] {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(world.work().join("file"), "")?;
    symlink(&outside, world.work().join("link"))?;
    symlink("/", world.work().join("root"))?;
    let up = |folder: String| {
        let world = &world;
        async move { world.cli(&["sandbox", "up", "--folder", &folder]).await }
    };
    for folder in [
        text(&outside)?,
        text(&hidden)?,
        text(&home)?,
        text(world.work().join("link"))?,
        text(world.work().join("root"))?,
        text(world.work().join("../outside"))?,
        text(world.work().join("link/../outside"))?,
        "/".into(),
        "/etc".into(),
        "/proc".into(),
        "/tmp".into(),
        text(world.scratch().path())?,
        text(world.scratch().folder("state"))?,
        text(world.scratch().folder("config"))?,
    ] {
        let told = message(&up(folder.clone()).await?, 3).with_context(|| folder.clone())?;
        assert!(
            told.contains("folder") || told.contains("system"),
            "{folder}: {told}"
        );
    }
    let told = message(&up(text(&outside)?).await?, 3)?;
    assert!(told.contains("handler folder add"), "{told}");
    message(&up(text(world.work().join("nowhere"))?).await?, 2)?;
    message(&up(text(world.work().join("file"))?).await?, 2)?;
    let mount = format!("{}:/data", outside.display());
    message(
        &world
            .cli(&["sandbox", "up", "--no-folder", "--mount", &mount])
            .await?,
        3,
    )?;
    for target in [
        "/etc",
        "/proc/x",
        "/usr",
        "/",
        "relative",
        "/run/handler",
        "/dev",
        "/home/agent/../../etc",
    ] {
        let mount = format!("{}:{target}", world.work().display());
        let refused = world
            .cli(&["sandbox", "up", "--no-folder", "--mount", &mount])
            .await?;
        ensure!(
            [2, 3].contains(&refused.status.code().unwrap_or(-1)),
            "{target}: {refused:?}"
        );
        message(&refused, refused.status.code().unwrap_or(-1))?;
    }
    assert!(world.client().sandboxes("", 9).await?.items.is_empty());
    assert!(world.leftovers().is_empty(), "{:?}", world.leftovers());
    Ok(())
}

#[tokio::test]
async fn a_link_to_a_project_is_resolved_and_swapping_it_later_shows_nothing_else()
-> anyhow::Result<()> {
    let world = world().await?;
    let real = project(&world, "real project ü 漢字 'q'")?;
    std::fs::write(real.join("file"), "real")?;
    let link = world.work().join("link");
    symlink(&real, &link)?;
    let name = world
        .cli_ok(&["sandbox", "up", "--folder", link.to_str().context("text")?])
        .await?;
    let sandbox = Sandbox {
        client: world.client(),
        id: name.trim().into(),
    };
    let view = world.client().sandbox(&sandbox.id).await?;
    assert_eq!(view.scope, Some(text(&real)?));
    assert_eq!(
        sandbox.out("pwd; cat file").await?,
        format!("{}\nreal", real.display())
    );
    // Hidden in the home: no folder that may be given.
    let secret = world.scratch().folder("home").join(".secret");
    std::fs::create_dir(&secret)?;
    std::fs::write(secret.join("file"), "secret")?;
    let swap = |to: &std::path::Path| -> anyhow::Result<()> {
        std::fs::remove_file(&link)?;
        Ok(symlink(to, &link)?)
    };
    swap(&secret)?;
    assert_eq!(sandbox.out("cat file").await?, "real");
    world.cli_ok(&["sandbox", "stop", &sandbox.id]).await?;
    // The project itself becomes a link to what must not be shown.
    let aside = world.work().join("aside");
    std::fs::rename(&real, &aside)?;
    symlink(&secret, &real)?;
    let started = world.cli(&["sandbox", "start", &sandbox.id]).await?;
    if started.status.success() {
        let seen = sandbox.sh("cat file").await?;
        assert!(!seen.stdout.contains("secret"), "{seen:?}");
    } else {
        message(&started, started.status.code().unwrap_or(-1))?;
    }
    // While sandboxes are made, the link flips between a good and a bad folder.
    let flipping = world.work().join("flip");
    symlink(&aside, &flipping)?;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (until, at, good, bad) = (
        stop.clone(),
        flipping.clone(),
        aside.clone(),
        secret.clone(),
    );
    let flipper = std::thread::spawn(move || {
        let fresh = at.with_extension("new");
        while !until.load(std::sync::atomic::Ordering::SeqCst) {
            for to in [&bad, &good] {
                symlink(to, &fresh).ok();
                std::fs::rename(&fresh, &at).ok();
            }
        }
    });
    let mut made = 0;
    for _ in 0..40 {
        let spec = CreateSandbox {
            scope: Some(text(&flipping)?),
            ..Default::default()
        };
        if let Ok(sandbox) = Sandbox::up(&world, &spec).await {
            made += 1;
            assert_eq!(sandbox.out("cat file").await?, "real");
            world.client().delete_sandbox(&sandbox.id).await?;
        }
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    flipper.join().expect("no panic");
    assert!(made > 0, "the good folder was never taken");
    Ok(())
}

#[tokio::test]
async fn wrong_usage_is_told_in_one_line_with_exit_code_2() -> anyhow::Result<()> {
    let world = world().await?;
    for args in [
        &["sandbox", "up", "--no-folder", "--allow", "example.com"][..],
        &["sandbox", "up", "--no-folder", "--env", "NOVALUE"],
        &["sandbox", "up", "--no-folder", "--secret", "TOKEN=x"],
        &["sandbox", "up", "--no-folder", "--mount", "x"],
        &[
            "sandbox",
            "up",
            "--no-folder",
            "--network",
            "none",
            "--allow",
            "a.com:1",
        ],
        &["sandbox", "up", "--no-folder", "--memory", "lots"],
        &["sandbox", "up", "--no-folder", "--memory", "1"],
        &["sandbox", "up", "--no-folder", "--backend", "nope"],
        &["sandbox", "exec", "box"],
        &["sandbox", "exec", "--timeout", "-1", "box", "--", "true"],
        &["sandbox", "cp", "a", "b"],
        &["no-such-command"],
        &["secret", "set", "../evil"],
        &[
            "provider",
            "add",
            "Bad Name",
            "--from",
            "anthropic",
            "--no-key",
        ],
    ] {
        let output = world.cli(args).await?;
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            show(&output.stderr)
        );
        let told = show(&output.stderr);
        assert!(
            !told.is_empty() && !told.contains("panicked"),
            "{args:?}: {told}"
        );
    }
    assert!(world.client().sandboxes("", 9).await?.items.is_empty());
    Ok(())
}
