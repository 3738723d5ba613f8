//! The folder of a session (contract F.8): what its agent changed, read and taken back by its person.

use crate::sessions::stage::Stage;
use crate::support::text;
use anyhow::{Context as _, ensure};
use handler_client::ClientError;
use handler_types::session_folder::{
    FileChange, MountKind, RevealRequest, RevertRequest, SessionDiff,
};
use std::os::unix::fs::symlink;
use std::path::Path;

fn git(at: &Path, args: &[&str]) -> anyhow::Result<()> {
    let done = std::process::Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@localhost"])
        .args(args)
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()?;
    ensure!(done.status.success(), "{done:?}");
    Ok(())
}

fn titled<T>(answer: Result<T, ClientError>, status: u16, title: &str) -> anyhow::Result<()> {
    let error = answer.err().context("it was not refused")?;
    let problem = error.problem().context("no problem")?;
    ensure!(
        (problem.status, problem.title.as_str()) == (status, title),
        "{problem:?}"
    );
    Ok(())
}

fn numbered(changed: &[usize]) -> String {
    let line = |n: usize| match changed.contains(&n) {
        true => format!("changed {n}\n"),
        false => format!("line {n}\n"),
    };
    (1..=40).map(line).collect()
}

/// A repository with a link out, a program in its settings, and what is ignored.
fn prepare(at: &Path) -> anyhow::Result<()> {
    std::fs::write(at.join("code.txt"), numbered(&[]))?;
    std::fs::write(at.join("gone.txt"), "was here\n")?;
    std::fs::write(at.join(".gitignore"), "*.log\n")?;
    symlink("/etc/passwd", at.join("out"))?;
    git(at, &["init", "-q", "-b", "main"])?;
    git(at, &["add", "-A"])?;
    git(at, &["commit", "-qm", "first"])?;
    git(
        at,
        &["config", "core.fsmonitor", "touch ran-on-the-host; false"],
    )
}

async fn changed(stage: &Stage, id: &str) -> anyhow::Result<Vec<(String, FileChange)>> {
    let changes = stage.client().session_changes(id).await?;
    ensure!(changes.git && !changes.not_followed, "{changes:?}");
    let told = changes
        .files
        .into_iter()
        .map(|file| (file.path, file.change));
    Ok(told.collect())
}

#[tokio::test]
async fn what_an_agent_changes_is_followed_and_taken_back_also_after_it_stopped()
-> anyhow::Result<()> {
    let Some(stage) = Stage::set("the folder of a session", &["pi"]).await? else {
        return Ok(());
    };
    prepare(&stage.project)?;
    let mut viewer = stage.open(&stage.request("pi")).await?;
    let id = viewer.id.clone();
    ensure!(changed(&stage, &id).await?.is_empty());
    // The agent edits in two places, removes, adds, and commits it all.
    std::fs::write(stage.project.join("next.log"), numbered(&[5, 30]))?;
    let work = "PLAN:shell:cp next.log code.txt && rm gone.txt && mkdir new && echo hello > new/a.txt && echo x > b.log && (git -c core.fsmonitor=false add -A; git -c core.fsmonitor=false -c user.name=a -c user.email=a@a commit -qm agent; true)";
    viewer.turn(work).await?;
    let wanted = [
        ("code.txt".to_owned(), FileChange::Modified),
        ("gone.txt".to_owned(), FileChange::Deleted),
        ("new/a.txt".to_owned(), FileChange::Added),
    ];
    ensure!(
        changed(&stage, &id).await? == wanted,
        "{:?}",
        changed(&stage, &id).await?
    );
    let client = stage.client();
    let file = client.session_file(&id, "code.txt", "").await?;
    ensure!(
        file.before.as_deref() == Some(numbered(&[]).as_str()),
        "{file:?}"
    );
    let file = client.session_file(&id, "gone.txt", "").await?;
    ensure!(file.before.as_deref() == Some("was here\n") && file.size.is_none());
    titled(
        client.session_file(&id, "out", "").await,
        400,
        "path not shown",
    )?;
    titled(
        client.session_file(&id, "../x", "").await,
        400,
        "path not shown",
    )?;
    titled(
        client.session_file(&id, ".git/config", "").await,
        400,
        "path not shown",
    )?;
    titled(
        client.session_folder(&id, "none", "").await,
        404,
        "not found",
    )?;
    ensure!(client.session_find(&id, "a.t").await?.paths == ["new/a.txt"]);

    hunk(&stage, &id).await?;
    mounts(&stage, &id).await?;
    client.stop_session(&id).await?;
    whole_files(&stage, &id).await?;
    ensure!(!stage.project.join("ran-on-the-host").exists());
    Ok(())
}

/// One hunk of two is taken back; not when the file changed meanwhile.
async fn hunk(stage: &Stage, id: &str) -> anyhow::Result<()> {
    let client = stage.client();
    let said = stage.world.cli_ok(&["session", "diff", id]).await?;
    ensure!(
        said.contains("-line 5") && said.contains("+changed 30"),
        "{said}"
    );
    let diff: SessionDiff = client.session_diff(id, "code.txt").await?;
    ensure!(diff.hunks.len() == 2 && diff.revertable, "{diff:#?}");
    let asked = RevertRequest {
        path: "code.txt".to_owned(),
        hunk: Some(diff.hunks[0].id.clone()),
        digest: diff.digest,
    };
    let late = RevertRequest {
        digest: Some("0".repeat(64)),
        ..asked.clone()
    };
    titled(
        client.session_revert(id, &late).await,
        409,
        "changed meanwhile",
    )?;
    let left = client.session_revert(id, &asked).await?;
    ensure!(left.hunks.len() == 1, "{left:#?}");
    ensure!(stage.read("code.txt")? == numbered(&[30]));
    titled(
        client.session_revert(id, &asked).await,
        409,
        "changed meanwhile",
    )
}

async fn mounts(stage: &Stage, id: &str) -> anyhow::Result<()> {
    let client = stage.client();
    let mounts = client.session_mounts(id).await?.mounts;
    let scope = mounts.first().context("no mounts")?;
    ensure!(scope.kind == MountKind::Scope && scope.target == text(&stage.project)?);
    let through = client.session_folder(id, "new", &scope.target).await?;
    ensure!(through.entries.len() == 1, "{through:?}");
    let shut = mounts.iter().find(|mount| !mount.browsable);
    let shut = &shut.with_context(|| format!("{mounts:?}"))?.target;
    titled(client.session_folder(id, "", shut).await, 404, "not found")?;
    titled(
        client.session_folder(id, "", "/etc").await,
        404,
        "not found",
    )?;
    let reveal = RevealRequest {
        path: "out/x".to_owned(),
        mount: None,
    };
    titled(
        client.session_reveal(id, &reveal).await,
        400,
        "path not shown",
    )
}

/// The rest is taken back file by file, by command line, from a stopped session.
async fn whole_files(stage: &Stage, id: &str) -> anyhow::Result<()> {
    for path in ["code.txt", "gone.txt", "new/a.txt"] {
        stage.world.cli_ok(&["session", "revert", id, path]).await?;
    }
    ensure!(stage.read("code.txt")? == numbered(&[]));
    ensure!(stage.read("gone.txt")? == "was here\n");
    ensure!(!stage.project.join("new/a.txt").exists());
    ensure!(
        changed(stage, id).await?.is_empty(),
        "{:?}",
        changed(stage, id).await?
    );
    let said = stage.world.cli_ok(&["session", "files", id]).await?;
    ensure!(
        said.contains("out -> /etc/passwd") && !said.contains(".git\n"),
        "{said}"
    );
    let said = stage
        .world
        .cli_ok(&["session", "cat", id, "gone.txt"])
        .await?;
    ensure!(said == "was here\n", "{said}");
    stage.world.cli_ok(&["session", "find", id, "code"]).await?;
    stage
        .world
        .cli_ok(&["--json", "session", "mounts", id])
        .await?;
    stage.world.cli_ok(&["session", "changes", id]).await?;
    Ok(())
}
