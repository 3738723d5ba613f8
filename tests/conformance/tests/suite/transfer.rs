//! Files and folders in and out of a sandbox over the API, and folders compared.

use crate::subject::Subject;
use anyhow::Context as _;
use bytes::Bytes;
use handler_client::ClientError;
use handler_client::transport::encode;
use handler_testkit::World;
use handler_testkit::inside::Sandbox;
use handler_types::api::FileWritten;
use handler_types::guest::Unpacked;
use handler_types::sandbox::CreateSandbox;
use http_body_util::{BodyExt as _, Full};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Makes a sandbox with a project folder.
pub(crate) async fn in_project(s: &Subject, world: &World) -> anyhow::Result<(Sandbox, PathBuf)> {
    let folder = s.project(world, "files")?;
    let spec = CreateSandbox {
        scope: Some(folder.to_string_lossy().into_owned()),
        ..s.spec()
    };
    Ok((s.up(world, &spec).await?, folder))
}

/// Where a path inside is found in the API. `route` begins with `files`.
pub(crate) fn address(sandbox: &Sandbox, route: &str, path: &str) -> String {
    format!("/v1/sandboxes/{}/{route}?path={}", sandbox.id, encode(path))
}

/// Uploads a file.
pub(crate) async fn put(
    sandbox: &Sandbox,
    path: &str,
    content: impl Into<Bytes>,
) -> anyhow::Result<FileWritten> {
    let body = Full::new(content.into());
    let target = address(sandbox, "files", path);
    let answer = sandbox
        .client
        .stream(http::Method::PUT, &target, body)
        .await?;
    Ok(serde_json::from_slice(
        &answer.into_body().collect().await?.to_bytes(),
    )?)
}

/// Downloads a file; `more` is `&name=value`.
pub(crate) async fn get(sandbox: &Sandbox, path: &str, more: &str) -> anyhow::Result<Bytes> {
    let none: Option<&()> = None;
    let source = address(sandbox, "files", path) + more;
    Ok(sandbox
        .client
        .call_raw(http::Method::GET, &source, none)
        .await?)
}

/// Uploads a file only when nothing is there.
pub(crate) async fn create_only(
    sandbox: &Sandbox,
    path: &str,
    content: &'static str,
) -> anyhow::Result<u16> {
    let request = http::Request::builder()
        .method("PUT")
        .uri(address(sandbox, "files", path))
        .header("if-none-match", "*")
        .body(Full::new(Bytes::from(content)))?;
    Ok(sandbox.client.send(request).await?.status().as_u16())
}

/// Downloads a folder.
pub(crate) async fn pack(sandbox: &Sandbox, path: &str, format: &str) -> anyhow::Result<Bytes> {
    let none: Option<&()> = None;
    let source = address(sandbox, "files/archive", path) + "&format=" + format;
    Ok(sandbox
        .client
        .call_raw(http::Method::GET, &source, none)
        .await?)
}

/// Uploads a folder.
pub(crate) async fn unpack(
    sandbox: &Sandbox,
    path: &str,
    format: &str,
    content: impl Into<Bytes>,
) -> anyhow::Result<Unpacked> {
    let body = Full::new(content.into());
    let target = address(sandbox, "files/archive", path) + "&format=" + format;
    let answer = sandbox
        .client
        .stream(http::Method::POST, &target, body)
        .await?;
    Ok(serde_json::from_slice(
        &answer.into_body().collect().await?.to_bytes(),
    )?)
}

/// The status and the text of a refusal; an error when there was none.
pub(crate) fn refusal<T: std::fmt::Debug>(
    result: anyhow::Result<T>,
) -> anyhow::Result<(u16, String)> {
    match result {
        Ok(done) => anyhow::bail!("this worked: {done:?}"),
        Err(error) => {
            let error = error.downcast::<ClientError>()?;
            let problem = error.problem().context("a problem of the API")?;
            Ok((problem.status, problem.detail.clone()))
        }
    }
}

/// What a folder holds: by path below it, kind with permission bits, and content or target.
pub(crate) type Tree = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

/// Everything below a folder of this machine.
pub(crate) fn tree(top: &Path) -> anyhow::Result<Tree> {
    let mut found = BTreeMap::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let meta = std::fs::symlink_metadata(&path)?;
            let mode = meta.permissions().mode() & 0o7777;
            let what = if meta.is_symlink() {
                let target = std::fs::read_link(&path)?;
                ("link".to_owned(), target.as_os_str().as_bytes().to_vec())
            } else if meta.is_dir() {
                folders.push(path.clone());
                (format!("folder {mode:o}"), Vec::new())
            } else if meta.is_file() {
                (format!("file {mode:o}"), std::fs::read(&path)?)
            } else {
                ("other".to_owned(), Vec::new())
            };
            let name = path.strip_prefix(top)?.as_os_str().as_bytes().to_vec();
            found.insert(name, what);
        }
    }
    Ok(found)
}

/// Says whether two folders hold the same, and what differs first.
pub(crate) fn same(one: &Path, other: &Path) -> anyhow::Result<()> {
    let (one, other) = (tree(one)?, tree(other)?);
    anyhow::ensure!(!one.is_empty(), "an empty folder proves nothing");
    for name in one.keys().chain(other.keys()) {
        let (a, b) = (one.get(name), other.get(name));
        let kinds = (a.map(|a| &a.0), b.map(|b| &b.0));
        let shown = String::from_utf8_lossy(name);
        anyhow::ensure!(a == b, "`{shown}` differs: {kinds:?}");
    }
    Ok(())
}
