//! What an agent's screen on a real terminal says, seen from outside.

use crate::support::{LONG, Sandbox, project, text, world};
use anyhow::{Context as _, ensure};
use handler_testkit::eventually;
use handler_types::event::ServerEvent;
use handler_types::guest::TtySize;
use handler_types::observe::Activity;
use handler_types::sandbox::CreateSandbox;
use handler_types::terminal::CreateTerminal;
use std::path::{Path, PathBuf};

/// A recorded screen of the classifier's own tests.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/handler-activity/testdata")
        .join(name)
}

/// Draws recorded screens on the whole terminal, the next one whenever a file appears.
fn agent_script(folder: &Path, screens: &[&str]) -> anyhow::Result<String> {
    let mut script = String::new();
    for (at, name) in screens.iter().enumerate() {
        std::fs::copy(sample(name), folder.join(format!("screen{at}")))?;
        script.push_str(&format!(
            "printf '\\033[?1049h\\033[2J\\033[H'; cat screen{at}; while [ ! -e go{at} ]; do sleep 0.05; done\n"
        ));
    }
    script.push_str("printf '\\033[?1049l'; exit 0\n");
    Ok(script)
}

async fn becomes(sandbox: &Sandbox, state: Activity) -> anyhow::Result<String> {
    eventually(state.as_str(), LONG, || async {
        let activity = sandbox.client.activity(&sandbox.id).await.ok()?;
        (activity.state == state).then_some(activity.why)
    })
    .await
    .map(|why| format!("{}: {}", why.rule, why.text))
}

#[tokio::test]
async fn a_prompt_drawn_on_a_real_terminal_is_seen_then_work_then_its_end() -> anyhow::Result<()> {
    let world = world().await?;
    let folder = project(&world, "agent")?;
    let script = agent_script(
        &folder,
        &[
            "claude-code-needs_input-permission-shell.txt",
            "claude-code-working-tool.txt",
            "claude-code-done.txt",
        ],
    )?;
    std::fs::write(folder.join("agent.sh"), script)?;
    let spec = CreateSandbox {
        scope: Some(text(folder.clone())?),
        ..CreateSandbox::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    let mut events = sandbox.client.events().await?;
    let request = CreateTerminal {
        argv: ["sh", "agent.sh"].map(str::to_owned).to_vec(),
        size: Some(TtySize {
            cols: 160,
            rows: 70,
        }),
        ..CreateTerminal::default()
    };
    let terminal = sandbox
        .client
        .create_terminal(&sandbox.id, &request)
        .await?
        .terminal;
    let why = becomes(&sandbox, Activity::NeedsInput).await?;
    assert_eq!(why, "claude-code/choices: Do you want to proceed?");
    let shown = world.cli_ok(&["sandbox", "activity", &sandbox.id]).await?;
    ensure!(
        shown.contains("needs_input") && shown.contains("claude-code"),
        "{shown}"
    );
    std::fs::write(folder.join("go0"), "")?;
    let why = becomes(&sandbox, Activity::Working).await?;
    ensure!(why.starts_with("claude-code/hint"), "{why}");
    std::fs::write(folder.join("go1"), "")?;
    becomes(&sandbox, Activity::Done).await?;
    std::fs::write(folder.join("go2"), "")?;
    // Everyone who listens was told the same, in this order.
    let mut told = Vec::new();
    while told.last() != Some(&Activity::Done) {
        let event = tokio::time::timeout(LONG, events.next()).await??;
        let event = event.context("the events ended")?;
        if let ServerEvent::Activity {
            sandbox: id,
            source,
        } = event
        {
            ensure!(id == sandbox.id && source.terminal == Some(terminal));
            told.push(source.state);
        }
    }
    told.retain(|state| *state != Activity::Idle);
    told.dedup();
    let asked = told.iter().position(|s| *s == Activity::NeedsInput);
    let asked = asked.context("the question was not told")?;
    assert_eq!(
        told[asked..],
        [Activity::NeedsInput, Activity::Working, Activity::Done]
    );
    Ok(())
}
