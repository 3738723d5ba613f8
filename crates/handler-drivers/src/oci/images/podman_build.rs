//! Building with Podman: its command line, since its API cannot lend a file to a build.
//!
//! Everything the build uses besides the engine's store lies in one private folder beside the context, which
//! also marks the build's working container (the folder is mounted into it), so that what a cancelled build or
//! a killed daemon leaves can be told from other people's and removed. Values of proxies travel in the
//! environment, never in arguments.

use super::build_processes;
use super::text::LineCutter;
use super::view::full_id;
use handler_engine::images::{BuildPlan, ImageError, Lines};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// The command-line program; it uses the same store as the service that the daemon starts.
const PROGRAM: &str = "podman";
/// Where the lent files are while building.
const INSIDE: &str = "/run/handler-build";
/// Variables that name a bundle of certificates; recipes that declare them as arguments get them.
const CA_VARIABLES: [&str; 6] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
];

/// Builds; answers the id.
pub(super) async fn run(
    plan: &BuildPlan,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<String, ImageError> {
    if plan.context.to_string_lossy().contains(':') {
        return Err(ImageError::Unsupported(
            "Podman cannot build below a folder with a colon in its name; choose another state folder".to_owned(),
        ));
    }
    let scratch = Scratch::make(plan)?;
    let done = attempt(plan, &scratch, lines, cancel).await;
    if done.is_err() {
        remove_containers(&scratch.path).await;
    }
    done
}

async fn attempt(
    plan: &BuildPlan,
    scratch: &Scratch,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<String, ImageError> {
    let context = File::open(&plan.context)
        .map_err(|error| ImageError::Invalid(format!("the context cannot be read: {error}")))?;
    let mut child = command(plan, scratch)
        .stdin(Stdio::from(context))
        .spawn()
        .map_err(|error| ImageError::Unavailable(format!("`{PROGRAM}` cannot be run: {error}")))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut tail = Tail::default();
    let ended = {
        let talk = async {
            // What went wrong is told on standard error, last.
            let mut steps = Tail::default();
            tokio::join!(pass(err, lines, &mut tail), pass(out, lines, &mut steps));
            child.wait().await
        };
        tokio::select! {
            () = cancel.cancelled() => None,
            ended = talk => Some(ended),
        }
    };
    match ended {
        None => {
            build_processes::end_all(&scratch.path).await;
            child.wait().await.ok();
            Err(ImageError::Cancelled)
        }
        Some(Ok(status)) if status.success() => scratch.id(),
        Some(Ok(status)) => Err(failed(status, &tail.0)),
        Some(Err(error)) => Err(ImageError::Failed(format!("the build was lost: {error}"))),
    }
}

fn failed(status: ExitStatus, tail: &str) -> ImageError {
    let said = if tail.is_empty() {
        format!("the build ended with {status}")
    } else {
        tail.trim_start_matches("Error: ").to_owned()
    };
    super::http::classify(0, &said)
}

fn command(plan: &BuildPlan, scratch: &Scratch) -> Command {
    let mut command = handler_base::proc::command(PROGRAM);
    command
        .args(["build", "--rm", "--force-rm", "--file", &plan.containerfile])
        .arg("--iidfile")
        .arg(scratch.path.join("id"))
        .arg("--volume")
        .arg(format!("{}:{INSIDE}:ro", scratch.lent().display()))
        .arg(if plan.pull {
            "--pull=always"
        } else {
            "--pull=missing"
        });
    if plan.no_cache {
        // One layer, and no images of steps.
        command.args(["--no-cache", "--layers=false"]);
    } else {
        command.arg("--layers=true");
    }
    if plan.ca_bundle.is_some() {
        for variable in CA_VARIABLES {
            command.arg("--build-arg");
            command.arg(format!("{variable}={INSIDE}/ca-bundle.pem"));
        }
    }
    for (name, value) in &plan.args {
        command.arg("--build-arg").arg(format!("{name}={value}"));
    }
    for (name, value) in &plan.labels {
        command.arg("--label").arg(format!("{name}={value}"));
    }
    for tag in &plan.tags {
        command.args(["--tag", tag]);
    }
    // Podman hands the proxy variables of its own environment to each step, and to nothing that stays.
    command.envs(&plan.proxy);
    command.env("TMPDIR", scratch.path.join("tmp"));
    command.arg("-");
    command
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The last line that was said, for the error.
#[derive(Default)]
struct Tail(String);

async fn pass(stream: Option<impl AsyncRead + Unpin>, lines: &Lines, tail: &mut Tail) {
    let Some(mut stream) = stream else { return };
    let mut cutter = LineCutter::default();
    let mut piece = [0; 8192];
    loop {
        let got = stream.read(&mut piece).await.unwrap_or(0);
        let mut cut = cutter.push(&piece[..got]);
        if got == 0 {
            cut.extend(cutter.take());
        }
        for line in cut {
            tail.0.clone_from(&line);
            lines.send(line).await.ok();
        }
        if got == 0 {
            return;
        }
    }
}

/// The private folder of a build.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn make(plan: &BuildPlan) -> Result<Self, ImageError> {
        let folder = plan.context.parent().unwrap_or(Path::new("/"));
        let path = folder.join(format!(".build-{}", handler_base::random::hex(8)));
        let scratch = Self { path };
        let made = scratch.fill(plan);
        made.map(|()| scratch).map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull => ImageError::NoSpace(error.to_string()),
            _ => ImageError::Failed(format!("the build's folder cannot be made: {error}")),
        })
    }

    fn fill(&self, plan: &BuildPlan) -> std::io::Result<()> {
        handler_base::fs::create_private_dir(&self.path)?;
        handler_base::fs::create_private_dir(&self.path.join("tmp"))?;
        std::fs::create_dir(self.lent())?;
        for (name, content) in &plan.lent {
            std::fs::write(self.lent().join(name), content)?;
        }
        if let Some(bundle) = &plan.ca_bundle {
            let wrap = |error: std::io::Error| {
                std::io::Error::new(error.kind(), format!("{}: {error}", bundle.display()))
            };
            std::fs::copy(bundle, self.lent().join("ca-bundle.pem")).map_err(wrap)?;
        }
        Ok(())
    }

    fn lent(&self) -> PathBuf {
        self.path.join("lent")
    }

    fn id(&self) -> Result<String, ImageError> {
        let id = std::fs::read_to_string(self.path.join("id"))
            .map_err(|error| ImageError::Failed(format!("the build named no image: {error}")))?;
        Ok(full_id(id.trim()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a build's folder stays");
        }
    }
}

/// Ends builds of an earlier daemon and removes what they left; `folder` holds the folders of all builds.
pub(super) async fn sweep(folder: &Path) {
    build_processes::end_all(folder).await;
    remove_containers(folder).await;
}

/// Removes working containers that have something below `folder` mounted: a build's own scratch folder, or the
/// folder of all builds after a restart.
pub(super) async fn remove_containers(folder: &Path) {
    for id in working_containers(folder).await {
        build_processes::kill_inside(&id);
        let mut command = handler_base::proc::command(PROGRAM);
        command.args(["rm", "--force", &id]).stdout(Stdio::null());
        match command.status().await {
            Ok(status) if status.success() => {
                tracing::info!(container = id, "a build's working container was removed");
            }
            other => tracing::warn!(?other, container = id, "a build's working container stays"),
        }
    }
}

async fn working_containers(folder: &Path) -> Vec<String> {
    let said = |args: &'static [&'static str]| async move {
        let mut command = handler_base::proc::command(PROGRAM);
        let output = command.args(args).stderr(Stdio::null()).output().await;
        output.map_or(String::new(), |o| {
            String::from_utf8_lossy(&o.stdout).trim().to_owned()
        })
    };
    let root = said(&["info", "--format", "{{.Store.GraphRoot}}"]).await;
    let driver = said(&["info", "--format", "{{.Store.GraphDriverName}}"]).await;
    let listed = said(&["ps", "--all", "--external", "--quiet", "--no-trunc"]).await;
    // As it stands in a JSON document.
    let mark = format!("\"{}/", folder.display());
    let containers = Path::new(&root).join(format!("{driver}-containers"));
    listed
        .lines()
        .filter(|id| id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()))
        .filter(|id| {
            let record = containers.join(id).join("userdata/buildah.json");
            std::fs::read_to_string(record).is_ok_and(|text| text.contains(&mark))
        })
        .map(str::to_owned)
        .collect()
}
