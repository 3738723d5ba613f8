//! Tools that fetch whole things: git, pip, npm.

use super::{Place, has_module};
use crate::support::has_tools;
use anyhow::ensure;
use std::path::Path;
use std::process::Command;

pub(super) fn run(folder: &Path, argv: &[&str]) -> anyhow::Result<()> {
    let done = Command::new(argv[0])
        .args(&argv[1..])
        .current_dir(folder)
        .envs([
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@example.com"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@example.com"),
        ])
        .output()?;
    ensure!(
        done.status.success(),
        "{argv:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}

#[tokio::test]
async fn git_clones_with_a_token() -> anyhow::Result<()> {
    if !has_tools("git_clones", &["git"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    let made = tempfile::tempdir()?;
    run(made.path(), &["git", "init", "-q", "-b", "main"])?;
    std::fs::write(made.path().join("file"), "content\n")?;
    run(made.path(), &["git", "add", "file"])?;
    run(made.path(), &["git", "commit", "-q", "-m", "first"])?;
    run(
        &place.origin.files,
        &[
            "git",
            "clone",
            "-q",
            "--bare",
            &made.path().to_string_lossy(),
            "repo.git",
        ],
    )?;
    run(
        &place.origin.files.join("repo.git"),
        &["git", "update-server-info"],
    )?;
    let script = "rm -rf /tmp/clone; git -c http.extraHeader=\"Authorization: Bearer $TOKEN\" clone -q \
         https://$HERE/repo.git /tmp/clone && cat /tmp/clone/file";
    let outputs = place.both(script, "/repo.git/info/refs").await?;
    ensure!(outputs == ["content", "content"], "{outputs:?}");
    place.end().await
}

#[tokio::test]
async fn pip_downloads_with_a_password() -> anyhow::Result<()> {
    if !has_module("pip") {
        handler_testkit::skip("pip_downloads", "there is no python3-pip");
        return Ok(());
    }
    let place = Place::new().await?;
    let simple = place.origin.files.join("simple/demo");
    std::fs::create_dir_all(&simple)?;
    std::fs::write(
        simple.join("index"),
        "<a href=\"/files/demo-1.0-py3-none-any.whl\">demo-1.0-py3-none-any.whl</a>",
    )?;
    let files = place.origin.files.join("files");
    std::fs::create_dir_all(&files)?;
    let wheel = "import zipfile\n\
         z=zipfile.ZipFile('demo-1.0-py3-none-any.whl','w')\n\
         d='demo-1.0.dist-info/'\n\
         z.writestr('demo.py','')\n\
         z.writestr(d+'METADATA','Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n')\n\
         z.writestr(d+'WHEEL','Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         z.writestr(d+'RECORD','')\n\
         z.close()";
    run(&files, &["/usr/bin/python3", "-c", wheel])?;
    let script = "rm -rf /tmp/wheels; /usr/bin/python3 -m pip download -q --disable-pip-version-check --no-deps \
         --no-cache-dir -d /tmp/wheels --index-url https://user:$TOKEN@$HERE/simple demo >/tmp/pip.log 2>&1 \
         || { cat /tmp/pip.log; exit 1; }; ls /tmp/wheels";
    let outputs = place.both(script, "/simple/demo/").await?;
    ensure!(
        outputs
            .iter()
            .all(|output| output == "demo-1.0-py3-none-any.whl"),
        "{outputs:?}"
    );
    place.end().await
}

#[tokio::test]
async fn npm_installs_with_a_token() -> anyhow::Result<()> {
    if !has_tools("npm_installs", &["npm", "node"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    let made = tempfile::tempdir()?;
    std::fs::create_dir_all(made.path().join("package"))?;
    std::fs::write(
        made.path().join("package/package.json"),
        r#"{"name":"demo","version":"1.0.0"}"#,
    )?;
    let archive = place.origin.files.join("demo/-");
    std::fs::create_dir_all(&archive)?;
    let archive = archive
        .join("demo-1.0.0.tgz")
        .to_string_lossy()
        .into_owned();
    run(made.path(), &["tar", "-czf", &archive, "package"])?;
    let described = r#"{"name":"demo","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"demo","version":"1.0.0",
        "dist":{"tarball":"https://@HERE@/demo/-/demo-1.0.0.tgz"}}}}"#;
    std::fs::write(place.origin.files.join("demo/index"), described)?;
    let script = "rm -rf /tmp/npm; mkdir /tmp/npm; cd /tmp/npm; echo {} >package.json; \
         npm install --silent --no-audit --no-fund --cache /tmp/npm/cache --registry https://$HERE/ --//$HERE/:_authToken=$TOKEN demo >&2; \
         cat node_modules/demo/package.json";
    let outputs = place.both(script, "/demo").await?;
    ensure!(
        outputs.iter().all(|output| output.contains("1.0.0")),
        "{outputs:?}"
    );
    place.end().await
}

/// `fetch` as agents written for Node use it.
#[tokio::test]
async fn nodes_fetch_through_undici_reaches_what_is_allowed() -> anyhow::Result<()> {
    if !has_tools("nodes_fetch", &["npm", "node"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    let installed = Command::new("npm")
        .args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "undici@6.21.1",
        ])
        .current_dir(&place.project)
        .output()?;
    if !installed.status.success() {
        handler_testkit::skip("nodes_fetch", "undici cannot be installed here");
        return place.end().await;
    }
    let program = "const {fetch,EnvHttpProxyAgent,setGlobalDispatcher}=require('undici'); \
         setGlobalDispatcher(new EnvHttpProxyAgent()); \
         fetch('https://'+process.env.HERE+'/hello',{headers:{authorization:'Bearer '+process.env.TOKEN}})\
         .then(a=>a.text()).then(t=>process.stdout.write(t))";
    place.says_hello(&format!("node -e \"{program}\"")).await?;
    place.end().await
}
