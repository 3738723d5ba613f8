//! Git in a sandbox, and forks of a project: made, looked at, merged, in conflict, removed without losing work.

use crate::input::message;
use crate::support::{Sandbox, has_tools, project, text, world};
use anyhow::{Context as _, ensure};
use handler_testkit::World;
use handler_types::git::{CreateFork, MergeRequest, MergeStrategy};
use handler_types::sandbox::CreateSandbox;
use std::path::{Path, PathBuf};
use std::process::Command;

fn git(folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let done = Command::new("git")
        .args([
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.com",
            "-c",
            "safe.directory=*",
        ])
        .arg("-C")
        .arg(folder)
        .args(args)
        .output()?;
    ensure!(done.status.success(), "git {args:?}: {done:?}");
    Ok(String::from_utf8(done.stdout)?.trim_end().to_owned())
}

/// A project with two commits.
fn repository(world: &World) -> anyhow::Result<PathBuf> {
    let folder = project(world, "my app")?;
    git(&folder, &["init", "--quiet", "--initial-branch=main"])?;
    std::fs::write(folder.join("file"), "one\n")?;
    git(&folder, &["add", "."])?;
    git(&folder, &["commit", "--quiet", "-m", "First"])?;
    std::fs::write(folder.join("file"), "one\ntwo\n")?;
    git(&folder, &["commit", "--quiet", "-am", "Second ünï"])?;
    Ok(folder)
}

async fn fork(world: &World, folder: &Path, branch: &str) -> anyhow::Result<Sandbox> {
    let request = CreateFork {
        folder: Some(text(folder)?),
        branch: branch.into(),
        ..CreateFork::default()
    };
    let view = world.client().create_fork(&request).await?;
    let inside = Sandbox {
        client: world.client(),
        id: view.id.to_string(),
    };
    inside
        .out("git config --global user.name Agent; git config --global user.email agent@example.com; git config --global safe.directory '*'")
        .await?;
    Ok(inside)
}

#[tokio::test]
async fn the_repository_in_a_sandbox_is_shown() -> anyhow::Result<()> {
    if !has_tools("the_repository_in_a_sandbox_is_shown", &["git"]) {
        return Ok(());
    }
    let world = world().await?;
    let folder = repository(&world)?;
    // What the repository brings along is not run.
    let trap = folder.join("trapped");
    git(
        &folder,
        &[
            "config",
            "core.fsmonitor",
            &format!("touch '{}'", trap.display()),
        ],
    )?;
    git(
        &folder,
        &[
            "config",
            "core.pager",
            &format!("touch '{}'", trap.display()),
        ],
    )?;
    let spec = CreateSandbox {
        scope: Some(text(&folder)?),
        name: Some("box".into()),
        ..CreateSandbox::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    sandbox.out("echo x >new; echo three >>file").await?;
    let client = world.client();
    let status = client.git_status("box", "").await?;
    assert_eq!(status.branch.as_deref(), Some("main"));
    let states: Vec<_> = status
        .changes
        .iter()
        .map(|c| (c.state.as_str(), c.path.as_str()))
        .collect();
    assert_eq!(states, [(".M", "file"), ("??", "new")]);
    let log = client.git_log("box", "", "", 10).await?;
    assert_eq!(
        log.iter().map(|c| c.subject.as_str()).collect::<Vec<_>>(),
        ["Second ünï", "First"]
    );
    let show = client.git_show("box", &log[0].id[..10], "").await?;
    assert!(
        show.patch.contains("+two") && show.message == "Second ünï",
        "{show:?}"
    );
    assert!(!trap.exists(), "something of the repository was run");
    let told = message(
        &world
            .cli(&["sandbox", "git", "show", "box", "nothing"])
            .await?,
        4,
    )?;
    assert!(told.contains("nothing"), "{told}");
    let told = message(
        &world
            .cli(&["sandbox", "git", "log", "box", "--", "--output=x"])
            .await?,
        2,
    )?;
    assert!(told.contains("Git name"), "{told}");
    let shown = world.cli_ok(&["sandbox", "git", "status", "box"]).await?;
    assert!(
        shown.contains("main at") && shown.contains(".M file"),
        "{shown}"
    );
    let empty = Sandbox::plain(&world).await?;
    let told = message(
        &world.cli(&["sandbox", "git", "status", &empty.id]).await?,
        1,
    )?;
    assert!(told.contains("no Git repository"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_fork_works_apart_and_its_work_is_taken_back() -> anyhow::Result<()> {
    if !has_tools("a_fork_works_apart_and_its_work_is_taken_back", &["git"]) {
        return Ok(());
    }
    let world = world().await?;
    let folder = repository(&world)?;
    git(&folder, &["config", "user.name", "Ada"])?;
    git(&folder, &["config", "user.email", "ada@example.com"])?;
    let (one, two) = (
        fork(&world, &folder, "one").await?,
        fork(&world, &folder, "two").await?,
    );
    one.out("echo of one >one && git add . && git commit -qm 'Work of one'")
        .await?;
    two.out("echo of two >two && git add . && git commit -qm 'Work of two'")
        .await?;
    // The project is not seen from a fork, and has nothing of it yet.
    one.fails(&format!("ls '{}'", folder.display())).await?;
    ensure!(!folder.join("one").exists() && git(&folder, &["branch"])? == "* main");
    let client = world.client();
    let view = client.fork(&one.id).await?;
    assert_eq!(
        (view.ahead, view.behind, view.uncommitted, view.merged),
        (1, 0, 0, false)
    );
    let merged = client.merge_fork(&one.id, &MergeRequest::default()).await?;
    ensure!(merged.merged && folder.join("one").exists(), "{merged:?}");
    let rebase = MergeRequest {
        strategy: MergeStrategy::Rebase,
        message: None,
    };
    let merged = client.merge_fork(&two.id, &rebase).await?;
    ensure!(merged.merged && folder.join("two").exists(), "{merged:?}");
    assert_eq!(
        git(&folder, &["log", "-1", "--format=%s %P"])?
            .split(' ')
            .count(),
        4,
        "a rebased commit has one parent"
    );
    let listed = world.cli_ok(&["fork", "list"]).await?;
    assert!(listed.contains("one") && listed.contains("two"), "{listed}");
    let path = client.fork(&one.id).await?.path;
    let said = world.cli(&["fork", "rm", &one.id]).await?;
    ensure!(said.status.success() && !Path::new(&path).exists());
    assert_eq!(
        git(&folder, &["for-each-ref", "refs/handler"])?,
        "",
        "everything was merged"
    );
    Ok(())
}

#[tokio::test]
async fn conflicts_are_told_and_change_nothing() -> anyhow::Result<()> {
    if !has_tools("conflicts_are_told_and_change_nothing", &["git"]) {
        return Ok(());
    }
    let world = world().await?;
    let folder = repository(&world)?;
    let other = fork(&world, &folder, "other").await?;
    other
        .out("echo theirs >file && git commit -qam Theirs")
        .await?;
    std::fs::write(folder.join("file"), "ours\n")?;
    let client = world.client();
    let refused = client.merge_fork(&other.id, &MergeRequest::default()).await;
    ensure!(refused.is_err_and(|e| e.to_string().contains("not committed")));
    git(&folder, &["commit", "--quiet", "-am", "Ours"])?;
    let before = git(&folder, &["rev-parse", "HEAD"])?;
    for strategy in [MergeStrategy::Merge, MergeStrategy::Rebase] {
        let result = client
            .merge_fork(
                &other.id,
                &MergeRequest {
                    strategy,
                    message: None,
                },
            )
            .await?;
        assert_eq!(
            (result.merged, result.conflicts),
            (false, vec!["file".to_owned()]),
            "{strategy:?}"
        );
        assert_eq!(git(&folder, &["rev-parse", "HEAD"])?, before);
        assert_eq!(git(&folder, &["status", "--porcelain"])?, "");
        assert_eq!(
            other
                .out("git status --porcelain; git log -1 --format=%s")
                .await?,
            "Theirs"
        );
    }
    let code = world
        .cli(&["fork", "merge", &other.id])
        .await?
        .status
        .code();
    assert_eq!(code, Some(6));
    Ok(())
}

#[tokio::test]
async fn a_removed_fork_leaves_its_unmerged_work_in_the_project() -> anyhow::Result<()> {
    if !has_tools(
        "a_removed_fork_leaves_its_unmerged_work_in_the_project",
        &["git"],
    ) {
        return Ok(());
    }
    let world = world().await?;
    let folder = repository(&world)?;
    let work = fork(&world, &folder, "work").await?;
    work.out("echo a >a && git add a && git commit -qm A && echo b >b && echo changed >>file")
        .await?;
    // A hook of the fork is run neither when its work is kept nor later.
    work.out(
        "printf '#!/bin/sh\\ntouch /tmp/hooked' >.git/hooks/post-update && chmod +x .git/hooks/*",
    )
    .await?;
    let path = PathBuf::from(world.client().fork(&work.id).await?.path);
    // Removing the sandbox itself does the same.
    world.cli_ok(&["sandbox", "down", &work.id]).await?;
    ensure!(!path.exists(), "the folder is left");
    let reference = format!("refs/handler/forks/{}", work.id);
    assert_eq!(git(&folder, &["show", &format!("{reference}:b")])?, "b");
    assert_eq!(git(&folder, &["show", &format!("{reference}:a")])?, "a");
    ensure!(git(&folder, &["show", &format!("{reference}:file")])?.ends_with("changed"));
    assert_eq!(git(&folder, &["status", "--porcelain"])?, "");
    Ok(())
}

#[tokio::test]
async fn a_fork_that_cannot_be_made_leaves_nothing() -> anyhow::Result<()> {
    if !has_tools("a_fork_that_cannot_be_made_leaves_nothing", &["git"]) {
        return Ok(());
    }
    let world = world().await?;
    let folder = repository(&world)?;
    let plain = project(&world, "plain")?;
    let client = world.client();
    let ask = |folder: &Path, branch: &str, base: Option<&str>| CreateFork {
        folder: folder.to_str().map(str::to_owned),
        branch: branch.into(),
        base: base.map(str::to_owned),
        ..CreateFork::default()
    };
    for request in [
        ask(&folder, "main", None),
        ask(&folder, "-x", None),
        ask(&folder, "new", Some("nothing")),
        ask(&plain, "new", None),
        ask(Path::new("/etc"), "new", None),
        CreateFork {
            branch: "x".into(),
            ..CreateFork::default()
        },
    ] {
        let outcome = client.create_fork(&request).await;
        ensure!(outcome.is_err(), "{request:?}");
    }
    let left = std::fs::read_dir(world.scratch().folder("data").join("forks"))?.count();
    assert_eq!(left, 0);
    let all = client.sandboxes("", 10).await.context("list")?;
    assert_eq!(all.items, []);
    Ok(())
}
