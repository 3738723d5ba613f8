//! Files in and out of a sandbox, over the API and with `handler sandbox cp`.

use crate::input::message;
use crate::support::{Sandbox, has_tools, is_soak, project, say, show, status_bytes, text, world};
use anyhow::Context as _;
use bytes::Bytes;
use handler_client::transport::encode;
use handler_testkit::World;
use handler_types::api::{MkdirRequest, MoveRequest};
use handler_types::guest::FileKind;
use handler_types::sandbox::CreateSandbox;
use http_body_util::{BodyExt as _, Full};
use std::process::Command;
use std::time::Instant;

async fn put(sandbox: &Sandbox, path: &str, content: &[u8]) -> anyhow::Result<serde_json::Value> {
    let address = format!("/v1/sandboxes/{}/files?path={}", sandbox.id, encode(path));
    let body = Full::new(Bytes::copy_from_slice(content));
    let answer = sandbox
        .client
        .stream(http::Method::PUT, &address, body)
        .await?;
    Ok(serde_json::from_slice(
        &answer.into_body().collect().await?.to_bytes(),
    )?)
}

async fn get(sandbox: &Sandbox, path: &str, range: &str) -> anyhow::Result<Bytes> {
    let address = format!(
        "/v1/sandboxes/{}/files?path={}{range}",
        sandbox.id,
        encode(path)
    );
    let none: Option<&()> = None;
    Ok(sandbox
        .client
        .call_raw(http::Method::GET, &address, none)
        .await?)
}

async fn with_project(world: &World) -> anyhow::Result<(Sandbox, std::path::PathBuf)> {
    let folder = project(world, "app")?;
    let spec = CreateSandbox {
        scope: Some(text(&folder)?),
        ..Default::default()
    };
    Ok((Sandbox::up(world, &spec).await?, folder))
}

#[tokio::test]
async fn what_is_written_is_read_back_whole_and_in_ranges_under_any_name() -> anyhow::Result<()> {
    let world = world().await?;
    let (sandbox, folder) = with_project(&world).await?;
    let every: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for name in [
        "plain",
        "with space",
        "grüße 漢字 🦀",
        "q'\"$(x);&*?",
        "-rf",
        "%2e%2e",
        "a&b=c#d+e",
        ".hidden",
    ] {
        let written = put(&sandbox, name, &every).await?;
        assert_eq!(written["size"], 300_000, "{name}: {written}");
        assert_eq!(get(&sandbox, name, "").await?, every, "{name}");
        assert_eq!(std::fs::read(folder.join(name))?, every, "{name}");
        assert_eq!(
            get(&sandbox, name, "&offset=250&length=20").await?,
            every[250..270],
            "{name}"
        );
    }
    assert_eq!(put(&sandbox, "/home/agent/empty", b"").await?["size"], 0);
    assert_eq!(get(&sandbox, "/home/agent/empty", "").await?.len(), 0);
    assert_eq!(get(&sandbox, "plain", "&offset=400000").await?.len(), 0);
    let digest = sandbox.out("sha256sum plain").await?;
    assert_eq!(
        put(&sandbox, "again", &every).await?["sha256"],
        digest.split(' ').next().context("it")?
    );
    for (path, status) in [
        ("nowhere", 404),
        ("/etc/shadow", 404),
        ("", 400),
        ("/usr/x\0y", 400),
    ] {
        let error = get(&sandbox, path, "").await.expect_err("refused");
        let error = error.downcast::<handler_client::ClientError>()?;
        assert_eq!(
            error.problem().map(|problem| problem.status),
            Some(status),
            "{path}: {error}"
        );
    }
    assert!(put(&sandbox, "/usr/bin/evil", b"x").await.is_err());
    assert!(put(&sandbox, "no/such/folder/file", b"x").await.is_err());
    Ok(())
}

#[tokio::test]
async fn folders_are_made_listed_moved_and_removed() -> anyhow::Result<()> {
    let world = world().await?;
    let (sandbox, folder) = with_project(&world).await?;
    let (client, id) = (&sandbox.client, sandbox.id.as_str());
    let make = |path: &str, parents| MkdirRequest {
        path: path.into(),
        parents,
    };
    client.mkdir(id, &make("a b/ç/d", true)).await?;
    assert!(client.mkdir(id, &make("x/y", false)).await.is_err());
    put(&sandbox, "a b/ç/d/file", b"1").await?;
    put(&sandbox, "other", b"2").await?;
    sandbox.out("ln -s other link").await?;
    let listing = client.list_dir(id, ".", 8).await?;
    let found = |end: &str| {
        listing
            .entries
            .iter()
            .find(|entry| entry.path.ends_with(end))
    };
    assert_eq!(
        found("a b/ç/d").context("the folder")?.kind,
        FileKind::Folder
    );
    assert_eq!(found("d/file").context("the file")?.size, 1);
    let link = found("/link").context("the link")?;
    assert_eq!(
        (link.kind, link.target.as_deref()),
        (FileKind::Link, Some("other"))
    );
    let mv = |from: &str, to: &str, overwrite| MoveRequest {
        from: from.into(),
        to: to.into(),
        overwrite,
    };
    let kept = client
        .move_path(id, &mv("a b/ç/d/file", "other", false))
        .await
        .expect_err("it is there");
    assert_eq!(
        kept.problem().map(|problem| problem.status),
        Some(409),
        "{kept}"
    );
    assert_eq!(std::fs::read(folder.join("other"))?, b"2");
    client
        .move_path(id, &mv("a b/ç/d/file", "other", true))
        .await?;
    assert_eq!(std::fs::read(folder.join("other"))?, b"1");
    client.move_path(id, &mv("a b", "moved", false)).await?;
    assert!(folder.join("moved/ç/d").is_dir());
    assert!(
        client.remove_path(id, "moved", false).await.is_err(),
        "it is not empty"
    );
    client.remove_path(id, "moved", true).await?;
    client.remove_path(id, "link", false).await?;
    assert_eq!(
        std::fs::read_dir(&folder)?.count(),
        1,
        "only `other` is left"
    );
    assert!(client.remove_path(id, "link", false).await.is_err());
    Ok(())
}

#[tokio::test]
async fn links_lead_nowhere_on_the_host() -> anyhow::Result<()> {
    let world = world().await?;
    let (sandbox, folder) = with_project(&world).await?;
    let victim = world.scratch().folder("home").join("victim");
    let kept = world.scratch().folder("home").join("kept");
    std::fs::write(&victim, "private")?;
    std::fs::create_dir(&kept)?;
    std::fs::write(kept.join("file"), "private")?;
    sandbox
        .out(&format!(
            "ln -s '{}' file; ln -s '{}' dir",
            victim.display(),
            kept.display()
        ))
        .await?;
    assert!(get(&sandbox, "file", "").await.is_err());
    assert!(get(&sandbox, "dir/file", "").await.is_err());
    assert!(
        sandbox
            .client
            .list_dir(&sandbox.id, "dir", 2)
            .await
            .map_or(true, |found| found.entries.is_empty())
    );
    put(&sandbox, "file", b"evil").await.ok();
    put(&sandbox, "dir/file", b"evil").await.ok();
    put(&sandbox, "dir/new", b"evil").await.ok();
    sandbox
        .client
        .remove_path(&sandbox.id, "dir", true)
        .await
        .ok();
    let to = text(folder.join("out"))?;
    let copied = world
        .cli(&[
            "sandbox",
            "cp",
            &format!("{}:{}/dir/file", sandbox.id, folder.display()),
            &to,
        ])
        .await?;
    assert!(
        !copied.status.success() && !folder.join("out").exists(),
        "{copied:?}"
    );
    assert_eq!(std::fs::read(&victim)?, b"private");
    assert_eq!(std::fs::read(kept.join("file"))?, b"private");
    assert_eq!(std::fs::read_dir(&kept)?.count(), 1);
    // A link in the home to the project, or to the host, is not followed when the sandbox is removed.
    sandbox
        .out("ln -s \"$PWD\" ~/project; echo mine > mine")
        .await?;
    sandbox
        .out(&format!("ln -s '{}' ~/host", kept.display()))
        .await?;
    world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    assert_eq!(std::fs::read(folder.join("mine"))?, b"mine\n");
    assert_eq!(std::fs::read(kept.join("file"))?, b"private");
    Ok(())
}

/// 200 MiB, and 8 GiB in the long form.
#[tokio::test]
async fn a_big_file_is_copied_in_and_out_with_flat_memory() -> anyhow::Result<()> {
    if !has_tools("a_big_file_is_copied", &["sha256sum", "cmp"]) {
        return Ok(());
    }
    let size: u64 = if is_soak() { 8 << 30 } else { 200 << 20 };
    let world = world().await?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
        .await?;
    let daemon = world.daemon_pid().context("it runs")?;
    let big = text(world.work().join("big file ü"))?;
    let made = Command::new("sh")
        .args([
            "-c",
            "seq 1 2000000000 | head -c \"$2\" > \"$1\"",
            "sh",
            &big,
            &size.to_string(),
        ])
        .status()?;
    assert!(made.success());
    let before = status_bytes(daemon, "VmRSS")?;
    let began = Instant::now();
    world
        .cli_ok(&[
            "sandbox",
            "cp",
            &big,
            "box:/home/agent/new folder/große Datei",
        ])
        .await?;
    let copied_in = began.elapsed();
    let out = text(world.work().join("back"))?;
    world
        .cli_ok(&[
            "sandbox",
            "cp",
            "box:/home/agent/new folder/große Datei",
            &out,
        ])
        .await?;
    assert!(
        Command::new("cmp").args([&big, &out]).status()?.success(),
        "what comes back differs"
    );
    let peak = status_bytes(daemon, "VmHWM")?;
    say(&format!(
        "{} MiB in {copied_in:?}, out in {:?}; the daemon grew {} KiB",
        size >> 20,
        began.elapsed() - copied_in,
        peak.saturating_sub(before) >> 10
    ));
    assert!(
        peak < before + (64 << 20),
        "the daemon grew from {before} to {peak}"
    );
    let sandbox = Sandbox {
        client: world.client(),
        id: "box".into(),
    };
    assert_eq!(
        sandbox
            .out("stat -c %s '/home/agent/new folder/große Datei'")
            .await?,
        size.to_string()
    );
    for (from, to, code) in [
        (big.as_str(), "/tmp/x", 2),
        ("box:/a", "box:/b", 2),
        ("/nowhere", "box:/tmp/x", 1),
        ("box:/nowhere", "/tmp/x", 4),
    ] {
        let failed = world.cli(&["sandbox", "cp", from, to]).await?;
        assert_eq!(
            failed.status.code(),
            Some(code),
            "{from} {to}: {}",
            show(&failed.stderr)
        );
    }
    let listed = world
        .cli_ok(&["sandbox", "files", "box:/home/agent/new folder"])
        .await?;
    assert!(
        listed.contains("große Datei") && listed.contains(&size.to_string()),
        "{listed}"
    );
    Ok(())
}

/// The answer must not be lost to a connection reset because the client was still sending.
#[tokio::test]
async fn a_refused_upload_always_tells_why() -> anyhow::Result<()> {
    let world = world().await?;
    let big = world.scratch().path().join("big");
    std::fs::write(&big, vec![7u8; 8 << 20])?;
    for _ in 0..40 {
        let refused = world
            .cli(&["sandbox", "cp", &big.to_string_lossy(), "nowhere:/tmp/big"])
            .await?;
        let told = message(&refused, 4)?;
        assert!(told.contains("nowhere"), "{told}");
    }
    Ok(())
}
