//! What cannot be: one clear message, the documented exit code, and nothing left behind.

use crate::sessions::stage::{LONG, Stage};
use handler_types::session::CreateSession;
use std::os::unix::fs::symlink;

#[tokio::test]
async fn what_cannot_run_is_refused_with_one_message() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("refusals", &["pi"]).await? else {
        return Ok(());
    };
    let elsewhere = stage.world.scratch().path().join("elsewhere");
    std::fs::create_dir(&elsewhere)?;
    let detour = stage.project.join("detour");
    symlink(&elsewhere, &detour)?;
    let missing = stage.project.join("missing");
    let [elsewhere, detour, missing] = [&elsewhere, &detour, &missing].map(|p| p.to_string_lossy());

    // Arguments, exit code, what the message names.
    let cases: [(&[&str], i32, &str); 10] = [
        (&["--folder", &elsewhere], 3, "handler folder add"),
        (&["--folder", &detour], 3, "handler folder add"),
        (&["--folder", "/"], 3, "whole file system"),
        (&["--folder", &missing], 2, "make it first"),
        (&["--harness", "pie"], 2, "`pi`"),
        (
            &["--harness", "claude-code"],
            3,
            "handler harness install claude-code",
        ),
        (&["--provider", "nobody"], 3, "nobody"),
        (&["--model", "no-such-model"], 2, "no-such-model"),
        (&["--permissions", "ask"], 2, "bypass"),
        (&["--allow", "example.org"], 2, "example.org"),
    ];
    for (args, code, named) in cases {
        let mut all = vec!["run", "PLAN:text:never"];
        all.extend(args);
        let mut command = tokio::process::Command::from(stage.world.command());
        command.args(&all).current_dir(&stage.project);
        let output = tokio::time::timeout(LONG, command.output()).await??;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(named), "{args:?}: no {named} in {said}");
        assert_eq!(output.stdout, b"", "{args:?}");
        let told = said
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with("hint"));
        if code != 2 || !args.contains(&"--allow") {
            assert_eq!(told.count(), 1, "{args:?}: one message, not {said}");
        }
    }
    stage.client().delete_provider("scripted").await?;
    let request = CreateSession {
        provider: None,
        ..stage.request("pi")
    };
    let refused = stage.client().create_session(&request).await;
    let refused = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(refused.contains("handler provider add"), "{refused}");

    assert_eq!(stage.client().sessions("", "", 10).await?.items, []);
    let sessions = stage.world.scratch().folder("state").join("sessions");
    let left: Vec<_> = std::fs::read_dir(sessions)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(stage.asked("never").len(), 0);
    stage.world.assert_clean(LONG).await
}
