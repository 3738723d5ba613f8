//! Stands in for `handler` in the testkit's own tests: answers `/v1/health`, leaves a process and folders
//! behind as a daemon with a sandbox does, and has a few commands.

use anyhow::{Context as _, bail};
use axum::routing::get;
use handler_types::api::Health;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", ..] => serve(args.iter().any(|arg| arg == "--sandbox")),
        ["init", _, folder] | ["egress", "--control", folder] => wait_for_end(Path::new(folder)),
        ["echo"] => {
            let mut text = Vec::new();
            std::io::stdin().read_to_end(&mut text)?;
            std::io::stdout().write_all(&text)?;
            Ok(())
        }
        ["fail"] => bail!("it failed"),
        _ => bail!("unknown command"),
    }
}

#[tokio::main]
async fn serve(with_sandbox: bool) -> anyhow::Result<()> {
    let run = folder("HANDLER_RUNTIME_DIR")?;
    std::fs::write(folder("HANDLER_CONFIG_DIR")?.join("token"), "stand-in\n")?;
    if with_sandbox {
        let sandbox = folder("HANDLER_STATE_DIR")?.join("sandboxes/sbstandin01");
        std::fs::create_dir_all(&sandbox)?;
        start_apart(&["init", &owner(&run), text(&sandbox)?])?;
        start_apart(&["egress", "--control", text(&run)?])?;
    }
    let socket = run.join("handler.sock");
    std::fs::remove_file(&socket).ok();
    let health = axum::Json(Health {
        status: "ok".to_owned(),
        version: "0".to_owned(),
        pid: std::process::id(),
    });
    let router = axum::Router::new().route("/v1/health", get(async move || health));
    let unix = tokio::net::UnixListener::bind(&socket)?;
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    std::fs::write(run.join("port"), tcp.local_addr()?.port().to_string())?;
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = axum::serve(unix, router.clone()) => ended?,
        ended = axum::serve(tcp, router) => ended?,
        _ = end.recv() => {}
    }
    Ok(())
}

/// As the real one: a text of this world only, in which its folder is not named.
fn owner(run: &Path) -> String {
    let folder = run.parent().and_then(Path::file_name).unwrap_or_default();
    let backwards: String = folder.to_string_lossy().chars().rev().collect();
    format!("--owner={backwards}")
}

/// Starts a process that outlives this one and has none of its environment.
fn start_apart(args: &[&str]) -> anyhow::Result<()> {
    Command::new(std::env::current_exe()?)
        .args(args)
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(())
}

/// Lives as long as its folder.
fn wait_for_end(folder: &Path) -> anyhow::Result<()> {
    while folder.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

fn folder(variable: &str) -> anyhow::Result<PathBuf> {
    let value = std::env::var_os(variable).with_context(|| format!("{variable} is not set"))?;
    Ok(value.into())
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is text")
}
