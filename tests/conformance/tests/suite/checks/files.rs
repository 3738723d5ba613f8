//! Files up, down and inside, and what a hostile one may not do.

use super::checks;
use crate::subject::Subject;
use crate::transfer::{address, get, in_project, pack, put, refusal, unpack};
use anyhow::{Context as _, ensure};
use handler_client::SocketMessage;
use handler_testkit::inside::LONG;
use handler_types::api::{ChmodRequest, MkdirRequest, MoveRequest};
use handler_types::guest::{FileKind, WatchEvent, WatchKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

checks! { "files":
    what_is_uploaded_is_downloaded_whole_and_in_ranges;
    any_name_is_a_name;
    a_folder_is_listed_as_deep_as_asked;
    folders_are_made_moved_and_removed;
    permission_bits_are_set_also_of_all_a_folder_holds;
    what_is_written_into_a_project_is_the_persons;
    changes_are_told_while_they_happen;
    the_command_line_copies_a_file_in_and_out;
    the_command_line_has_the_other_verbs;
}

/// Bytes that do not compress to nothing and of which no part is another.
pub(super) fn content(size: u32) -> Vec<u8> {
    (0..size / 4)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

async fn what_is_uploaded_is_downloaded_whole_and_in_ranges(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let all = content(5 << 20);
    let project = folder.join("file");
    for path in [&*project.to_string_lossy(), "/home/agent/file", "/tmp/file"] {
        let written = put(&sandbox, path, all.clone()).await?;
        ensure!(written.size == all.len() as u64, "{path}: {written:?}");
        ensure!(
            get(&sandbox, path, "").await? == all,
            "{path}: other bytes came back"
        );
        let range = get(&sandbox, path, "&offset=4194301&length=70000").await?;
        ensure!(range == all[4_194_301..4_264_301], "{path}: the range");
        ensure!(get(&sandbox, path, "&offset=9000000").await?.is_empty());
        let inside = sandbox.out(&format!("sha256sum '{path}'")).await?;
        ensure!(inside.starts_with(&written.sha256), "{path}: {inside}");
        let hash = sandbox.client.hash_path(&sandbox.id, path).await?;
        ensure!(hash == written, "{hash:?}");
    }
    ensure!(std::fs::read(project)? == all);
    put(&sandbox, "/tmp/file", "").await?;
    ensure!(get(&sandbox, "/tmp/file", "").await?.is_empty());
    s.down(sandbox).await
}

async fn any_name_is_a_name(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    // As the API writes it, and as it lies there.
    let names: [(&str, &[u8]); 8] = [
        ("with space", b"with space"),
        ("grüße 漢字 🦀", "grüße 漢字 🦀".as_bytes()),
        ("q'\"$(x);&*?", b"q'\"$(x);&*?"),
        ("-rf", b"-rf"),
        ("%2e%2e", b"%2e%2e"),
        (r"odd \xff\xfe", b"odd \xff\xfe"),
        (r"back\\slash", br"back\slash"),
        ("line\nend", b"line\nend"),
    ];
    for (name, bytes) in names {
        put(&sandbox, name, name)
            .await
            .with_context(|| name.to_owned())?;
        let there = std::fs::read(folder.join(std::ffi::OsStr::from_bytes(bytes)));
        ensure!(
            there.with_context(|| name.to_owned())? == name.as_bytes(),
            "{name}"
        );
        ensure!(get(&sandbox, name, "").await? == name, "{name}");
        let entry = sandbox.client.stat_path(&sandbox.id, name).await?;
        ensure!(entry.path.ends_with(name), "{entry:?}");
    }
    let listing = sandbox.client.list_dir(&sandbox.id, ".", 1).await?;
    ensure!(listing.entries.len() == names.len(), "{listing:?}");
    for (name, _) in names {
        sandbox.client.remove_path(&sandbox.id, name, false).await?;
    }
    ensure!(std::fs::read_dir(&folder)?.count() == 0);
    s.down(sandbox).await
}

async fn a_folder_is_listed_as_deep_as_asked(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    for place in [&*folder.to_string_lossy(), "/home/agent", "/tmp"] {
        sandbox
            .out(&format!(
                "cd '{place}' && mkdir -p 'a b/ç/d' && printf one >'a b/ç/d/file' && ln -s other link"
            ))
            .await?;
        let found = async |depth, end: &str| {
            let listing = sandbox.client.list_dir(&sandbox.id, place, depth).await?;
            let mut entries = listing.entries.into_iter();
            let found = entries.find(|entry| entry.path.ends_with(end));
            anyhow::Ok(found.map(|entry| (entry.kind, entry.size, entry.target)))
        };
        ensure!(found(1, "/a b").await?.context("the folder")?.0 == FileKind::Folder);
        ensure!(found(3, "d/file").await?.is_none(), "too deep");
        ensure!(found(4, "d/file").await? == Some((FileKind::File, 3, None)));
        let link = found(1, "/link").await?.context("the link")?;
        ensure!(link.0 == FileKind::Link && link.2.as_deref() == Some("other"));
    }
    s.down(sandbox).await
}

async fn folders_are_made_moved_and_removed(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let (client, id) = (&sandbox.client, sandbox.id.as_str());
    for place in [&*folder.to_string_lossy(), "/home/agent", "/tmp"] {
        let at = |path: &str| format!("{place}/{path}");
        let make = |path: &str, parents| MkdirRequest {
            path: at(path),
            parents,
        };
        client.mkdir(id, &make("a b/ç/d", true)).await?;
        ensure!(client.mkdir(id, &make("x/y", false)).await.is_err());
        put(&sandbox, &at("a b/ç/d/file"), "one").await?;
        put(&sandbox, &at("other"), "two").await?;
        let (from, to) = (at("a b/ç/d/file"), at("other"));
        let mut wish = MoveRequest {
            from,
            to,
            overwrite: false,
        };
        let refused = client.move_path(id, &wish).await;
        ensure!(refusal(refused.map_err(Into::into))?.0 == 409);
        wish.overwrite = true;
        client.move_path(id, &wish).await?;
        ensure!(get(&sandbox, &at("other"), "").await? == "one");
        ensure!(client.remove_path(id, &at("a b"), false).await.is_err());
        for path in ["a b", "other"] {
            client.remove_path(id, &at(path), true).await?;
            ensure!(client.stat_path(id, &at(path)).await.is_err());
        }
    }
    ensure!(std::fs::read_dir(&folder)?.count() == 0);
    s.down(sandbox).await
}

async fn permission_bits_are_set_also_of_all_a_folder_holds(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let beside = format!("{}/beside", folder.display());
    sandbox
        .out("umask 022; echo x >beside; mkdir top; echo x >top/file; ln -s ../beside top/link")
        .await?;
    let wish = |path: &str, mode: &str, recursive| ChmodRequest {
        path: path.into(),
        mode: mode.into(),
        recursive,
    };
    let client = &sandbox.client;
    client
        .chmod_path(&sandbox.id, &wish("top", "750", true))
        .await?;
    let bits = sandbox.out("stat -c %a top top/file beside").await?;
    ensure!(bits == "750\n750\n644", "a link was followed: {bits}");
    client
        .chmod_path(&sandbox.id, &wish(&beside, "600", false))
        .await?;
    let mode = std::fs::metadata(&beside)?.permissions().mode();
    ensure!(mode & 0o7777 == 0o600, "{mode:o}");
    let entry = client.stat_path(&sandbox.id, "beside").await?;
    ensure!(entry.mode & 0o7777 == 0o600, "{entry:?}");
    let wrong = client
        .chmod_path(&sandbox.id, &wish("top", "999", false))
        .await;
    ensure!(refusal(wrong.map_err(Into::into))?.0 == 400);
    s.down(sandbox).await
}

async fn what_is_written_into_a_project_is_the_persons(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let make = MkdirRequest {
        path: "made".into(),
        parents: false,
    };
    sandbox.client.mkdir(&sandbox.id, &make).await?;
    put(&sandbox, "made/file", "x").await?;
    let archive = pack(&sandbox, "made", "tar").await?;
    unpack(&sandbox, "made/again", "tar", archive).await?;
    let person = std::fs::metadata(&folder)?;
    for path in ["made", "made/file", "made/again", "made/again/file"] {
        let meta = std::fs::metadata(folder.join(path))?;
        ensure!(
            (meta.uid(), meta.gid()) == (person.uid(), person.gid()),
            "{path} is {}:{}'s, the folder {}:{}'s",
            meta.uid(),
            meta.gid(),
            person.uid(),
            person.gid()
        );
    }
    // What the person has made can be replaced, and stays theirs with its bits.
    let own = folder.join("own");
    std::fs::write(&own, "old")?;
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o640))?;
    s.give(&world, &own)?;
    put(&sandbox, "own", "new").await?;
    let meta = std::fs::metadata(&own)?;
    ensure!(
        meta.uid() == person.uid() && meta.mode() & 0o777 == 0o640,
        "{meta:?}"
    );
    ensure!(std::fs::read(&own)? == b"new");
    s.down(sandbox).await
}

async fn changes_are_told_while_they_happen(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    for place in [&*folder.to_string_lossy(), "/home/agent", "/tmp"] {
        sandbox.out(&format!("mkdir -p '{place}/top/deep'")).await?;
        let target = address(&sandbox, "files/watch", &format!("{place}/top")) + "&recursive=true";
        let mut socket = sandbox.client.socket(&target, "watch.v1").await?;
        sandbox
            .out(&format!(
                "cd '{place}' && echo x >top/deep/a; mv top/deep/a top/b; rm -r top"
            ))
            .await?;
        let mut told = Vec::new();
        loop {
            match tokio::time::timeout(LONG, socket.next()).await? {
                SocketMessage::Text(text) => told.push(serde_json::from_str::<WatchEvent>(&text)?),
                SocketMessage::Closed { reason, .. } => {
                    ensure!(reason.contains("gone"), "{reason}");
                    break;
                }
                SocketMessage::Binary(_) => anyhow::bail!("text only"),
            }
        }
        let has = |kind, end: &str| told.iter().any(|e| e.kind == kind && e.path.ends_with(end));
        ensure!(has(WatchKind::Create, "top/deep/a"), "{told:?}");
        ensure!(has(WatchKind::Remove, "top/b"), "{told:?}");
        let renamed = told
            .iter()
            .find(|e| e.kind == WatchKind::Rename)
            .context("renamed")?;
        ensure!(
            renamed.to.as_ref().is_some_and(|to| to.ends_with("top/b")),
            "{renamed:?}"
        );
    }
    s.down(sandbox).await
}

async fn the_command_line_copies_a_file_in_and_out(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let all = content(3 << 20);
    let from = folder.join("from ü");
    std::fs::write(&from, &all)?;
    s.give(&world, &from)?;
    let project = folder.to_string_lossy();
    for place in [&*project, "/home/agent", "/tmp"] {
        let there = format!("{}:{place}/new folder/große Datei", sandbox.id);
        let written = world
            .cli_ok(&["--json", "sandbox", "cp", &from.to_string_lossy(), &there])
            .await?;
        let written: serde_json::Value = serde_json::from_str(&written)?;
        ensure!(written["size"] == all.len(), "{place}: {written}");
        let back = world
            .work()
            .join(format!("back-{}", handler_base::random::hex(4)));
        world
            .cli_ok(&["sandbox", "cp", &there, &back.to_string_lossy()])
            .await?;
        ensure!(
            std::fs::read(&back)? == all,
            "{place}: other bytes came back"
        );
        let inside = sandbox
            .out(&format!("sha256sum '{place}/new folder/große Datei'"))
            .await?;
        ensure!(
            written["sha256"]
                .as_str()
                .is_some_and(|hash| inside.starts_with(hash))
        );
    }
    let nowhere = format!("{}:/nowhere", sandbox.id);
    let told = world.cli(&["sandbox", "cp", &nowhere, "/tmp/x"]).await?;
    ensure!(told.status.code() == Some(4), "{told:?}");
    s.down(sandbox).await
}

async fn the_command_line_has_the_other_verbs(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let at = |path: &str| format!("{}:{path}", sandbox.id);
    let run = async |args: &[&str]| {
        let all: Vec<&str> = ["--json", "sandbox"].iter().chain(args).copied().collect();
        world.cli_ok(&all).await
    };
    run(&["mkdir", "-p", &at("made/deep")]).await?;
    put(&sandbox, "made/deep/file", "x").await?;
    run(&["chmod", "-r", "700", &at("made")]).await?;
    let stat: serde_json::Value = serde_json::from_str(&run(&["stat", &at("made/deep")]).await?)?;
    ensure!(
        stat["kind"] == "folder" && stat["mode"].as_u64().is_some_and(|m| m & 0o777 == 0o700),
        "{stat}"
    );
    let list: serde_json::Value =
        serde_json::from_str(&run(&["files", "--depth", "3", &at(".")]).await?)?;
    ensure!(
        list["entries"].as_array().map(Vec::len) == Some(3),
        "{list}"
    );
    run(&["mv", &at("made"), "moved"]).await?;
    ensure!(folder.join("moved/deep/file").exists());
    run(&["rm", "-r", &at("moved")]).await?;
    ensure!(std::fs::read_dir(&folder)?.count() == 0);
    s.down(sandbox).await
}
