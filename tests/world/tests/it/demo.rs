//! `handler demo` in an empty home: it shows what the product does, and proves it.

use crate::harness::shared;
use crate::sessions::Stage;
use crate::sessions::typed::Typed;
use handler_testkit::World;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

#[tokio::test]
async fn the_demo_runs_in_an_empty_home_and_again() -> anyhow::Result<()> {
    let Some(world) = Stage::bare("demo").await? else {
        return Ok(());
    };
    if !shared::provide("demo", &world, &["pi"]).await? {
        return Ok(());
    }
    let home = world.scratch().folder("home");
    assert_eq!(std::fs::read_dir(&home)?.count(), 0, "an empty home");
    shows_and_proves(&world).await?;
    let file = home.join("handler-demo").join("hello.txt");
    assert!(file.is_file(), "the agent's file is left to be looked at");
    on_a_terminal(&world)?;

    assert_eq!(
        world.client().providers().await?,
        [],
        "its provider is gone again"
    );
    assert_eq!(world.client().secrets().await?, [], "and its key");
    world.assert_clean(LONG).await
}

/// Once more where a person sees it: in colour, and it ends by itself.
fn on_a_terminal(world: &World) -> anyhow::Result<()> {
    let mut demo = Typed::on_terminal(world, &world.work(), &["demo"])?;
    assert_eq!(demo.ends()?, 0, "{}", demo.shown);
    assert!(demo.shown.contains("(a stand-in)"), "{}", demo.shown);
    Ok(())
}

async fn shows_and_proves(world: &World) -> anyhow::Result<()> {
    let output = world.cli(&["demo"]).await?;
    let shown = String::from_utf8_lossy(&output.stdout);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{shown}{notes}");
    // The turn: the prompt, the call, the answer.
    for part in ["> ", "● ", "✓ ", "403", "What happened", "Next"] {
        assert!(shown.contains(part), "no `{part}` in {shown}{notes}");
    }
    let proof = |name: &str| {
        let line = shown
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {shown}"))
            .to_owned()
    };
    assert!(
        proof("file ").contains("Hello from inside the sandbox."),
        "{shown}"
    );
    assert!(proof("denied ").contains("example.org:443"), "{shown}");
    let held = proof("agent ");
    let got = proof("model ");
    let key = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    assert!(
        held.contains("stand-in") && got.contains("real key"),
        "{shown}"
    );
    assert!(
        key(&held).is_some_and(|key| key.starts_with("sk-demo-")),
        "{held}"
    );
    assert_ne!(key(&held), key(&got), "{shown}");
    Ok(())
}
