//! Showing a file or folder in the desktop's file manager. Nothing of the agent's is ever opened: a file is selected in
//! its folder, a folder is opened.

use super::{blocking, open, refused};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_folder::{FolderError, Kind};
use handler_types::ProblemCode;
use handler_types::session_folder::RevealRequest;
use std::time::Duration;

/// Longest an answer of the desktop is waited for.
const LIMIT: Duration = Duration::from_secs(10);
const SERVICE: &str = "org.freedesktop.FileManager1";

/// Shows it.
///
/// # Errors
/// 404; 400 `path not shown`; 409 `cannot show it` when no desktop answers.
pub async fn reveal(app: &App, session: &str, asked: RevealRequest) -> ApiResult<()> {
    let opened = open(app, session, asked.mount.as_deref()).await?;
    let base = match asked.mount.as_deref().filter(|mount| !mount.is_empty()) {
        None => opened.row.scope.clone(),
        Some(target) => super::mounts::source(app, &opened.row, target).await?,
    };
    let path = asked.path.clone();
    let kind = blocking(move || {
        let place = opened.root.find(&path).map_err(refused)?;
        match place.stat.kind() {
            // A FIFO or a device is nothing to show.
            Kind::Other => Err(refused(FolderError::NotShown(format!(
                "`{path}`: it is no regular file"
            )))),
            kind => Ok(kind),
        }
    })
    .await?;
    let whole = match asked.path.is_empty() {
        true => base,
        false => format!("{base}/{}", asked.path),
    };
    let folder = match kind {
        Kind::Folder => whole.clone(),
        _ => whole
            .rsplit_once('/')
            .map_or(String::new(), |(folder, _)| folder.to_owned()),
    };
    let method = match kind {
        Kind::Folder => "ShowFolders",
        _ => "ShowItems",
    };
    let shown = show(method, &whole).await || open_folder(&folder).await;
    if shown {
        return Ok(());
    }
    let detail = format!("no desktop session answers here; it is at {whole}");
    Err(ApiError::titled(
        ProblemCode::Conflict,
        "cannot show it",
        detail,
    ))
}

fn has(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Asks the desktop's file manager over D-Bus.
async fn show(method: &str, path: &str) -> bool {
    if !has("DBUS_SESSION_BUS_ADDRESS") && !has("XDG_RUNTIME_DIR") {
        return false;
    }
    // An address has no quote left in it.
    let items = format!("['{}']", address(path));
    let method = format!("{SERVICE}.{method}");
    run(
        "gdbus",
        &[
            "call",
            "--session",
            "--timeout",
            "8",
            "--dest",
            SERVICE,
            "--object-path",
            "/org/freedesktop/FileManager1",
            "--method",
            &method,
            &items,
            "",
        ],
    )
    .await
}

/// Opens a folder with the desktop's way of opening folders.
async fn open_folder(folder: &str) -> bool {
    if folder.is_empty() || (!has("DISPLAY") && !has("WAYLAND_DISPLAY")) {
        return false;
    }
    run("xdg-open", &[&address(folder)]).await
}

/// Runs a program of the system with these arguments, without a shell.
async fn run(program: &str, args: &[&str]) -> bool {
    let status = handler_base::proc::command(program)
        .args(args)
        .current_dir("/")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    let status = tokio::time::timeout(LIMIT, status).await;
    matches!(status, Ok(Ok(status)) if status.success())
}

/// A path as `file:` address.
fn address(path: &str) -> String {
    use std::fmt::Write as _;
    let mut address = String::from("file://");
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_address_has_nothing_that_ends_it() {
        assert_eq!(
            super::address("/w/a'b \"$(x)\"\nü"),
            "file:///w/a%27b%20%22%24%28x%29%22%0A%C3%BC"
        );
    }
}
