//! Work folders as a whole list, and the folders in them (contract D.13).

use crate::support::{text, world};
use anyhow::{Context as _, ensure};
use handler_client::ClientError;
use handler_types::folder::{CreateDirectoryRequest, WorkFoldersRequest};
use handler_types::project::CreateProject;
use std::os::unix::fs::symlink;

fn titled<T>(answer: Result<T, ClientError>, status: u16, title: &str) -> anyhow::Result<()> {
    let error = answer.err().context("it was not refused")?;
    let problem = error.problem().context("no problem")?;
    ensure!(
        (problem.status, problem.title.as_str()) == (status, title),
        "{problem:?}"
    );
    Ok(())
}

#[tokio::test]
async fn folders_in_work_folders_are_listed_and_made_and_nothing_outside() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let work = world.work();
    for name in ["b/inner", "a", ".hidden"] {
        std::fs::create_dir_all(work.join(name))?;
    }
    std::fs::write(work.join("file"), "")?;
    symlink("/etc", work.join("link"))?;
    let at = text(work.clone())?;
    let roots = client.directories("").await?;
    ensure!(
        roots.path.is_none() && roots.folders.contains(&at),
        "{roots:?}"
    );
    let listed = client.directories(&at).await?;
    ensure!(listed.folders == ["a", "b"] && !listed.more, "{listed:?}");
    let inner = client.directories(&format!("{at}/b/inner")).await?;
    ensure!(inner.parent == Some(format!("{at}/b")), "{inner:?}");
    let home = text(world.scratch().folder("home"))?;
    client.directories(&home).await?;
    const TITLE: &str = "path not allowed";
    let data = text(world.scratch().folder("data"))?;
    for outside in [
        "/etc",
        "/",
        &data,
        &format!("{at}/link"),
        &format!("{at}/../data"),
    ] {
        titled(client.directories(outside).await, 403, TITLE)?;
        let request = CreateDirectoryRequest {
            parent: outside.to_owned(),
            name: "new".to_owned(),
        };
        titled(client.make_directory(&request).await, 403, TITLE)?;
    }
    let request = |name: &str| CreateDirectoryRequest {
        parent: at.clone(),
        name: name.to_owned(),
    };
    let made = client.make_directory(&request("new")).await?;
    ensure!(
        made.path == Some(format!("{at}/new")) && made.folders.is_empty(),
        "{made:?}"
    );
    titled(
        client.make_directory(&request("new")).await,
        409,
        "folder exists",
    )?;
    for wrong in ["", ".x", "..", "a/b", "a\n"] {
        titled(
            client.make_directory(&request(wrong)).await,
            400,
            "invalid request",
        )?;
    }
    for number in 0..500 {
        std::fs::create_dir(work.join(format!("n{number}")))?;
    }
    let listed = client.directories(&at).await?;
    ensure!(listed.folders.len() == 500 && listed.more);
    Ok(())
}

#[tokio::test]
async fn the_list_of_work_folders_is_shown_with_its_projects_and_set_whole() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let at = text(world.work())?;
    let folder = world.work().join("app");
    std::fs::create_dir(&folder)?;
    let project = CreateProject {
        folder: text(folder)?,
        ..CreateProject::default()
    };
    client.create_project(&project).await?;
    let info = client.folders().await?;
    let work = info.folders.iter().find(|one| one.path == at);
    let work = work.context("the work folder")?;
    ensure!(work.exists && work.projects.len() == 1, "{work:?}");
    ensure!(work.projects[0].name == "app");
    let set = |roots: &[&str]| WorkFoldersRequest {
        roots: roots.iter().map(|&root| root.to_owned()).collect(),
    };
    let info = client.set_folders(&set(&[&at, "~/later"])).await?;
    ensure!(info.folders.len() == 2, "{info:?}");
    let later = &info.folders[1];
    ensure!(later.root == "~/later" && !later.exists && later.path.ends_with("home/later"));
    for wrong in [
        "/",
        "/etc",
        "relative",
        &text(world.scratch().folder("state"))?,
    ] {
        titled(
            client.set_folders(&set(&[wrong])).await,
            403,
            "folder not allowed",
        )?;
    }
    ensure!(client.folders().await?.folders.len() == 2, "as it was");
    Ok(())
}
