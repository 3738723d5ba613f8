//! What must not come of files: links that lead out, half files, writes where there are none.

use super::checks;
use super::files::content;
use crate::subject::Subject;
use crate::transfer::{create_only, get, in_project, pack, put, refusal, tree};
use anyhow::ensure;
use handler_testkit::inside::{LONG, Sandbox};
use handler_testkit::{World, eventually};
use handler_types::sandbox::{CreateSandbox, MountSpec};
use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use tokio::process::{Child, Command};

checks! { "files":
    create_only_replaces_nothing;
    a_read_only_place_refuses_an_upload_and_says_so;
    links_lead_nowhere_on_the_host;
    an_upload_cut_by_a_killed_daemon_leaves_no_half_file;
}

async fn create_only_replaces_nothing(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    for place in [".", "/home/agent", "/tmp"] {
        let path = format!("{place}/file");
        let first = create_only(&sandbox, &path, "old").await?;
        let second = create_only(&sandbox, &path, "new").await?;
        ensure!((first, second) == (200, 409), "{path}: {first}, {second}");
        ensure!(get(&sandbox, &path, "").await? == "old", "{path}");
    }
    ensure!(
        std::fs::read_dir(&folder)?.count() == 1,
        "something is left"
    );
    s.down(sandbox).await
}

async fn a_read_only_place_refuses_an_upload_and_says_so(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let source = s.project(&world, "data")?;
    std::fs::write(source.join("file"), "kept")?;
    s.give(&world, &source.join("file"))?;
    let mount = MountSpec {
        source: source.to_string_lossy().into_owned(),
        target: "/data".into(),
        read_only: true,
    };
    let spec = CreateSandbox {
        mounts: vec![mount],
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    for path in ["/data/new", "/data/file", "/bin/new", "/etc/new", "/new"] {
        let (status, told) = refusal(put(&sandbox, path, content(1 << 20)).await)?;
        ensure!(
            status == 403 && told.contains(path),
            "{path}: {status} {told}"
        );
    }
    let local = world.work().join("small");
    std::fs::write(&local, "x")?;
    let to = format!("{}:/data/new", sandbox.id);
    let told = world
        .cli(&["sandbox", "cp", &local.to_string_lossy(), &to])
        .await?;
    let text = String::from_utf8_lossy(&told.stderr);
    ensure!(
        !told.status.success() && text.contains("/data/new"),
        "{text}"
    );
    let left = tree(&source)?;
    ensure!(
        left.len() == 1 && left[&b"file"[..]].1 == b"kept",
        "{left:?}"
    );
    s.down(sandbox).await
}

async fn links_lead_nowhere_on_the_host(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let host = s.project(&world, "host")?;
    let private = host.join("file");
    std::fs::write(&private, "private")?;
    s.give(&world, &private)?;
    let (project, host) = (
        folder.to_string_lossy().into_owned(),
        host.to_string_lossy().into_owned(),
    );
    let up = "../".repeat(40);
    for place in [&*project, "/home/agent", "/tmp"] {
        sandbox
            .out(&format!(
                "cd '{place}' && ln -s '{host}' dir && \
                 ln -s '{host}/file' file && ln -s '{up}{host}/file' up"
            ))
            .await?;
        for path in ["file", "dir/file", "up"] {
            let path = format!("{place}/{path}");
            let read = get(&sandbox, &path, "").await;
            ensure!(read.is_err(), "{path} was read: {read:?}");
            ensure!(sandbox.client.hash_path(&sandbox.id, &path).await.is_err());
            // Whether it is refused or lands inside: not on the host.
            put(&sandbox, &path, "evil").await.ok();
        }
        put(&sandbox, &format!("{place}/dir/new"), "evil")
            .await
            .ok();
        let listing = sandbox
            .client
            .list_dir(&sandbox.id, &format!("{place}/dir"), 2)
            .await;
        ensure!(
            listing.map_or(true, |found| found.entries.is_empty()),
            "{place}/dir was listed"
        );
        let packed = pack(&sandbox, place, "tar").await?;
        ensure!(
            !packed.windows(7).any(|part| part == b"private"),
            "{place} was packed with it"
        );
        sandbox
            .client
            .remove_path(&sandbox.id, &format!("{place}/dir"), true)
            .await
            .ok();
        let left = tree(std::path::Path::new(&host))?;
        ensure!(
            left.len() == 1 && left[&b"file"[..]].1 == b"private",
            "{place}: {left:?}"
        );
    }
    sandbox
        .out(&format!(
            "ln -s '{host}' ~/at-the-end; echo mine >mine; ln -s \"$PWD\" ~/project"
        ))
        .await?;
    s.down(sandbox).await?;
    ensure!(
        private.exists() && folder.join("mine").exists(),
        "removal followed a link"
    );
    Ok(())
}

async fn an_upload_cut_by_a_killed_daemon_leaves_no_half_file(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let (mut sandbox, folder) = in_project(&s, &world).await?;
    put(&sandbox, "old", "whole").await?;
    for name in ["old", "new"] {
        let (upload, pipe) = endless_upload(&world, &format!("{}:{name}", sandbox.id)).await?;
        eventually("the upload is under way", LONG, || async {
            let entries = std::fs::read_dir(&folder).ok()?.flatten();
            let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
            (sizes.sum::<u64>() > 1 << 20).then_some(())
        })
        .await?;
        world.kill9()?;
        drop(pipe);
        let told = upload.wait_with_output().await?;
        ensure!(!told.status.success(), "{name}: it says that it is written");
        world.start_daemon().await?;
        sandbox.client = world.client();
        cleaned(&folder).await?;
        ensure!(get(&sandbox, "old", "").await? == "whole");
    }
    again(&world, &sandbox).await?;
    s.down(sandbox).await
}

/// An upload by command line from a pipe: two megabytes come, and the end only when the pipe is dropped.
async fn endless_upload(world: &World, to: &str) -> anyhow::Result<(Child, File)> {
    let path = world
        .work()
        .join(format!("pipe-{}", handler_base::random::hex(4)));
    let made = Command::new("mkfifo").arg(&path).status().await?;
    ensure!(made.success(), "mkfifo: {made}");
    world.share(&path)?;
    // Both ways, so that opening does not wait for the reader.
    let mut pipe = File::options().read(true).write(true).open(&path)?;
    let upload = Command::from(world.command())
        .args(["sandbox", "cp", &path.to_string_lossy(), to])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let written = tokio::task::spawn_blocking(move || {
        pipe.write_all(&content(2 << 20))?;
        Ok::<_, std::io::Error>(pipe)
    });
    let pipe = tokio::time::timeout(LONG, written).await???;
    Ok((upload, pipe))
}

/// Only `old` is left.
async fn cleaned(folder: &std::path::Path) -> anyhow::Result<()> {
    eventually("nothing half-made is left", LONG, || async {
        let names: Vec<_> = std::fs::read_dir(folder)
            .ok()?
            .flatten()
            .map(|e| e.file_name())
            .collect();
        (names == ["old"]).then_some(())
    })
    .await
}

async fn again(world: &World, sandbox: &Sandbox) -> anyhow::Result<()> {
    let all = content(4 << 20);
    put(sandbox, "old", all.clone()).await?;
    ensure!(get(sandbox, "old", "").await? == all);
    let listed = world
        .cli_ok(&["sandbox", "files", &format!("{}:.", sandbox.id)])
        .await?;
    ensure!(listed.contains("4194304"), "{listed}");
    Ok(())
}
