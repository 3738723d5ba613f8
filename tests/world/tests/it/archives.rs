//! Folders, ranges, hashes and changes over the API and on the command line, with real `tar`, `unzip` and `python3`.

use crate::support::{Sandbox, has_tools, project, show, text, world};
use anyhow::Context as _;
use bytes::Bytes;
use handler_client::SocketMessage;
use handler_client::transport::encode;
use handler_testkit::World;
use handler_types::guest::{Unpacked, WatchEvent, WatchKind};
use handler_types::sandbox::CreateSandbox;
use http_body_util::{BodyExt as _, Full};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

async fn with_project(world: &World) -> anyhow::Result<(Sandbox, PathBuf)> {
    let folder = project(world, "app")?;
    let spec = CreateSandbox {
        scope: Some(text(&folder)?),
        ..Default::default()
    };
    Ok((Sandbox::up(world, &spec).await?, folder))
}

fn furnish(top: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(top.join("sub/empty"))?;
    std::fs::write(top.join("sub/file ü"), "content")?;
    std::fs::write(top.join("big"), vec![b'b'; 3_000_000])?;
    std::fs::write(top.join(std::ffi::OsStr::from_bytes(b"odd \xff\n")), "odd")?;
    symlink("sub/file ü", top.join("link"))?;
    Ok(())
}

fn same(one: &Path, other: &Path) -> anyhow::Result<bool> {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"]).arg(one).arg(other);
    Ok(diff.status()?.success())
}

async fn archive(sandbox: &Sandbox, path: &str, format: &str) -> anyhow::Result<Bytes> {
    let none: Option<&()> = None;
    let address = format!(
        "/v1/sandboxes/{}/files/archive?path={}&format={format}",
        sandbox.id,
        encode(path)
    );
    Ok(sandbox
        .client
        .call_raw(http::Method::GET, &address, none)
        .await?)
}

async fn unpack(
    sandbox: &Sandbox,
    path: &str,
    format: &str,
    content: Vec<u8>,
) -> Result<Unpacked, handler_client::ClientError> {
    let address = format!(
        "/v1/sandboxes/{}/files/archive?path={}&format={format}",
        sandbox.id,
        encode(path)
    );
    let body = Full::new(Bytes::from(content));
    let answer = sandbox
        .client
        .stream(http::Method::POST, &address, body)
        .await?;
    let bytes = answer.into_body().collect().await;
    let bytes = bytes.map_err(|e| handler_client::ClientError::Broken(Box::new(e)))?;
    serde_json::from_slice(&bytes.to_bytes())
        .map_err(|e| handler_client::ClientError::Unexpected(e.to_string()))
}

#[tokio::test]
async fn a_folder_comes_out_and_goes_in_in_every_form() -> anyhow::Result<()> {
    let test = "a_folder_comes_out_and_goes_in_in_every_form";
    if !has_tools(test, &["tar", "diff", "python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let (sandbox, folder) = with_project(&world).await?;
    let top = folder.join("top");
    furnish(&top)?;
    for format in ["tar", "tar.gz", "zip"] {
        let bytes = archive(&sandbox, "top", format).await?;
        let file = world.scratch().path().join(format!("a.{format}"));
        std::fs::write(&file, &bytes)?;
        let here = world.scratch().path().join(format!("here-{format}"));
        std::fs::create_dir(&here)?;
        let opened = match format {
            "zip" => Command::new("python3")
                .args(["-c", "import sys,zipfile; z=zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None"])
                .arg(&file)
                .status()?,
            _ => Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(&here).status()?,
        };
        assert!(opened.success(), "{format}");
        if format != "zip" {
            assert!(same(&top, &here)?, "{format}");
        }
        let into = format!("into-{format}");
        let done = unpack(&sandbox, &into, format, bytes.to_vec()).await?;
        assert_eq!(done.refused_count, 0, "{format}: {done:?}");
        assert!(same(&top, &folder.join(&into))?, "{format}");
        // Again over what is there: replaced and merged.
        std::fs::write(folder.join(&into).join("sub/file ü"), "other")?;
        std::fs::write(folder.join(&into).join("mine"), "mine")?;
        unpack(&sandbox, &into, format, bytes.to_vec()).await?;
        assert_eq!(
            std::fs::read(folder.join(&into).join("sub/file ü"))?,
            b"content"
        );
        assert_eq!(std::fs::read(folder.join(&into).join("mine"))?, b"mine");
    }
    for (path, format, status) in [
        ("top", "rar", 400),
        ("none", "zip", 404),
        ("/dev/null", "tar", 400),
    ] {
        let error = archive(&sandbox, path, format).await.expect_err("refused");
        let error = error.downcast::<handler_client::ClientError>()?;
        assert_eq!(
            error.problem().map(|p| p.status),
            Some(status),
            "{path}: {error}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn archives_made_to_do_harm_change_nothing_outside() -> anyhow::Result<()> {
    let test = "archives_made_to_do_harm_change_nothing_outside";
    if !has_tools(test, &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let (sandbox, folder) = with_project(&world).await?;
    std::fs::write(folder.join("secret"), "untouched")?;
    let script = r#"
import io, sys, tarfile, zipfile, stat
out = sys.argv[1]
def tar(name, *entries):
    with tarfile.open(f'{out}/{name}.tar', 'w') as t:
        for n, kind, x in entries:
            i = tarfile.TarInfo(n); i.type = kind; i.mode = 0o4755
            data = b''
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE): i.linkname = x
            elif kind == tarfile.REGTYPE: data = x
            i.size = len(data); t.addfile(i, io.BytesIO(data))
R, S, L, C = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE
tar('dots', ('../secret', R, b'bad'))
tar('absolute', ('/tmp/handler-bad', R, b'bad'))
tar('through', ('out', S, '..'), ('out/secret', R, b'bad'))
tar('hard', ('h', L, '../secret'), ('h', R, b'bad'))
tar('device', ('null', C, None), ('last', R, b'fine'))
with zipfile.ZipFile(f'{out}/dots.zip', 'w') as z: z.writestr('../secret', 'bad')
with zipfile.ZipFile(f'{out}/through.zip', 'w') as z:
    i = zipfile.ZipInfo('out'); i.create_system = 3; i.external_attr = (stat.S_IFLNK | 0o777) << 16
    z.writestr(i, '..'); z.writestr('out/secret', 'bad')
"#;
    let made = text(world.scratch().path())?;
    assert!(
        Command::new("python3")
            .args(["-c", script, &made])
            .status()?
            .success()
    );
    for (name, format, is_error) in [
        ("dots", "tar", true),
        ("absolute", "tar", true),
        ("through", "tar", false),
        ("hard", "tar", false),
        ("device", "tar", false),
        ("dots", "zip", true),
        ("through", "zip", false),
    ] {
        let bytes = std::fs::read(format!("{made}/{name}.{format}"))?;
        let result = unpack(&sandbox, "into", format, bytes).await;
        match result {
            Err(error) => {
                assert!(is_error, "{name}: {error}");
                assert_eq!(
                    error.problem().map(|p| p.status),
                    Some(400),
                    "{name}: {error}"
                );
            }
            Ok(done) => assert!(!is_error && done.refused_count > 0, "{name}: {done:?}"),
        }
        assert_eq!(
            std::fs::read(folder.join("secret"))?,
            b"untouched",
            "{name}"
        );
        assert!(!Path::new("/tmp/handler-bad").exists(), "{name}");
    }
    assert_eq!(std::fs::read(folder.join("into/last"))?, b"fine");
    assert!(!folder.join("into/null").exists());
    // No gzip, no zip, half of one.
    for (format, bytes) in [
        ("tar.gz", b"hello".to_vec()),
        ("zip", vec![0; 4000]),
        ("tar", b"x".to_vec()),
    ] {
        let error = unpack(&sandbox, "into", format, bytes)
            .await
            .expect_err("none");
        assert_eq!(
            error.problem().map(|p| p.status),
            Some(400),
            "{format}: {error}"
        );
    }
    Ok(())
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn a_folder_is_copied_both_ways_on_the_command_line_and_stays_beneath() -> anyhow::Result<()>
{
    let test = "a_folder_is_copied_both_ways";
    if !has_tools(test, &["diff"]) {
        return Ok(());
    }
    let world = world().await?;
    let (sandbox, folder) = with_project(&world).await?;
    let from = world.work().join("from");
    furnish(&from)?;
    let id = &sandbox.id;
    world
        .cli_ok(&[
            "sandbox",
            "cp",
            &text(&from)?,
            &format!("{id}:/home/agent/new"),
        ])
        .await?;
    world
        .cli_ok(&[
            "sandbox",
            "cp",
            &text(&from)?,
            &format!("{id}:/home/agent/new"),
        ])
        .await?;
    assert_eq!(
        sandbox.out("ls -d /home/agent/new/from/sub").await?,
        "/home/agent/new/from/sub"
    );
    let back = world.work().join("back");
    world
        .cli_ok(&[
            "sandbox",
            "cp",
            &format!("{id}:/home/agent/new/from"),
            &text(&back)?,
        ])
        .await?;
    assert!(same(&from, &back)?);
    // A link out is kept out, a link here is not gone through.
    sandbox
        .out("mkdir evil; ln -s /etc evil/etc; echo x > evil/file; mkfifo evil/pipe")
        .await?;
    let target = world.work().join("target");
    std::fs::create_dir(&target)?;
    std::fs::create_dir(world.work().join("elsewhere"))?;
    symlink(world.work().join("elsewhere"), target.join("sub"))?;
    let told = world
        .cli(&["sandbox", "cp", &format!("{id}:evil/."), &text(&target)?])
        .await?;
    assert!(told.status.success(), "{}", show(&told.stderr));
    assert!(
        show(&told.stderr).contains("left out"),
        "{}",
        show(&told.stderr)
    );
    assert!(!target.join("etc").exists() && target.join("file").exists());
    sandbox
        .out("mkdir -p trap/sub; echo x > trap/sub/file")
        .await?;
    let told = world
        .cli(&["sandbox", "cp", &format!("{id}:trap/."), &text(&target)?])
        .await?;
    assert!(!told.status.success());
    assert_eq!(
        std::fs::read_dir(world.work().join("elsewhere"))?.count(),
        0
    );
    // The other verbs.
    let at = |path: &str| format!("{id}:{path}");
    world
        .cli_ok(&["sandbox", "mkdir", "-p", &at("made/deep")])
        .await?;
    world
        .cli_ok(&["sandbox", "chmod", "-r", "700", &at("made")])
        .await?;
    let stat = world.cli_ok(&["sandbox", "stat", &at("made/deep")]).await?;
    assert!(stat.starts_with("d0700"), "{stat}");
    world
        .cli_ok(&["sandbox", "mv", &at("made"), "moved"])
        .await?;
    world.cli_ok(&["sandbox", "rm", "-r", &at("moved")]).await?;
    assert!(!folder.join("moved").exists());
    let out = world
        .cli_ok(&[
            "sandbox",
            "exec",
            "--shell",
            id,
            "--",
            "echo",
            "$((40 + 2))",
            "|",
            "tr",
            "4",
            "x",
        ])
        .await?;
    assert_eq!(out.trim(), "x2");
    let refused = world
        .cli(&["sandbox", "exec", "--user", "nobody", id, "--", "id"])
        .await?;
    assert!(
        !refused.status.success() && show(&refused.stderr).contains("single user"),
        "{refused:?}"
    );
    Ok(())
}

#[tokio::test]
async fn ranges_hashes_and_conditions_are_kept() -> anyhow::Result<()> {
    let world = world().await?;
    let (sandbox, folder) = with_project(&world).await?;
    std::fs::write(folder.join("file"), "0123456789")?;
    let address = |path: &str| format!("/v1/sandboxes/{}/files?path={path}", sandbox.id);
    let put = async |headers: &[(&str, &str)], path: &str, body: &str| {
        let mut builder = http::Request::builder().method("PUT").uri(address(path));
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let request = builder.body(Full::new(Bytes::from(body.to_owned())))?;
        anyhow::Ok(sandbox.client.send(request).await?.status().as_u16())
    };
    let get = async |range: &str| {
        let request = http::Request::builder()
            .uri(address("file") + "&hash=true")
            .header("range", range)
            .body(Full::new(Bytes::new()))?;
        let answer = sandbox.client.send(request).await?;
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await?.to_bytes();
        anyhow::Ok((head.status.as_u16(), head.headers, bytes))
    };
    let (status, headers, bytes) = get("bytes=2-4").await?;
    assert_eq!((status, &bytes[..]), (206, &b"234"[..]));
    assert_eq!(headers["content-range"], "bytes 2-4/10");
    let hash = headers["x-file-sha256"].to_str()?.to_owned();
    assert_eq!(&get("bytes=-3").await?.2[..], b"789");
    assert_eq!(get("bytes=8-100").await?.2, "89");
    let (status, headers, _) = get("bytes=10-").await?;
    assert_eq!(status, 416);
    assert_eq!(headers["content-range"], "bytes */10");
    assert_eq!(get("lines=1-2").await?.0, 200);

    assert_eq!(put(&[("if-none-match", "*")], "file", "new").await?, 409);
    assert_eq!(put(&[("if-none-match", "*")], "fresh", "new").await?, 200);
    assert_eq!(
        put(&[("x-content-sha256", hash.as_str())], "file", "other").await?,
        400
    );
    assert_eq!(
        put(&[("x-content-sha256", "abc")], "file", "other").await?,
        400
    );
    assert_eq!(std::fs::read(folder.join("file"))?, b"0123456789");
    assert_eq!(
        put(&[("x-content-sha256", hash.as_str())], "file", "0123456789").await?,
        200
    );
    assert_eq!(
        std::fs::read_dir(&folder)?.count(),
        2,
        "nothing half-made is left"
    );
    Ok(())
}

#[tokio::test]
async fn changes_are_told_while_they_happen() -> anyhow::Result<()> {
    let world = world().await?;
    let (sandbox, _) = with_project(&world).await?;
    sandbox.out("mkdir -p top/deep").await?;
    let address = format!(
        "/v1/sandboxes/{}/files/watch?path=top&recursive=true",
        sandbox.id
    );
    let mut socket = sandbox.client.socket(&address, "watch.v1").await?;
    sandbox
        .out("echo x > top/deep/a; mv top/deep/a top/b; rm -r top")
        .await?;
    let mut told = Vec::new();
    loop {
        match tokio::time::timeout(crate::support::LONG, socket.next()).await? {
            SocketMessage::Text(text) => told.push(serde_json::from_str::<WatchEvent>(&text)?),
            SocketMessage::Closed { reason, .. } => {
                assert!(reason.contains("gone"), "{reason}");
                break;
            }
            SocketMessage::Binary(_) => anyhow::bail!("text only"),
        }
    }
    let has = |kind, end: &str| told.iter().any(|e| e.kind == kind && e.path.ends_with(end));
    assert!(has(WatchKind::Create, "top/deep/a"), "{told:?}");
    let renamed = told
        .iter()
        .find(|e| e.kind == WatchKind::Rename)
        .context("renamed")?;
    assert!(
        renamed.to.as_ref().is_some_and(|to| to.ends_with("top/b")),
        "{renamed:?}"
    );
    assert!(has(WatchKind::Remove, "top/b"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_folder_of_sixty_four_thousand_entries_is_listed_and_packed() -> anyhow::Result<()> {
    if !has_tools("sixty four thousand entries", &["seq", "xargs", "touch"]) {
        return Ok(());
    }
    let world = world().await?;
    let (sandbox, _) = with_project(&world).await?;
    sandbox
        .out("mkdir ~/many && cd ~/many && seq 65536 | xargs touch")
        .await?;
    let listing = sandbox
        .client
        .list_dir(&sandbox.id, "/home/agent/many", 1)
        .await?;
    assert_eq!((listing.entries.len(), listing.truncated), (65_536, false));
    let bytes = archive(&sandbox, "/home/agent/many", "zip").await?;
    let done = unpack(&sandbox, "/home/agent/again", "zip", bytes.to_vec()).await?;
    assert_eq!(done.files, 65_536);
    Ok(())
}
