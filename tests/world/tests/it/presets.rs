//! Quick files, environment presets, and finding sandboxes again.

use crate::input::message;
use crate::support::{Sandbox, world};
use anyhow::ensure;
use handler_types::preset::QuickFile;
use handler_types::sandbox::CreateSandbox;
use std::collections::BTreeMap;

fn file(path: &str, content: &str) -> QuickFile {
    QuickFile {
        path: path.into(),
        content: Some(content.into()),
        ..QuickFile::default()
    }
}

#[tokio::test]
async fn quick_files_are_put_into_new_sandboxes_and_sensitive_ones_are_never_told()
-> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let text = format!("token={}\nsecond line ünï\n", handler_base::random::hex(12));
    let common = QuickFile {
        default: true,
        ..file("~/.config/tool.toml", "a = 1\n")
    };
    client.put_quick_file("tool", &common).await?;
    let sealed = QuickFile {
        sensitive: true,
        ..file("~/.netrc", &text)
    };
    let told = client.put_quick_file("netrc", &sealed).await?;
    ensure!(told.file.is_some_and(|file| file.content.is_none()));
    let plain = Sandbox::plain(&world).await?;
    ensure!(plain.out("cat ~/.config/tool.toml").await? == "a = 1");
    plain.fails("cat ~/.netrc").await?;
    let spec = CreateSandbox {
        quick_files: vec!["netrc".into()],
        no_default_files: true,
        files: BTreeMap::from([("/tmp/deep/er/own".to_owned(), "own\n".to_owned())]),
        ..CreateSandbox::default()
    };
    let other = Sandbox::up(&world, &spec).await?;
    ensure!(other.sh("cat ~/.netrc").await?.stdout == text);
    ensure!(
        other
            .out("stat -c %a ~/.netrc; cat /tmp/deep/er/own")
            .await?
            == "600\nown"
    );
    other.fails("cat ~/.config/tool.toml").await?;
    world
        .cli_ok(&["quick-file", "copy", "netrc", &plain.id])
        .await?;
    ensure!(plain.sh("cat ~/.netrc").await?.stdout == text);
    // Neither the API nor the disk tells the text.
    let shown = world.cli_ok(&["quick-file", "show", "netrc"]).await?
        + &world.cli_ok(&["quick-file", "list", "--json"]).await?;
    let needle = text
        .split_once('\n')
        .map(|(first, _)| first)
        .unwrap_or_default();
    ensure!(!shown.contains(needle));
    let dump = client.sandbox(&other.id).await?;
    ensure!(!serde_json::to_string(&dump)?.contains(needle));
    for folder in ["config", "state"] {
        let found = std::process::Command::new("grep")
            .args(["-rlF", "--exclude-dir=sandboxes", needle])
            .arg(world.scratch().folder(folder))
            .output()?;
        ensure!(
            found.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&found.stdout)
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_quick_file_is_refused_and_no_sandbox_is_left() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    for wrong in [
        file("", "x"),
        file("~/../x", "x"),
        file("~/", "x"),
        file("/a/../b", "x"),
        QuickFile {
            mode: Some("9".into()),
            ..file("~/x", "x")
        },
        QuickFile {
            content: None,
            ..file("~/x", "x")
        },
    ] {
        ensure!(
            client.put_quick_file("wrong", &wrong).await.is_err(),
            "{wrong:?}"
        );
    }
    ensure!(
        client
            .put_quick_file("No Name", &file("~/x", "x"))
            .await
            .is_err()
    );
    let spec = CreateSandbox {
        quick_files: vec!["missing".into()],
        ..CreateSandbox::default()
    };
    ensure!(client.create_sandbox(&spec).await.is_err());
    // One that cannot be written inside: the sandbox is not handed over without it.
    let spec = CreateSandbox {
        files: BTreeMap::from([("/usr/not-writable".to_owned(), "x".to_owned())]),
        ..CreateSandbox::default()
    };
    ensure!(client.create_sandbox(&spec).await.is_err());
    ensure!(client.sandboxes("", 10).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_preset_fills_in_what_the_request_leaves_open() -> anyhow::Result<()> {
    let world = world().await?;
    let preset = r#"{"description":"quiet","sandbox":{"env":{"TONE":"quiet","A":"1"},"network":{"mode":"none"},"labels":{"kind":"quiet"}}}"#;
    let set = world
        .cli_with_input(&["preset", "set", "quiet"], preset.as_bytes())
        .await?;
    ensure!(set.status.success(), "{set:?}");
    let spec = CreateSandbox {
        preset: Some("quiet".into()),
        env: BTreeMap::from([("A".into(), "mine".into())]),
        name: Some("still".into()),
        ..CreateSandbox::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    ensure!(sandbox.out("echo $TONE $A").await? == "quiet mine");
    let view = world.client().sandbox("still").await?;
    ensure!(!view.network.needs_egress() && view.labels.get("kind").is_some_and(|v| v == "quiet"));
    Sandbox::plain(&world).await?;
    let found = world.cli_ok(&["sandbox", "list", "STIL"]).await?;
    ensure!(
        found.lines().count() == 2 && found.contains("still"),
        "{found}"
    );
    let found = world
        .cli_ok(&["sandbox", "list", "--label", "kind=loud"])
        .await?;
    ensure!(!found.contains("still"), "{found}");
    let told = message(&world.cli(&["preset", "show", "nothing"]).await?, 4)?;
    ensure!(told.contains("preset list"), "{told}");
    let named = br#"{"sandbox":{"name":"x"}}"#;
    message(
        &world
            .cli_with_input(&["preset", "set", "bad"], named)
            .await?,
        2,
    )?;
    // Written by hand and wrong: listed with its problem, in nobody's way.
    let folder = world.scratch().folder("config").join("presets");
    std::fs::write(folder.join("broken.toml"), "[sandbox]\nimag = 'x'\n")?;
    let listed = world.cli_ok(&["preset", "list"]).await?;
    ensure!(
        listed.contains("quiet") && listed.contains("imag"),
        "{listed}"
    );
    Ok(())
}
