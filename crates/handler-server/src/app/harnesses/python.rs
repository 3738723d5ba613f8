//! The host's Python: one that is new enough for a harness, and where its pip fetches packages from.

use super::npm::{destination, root_to_show};
use crate::http::problem::{ApiError, ApiResult};
use handler_harness::InstallPlan;
use handler_types::ProblemCode;
use handler_types::network::AllowEntry;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names it is looked for by, newest first, then whatever the host calls its own.
const NAMES: [&str; 4] = ["python3.14", "python3.13", "python3.12", "python3"];

/// Asked of an interpreter: what it is, and its pip's index. Without a setting pip uses the index it was built with.
const QUESTION: &str = r#"
import ensurepip, json, os, subprocess, sys, venv
def index():
    if os.environ.get("PIP_INDEX_URL"):
        return os.environ["PIP_INDEX_URL"]
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.strip()
    from pip._internal.models.index import PyPI
    return PyPI.simple_url
print(json.dumps({"program": os.path.realpath(sys.executable), "version": list(sys.version_info[:2]), "index": index()}))
"#;

/// How long an interpreter, or its pip, may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What is needed to run pip inside.
#[derive(Debug)]
pub(super) struct HostPython {
    /// The interpreter itself, behind all links and shims.
    pub(super) program: PathBuf,
    /// The index's address.
    pub(super) index: String,
    /// The index, and where its files are.
    pub(super) allow: Vec<AllowEntry>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    program: PathBuf,
    version: [u32; 2],
    index: String,
}

fn missing(detail: String) -> ApiError {
    ApiError::new(ProblemCode::NotConfigured, detail)
}

/// Finds an interpreter that will do, and asks its pip where packages are.
///
/// # Errors
/// 424 when there is none, or its index does not answer.
pub(super) async fn find(plan: &InstallPlan) -> ApiResult<HostPython> {
    let least = plan.min_python.as_deref().unwrap_or("3.9");
    let mut found = None;
    for name in NAMES {
        let answer = run(Path::new(name), &["-c", QUESTION]).await;
        let answer = answer.and_then(|text| serde_json::from_str::<Answer>(&text).ok());
        if let Some(answer) = answer.filter(|answer| is_at_least(answer.version, least)) {
            found = Some(answer);
            break;
        }
    }
    let answer = found.ok_or_else(|| {
        missing(format!(
            "no Python {least} or newer with venv and pip is on the daemon's PATH; install one (on Debian also \
             python3-venv and python3-pip)"
        ))
    })?;
    let mut allow = vec![destination(
        &answer.index,
        "pip's index",
        "pip config list",
    )?];
    let files = files(&answer.program, plan).await?;
    let files = destination(&files, "pip's index", "pip config list")?;
    if !allow.contains(&files) {
        allow.push(files);
    }
    Ok(HostPython {
        program: answer.program,
        index: answer.index,
        allow,
    })
}

fn is_at_least(version: [u32; 2], least: &str) -> bool {
    let mut parts = least
        .split('.')
        .map(|part| part.parse().unwrap_or(u32::MAX));
    version >= [parts.next().unwrap_or(0), parts.next().unwrap_or(0)]
}

/// The address of one file of the plan: an index may keep its files on another host.
async fn files(program: &Path, plan: &InstallPlan) -> ApiResult<String> {
    let package = plan.first_package.as_deref().unwrap_or_default();
    let arguments = [
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "--report",
        "-",
        package,
    ];
    let report = run(program, &arguments).await;
    let report: Option<serde_json::Value> =
        report.and_then(|text| serde_json::from_str(&text).ok());
    let url =
        report.and_then(|r| Some(r["install"][0]["download_info"]["url"].as_str()?.to_owned()));
    url.ok_or_else(|| missing(format!("pip finds no `{package}`; see `pip config list`")))
}

/// What a program says on standard output; none: it is missing, fails or hangs.
async fn run(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = handler_base::proc::command(program);
    command
        .args(arguments)
        // Asking must leave nothing in the person's home.
        .env("PIP_NO_CACHE_DIR", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir("/");
    let output = tokio::time::timeout(ANSWER_WITHIN, command.output()).await;
    let output = output.ok()?.ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(said)
}

/// The folder of the host with the interpreter that an installed prefix uses, where no sandbox shows it anyway.
pub(super) fn runtime(prefix: &Path) -> Option<PathBuf> {
    let program = prefix.join("venv/bin/python3").canonicalize().ok()?;
    let name = program.file_name()?.to_str()?;
    if !name.starts_with("python3") {
        return None;
    }
    root_to_show(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_at_least([3, 12], "3.12") && is_at_least([3, 13], "3.9"));
        assert!(!is_at_least([3, 9], "3.12") && is_at_least([4, 0], "3.12"));
    }

    #[test]
    fn only_an_interpreter_outside_the_shown_folders_is_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("real");
        let (prefix, own) = (root.join("prefix"), root.join("versions/3.13"));
        std::fs::create_dir_all(prefix.join("venv/bin")).expect("made");
        std::fs::create_dir_all(own.join("bin")).expect("made");
        for name in ["python3.13", "other"] {
            std::fs::write(own.join("bin").join(name), "").expect("written");
        }
        let link = prefix.join("venv/bin/python3");
        assert_eq!(runtime(&prefix), None, "no interpreter");
        std::os::unix::fs::symlink(own.join("bin/python3.13"), &link).expect("linked");
        assert_eq!(runtime(&prefix), Some(own.clone()));
        std::fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink(own.join("bin/other"), &link).expect("linked");
        assert_eq!(runtime(&prefix), None, "no Python");
    }
}
