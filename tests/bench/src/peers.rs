//! The peers: `bwrap`, and the container engines that are installed and really work here.

use crate::image;
use crate::measure::ms_since;
use anyhow::{Context as _, bail, ensure};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a peer may take for one thing.
const PATIENCE: Duration = Duration::from_secs(90);

/// A container engine with an image to run.
#[derive(Debug)]
pub(crate) struct Engine {
    name: &'static str,
    /// Docker's, when it is not the usual one.
    socket: Option<PathBuf>,
}

/// A running container, removed when dropped.
#[derive(Debug)]
pub(crate) struct Container<'a> {
    engine: &'a Engine,
    id: String,
}

/// `bwrap` set up about like a native sandbox: system read-only, own home, /tmp, /proc and /dev, all
/// namespaces its own, no capabilities.
pub(crate) fn bwrap(argv: &[&str]) -> Command {
    let mut command = Command::new(find("bwrap"));
    for folder in ["/usr", "/bin", "/sbin", "/lib", "/lib64"] {
        let path = Path::new(folder);
        if let Ok(target) = std::fs::read_link(path) {
            command.arg("--symlink").arg(target).arg(folder);
        } else if path.is_dir() {
            command.args(["--ro-bind", folder, folder]);
        }
    }
    for file in [
        "/etc/ld.so.cache",
        "/etc/passwd",
        "/etc/group",
        "/etc/ssl",
        "/etc/alternatives",
    ] {
        command.args(["--ro-bind-try", file, file]);
    }
    command
        .args([
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
            "--tmpfs",
            "/home/agent",
        ])
        .args([
            "--unshare-all",
            "--die-with-parent",
            "--new-session",
            "--cap-drop",
            "ALL",
        ])
        .args([
            "--chdir",
            "/home/agent",
            "--clearenv",
            "--setenv",
            "PATH",
            "/usr/bin:/bin",
            "--",
        ])
        .args(argv);
    command
}

/// Where a program lies, so that starting it does not search for it each time; its name when unknown.
pub(crate) fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|p| p.is_file());
    found.unwrap_or_else(|| name.into())
}

/// Whether `bwrap` works, or why not.
pub(crate) fn find_bwrap() -> Result<(), String> {
    match first_output(&mut bwrap(&["echo", "hi"])) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Milliseconds from the start of a command to the first byte it prints. Its end is waited for, off the clock.
pub(crate) fn first_output(command: &mut Command) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut child = spawn(command)?;
    let mut output = child.stdout.take().context("its output")?;
    let mut byte = [0];
    let read = output.read(&mut byte);
    let time = ms_since(began);
    let end = wait(child, &mut output);
    ensure!(
        read? == 1,
        "{} printed nothing ({})",
        name_of(command),
        describe(&end?)
    );
    Ok(time)
}

/// Milliseconds from the start of a command to its end, its output read.
pub(crate) fn whole(command: &mut Command) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut child = spawn(command)?;
    let mut output = child.stdout.take().context("its output")?;
    let end = wait(child, &mut output)?;
    let time = ms_since(began);
    ensure!(
        end.status.success(),
        "{} failed ({})",
        name_of(command),
        describe(&end)
    );
    Ok(time)
}

fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.spawn().with_context(|| name_of(command))
}

fn wait(mut child: Child, output: &mut impl std::io::Read) -> anyhow::Result<Output> {
    let mut stdout = Vec::new();
    output.take(1 << 20).read_to_end(&mut stdout)?;
    let status = child.wait()?;
    Ok(Output {
        status,
        stdout,
        stderr: Vec::new(),
    })
}

fn name_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn describe(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default();
    format!("{} {last}", output.status).trim().to_owned()
}

/// Runs a command to its end, which must come in time and be a success.
fn run(command: &mut Command) -> anyhow::Result<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("{} is not here", name_of(command)))?;
    let end = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            bail!("{} did not end within {PATIENCE:?}", name_of(command));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", describe(&output));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Engine {
    /// Makes the image and runs it once; else says why this engine is absent.
    pub(crate) fn find(name: &'static str, socket: Option<PathBuf>) -> Result<Self, String> {
        let engine = Self { name, socket };
        let tried = run(engine.command().arg("version"))
            .and_then(|_| engine.make_image())
            .and_then(|()| run(&mut engine.run(&["/bin/echo", "hi"])));
        match tried {
            Ok(_) => Ok(engine),
            Err(error) => Err(format!("{error:#}").chars().take(200).collect()),
        }
    }

    /// What it is called here and in our API.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Where it listens, when that is not the usual place.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The image that is run, ours and theirs.
    pub(crate) fn image(&self) -> &'static str {
        if self.name == "podman" {
            "localhost/handler-bench:1"
        } else {
            "handler-bench:1"
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.name);
        if let Some(socket) = &self.socket {
            command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
        }
        command
    }

    fn make_image(&self) -> anyhow::Result<()> {
        if run(self.command().args(["image", "inspect", self.image()])).is_ok() {
            return Ok(());
        }
        let archive = image::archive()?;
        run(self
            .command()
            .arg("import")
            .arg(archive.path())
            .arg(self.image()))?;
        Ok(())
    }

    /// `run --rm` without a network: the fastest this engine offers.
    pub(crate) fn run(&self, argv: &[&str]) -> Command {
        let mut command = self.command();
        command
            .args(["run", "--rm", "--network=none", self.image()])
            .args(argv);
        command
    }

    /// Starts a container that waits for commands.
    pub(crate) fn container(&self) -> anyhow::Result<Container<'_>> {
        let mut command = self.command();
        command.args([
            "run",
            "--detach",
            "--network=none",
            self.image(),
            "/bin/sleep",
            "86400",
        ]);
        Ok(Container {
            engine: self,
            id: run(&mut command)?,
        })
    }
}

impl Container<'_> {
    /// `exec` in it.
    pub(crate) fn exec(&self, argv: &[&str]) -> Command {
        let mut command = self.engine.command();
        command.arg("exec").arg(&self.id).args(argv);
        command
    }

    /// Its removal while it runs.
    pub(crate) fn remove(&self) -> Command {
        let mut command = self.engine.command();
        command.args(["rm", "--force", "--volumes"]);
        if self.engine.name == "podman" {
            // Docker kills at once; Podman would give the program ten seconds.
            command.args(["--time", "0"]);
        }
        command.arg(&self.id);
        command
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        run(&mut self.remove()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_output_comes_before_the_end() {
        let script = "printf x; sleep 0.3";
        let first = first_output(Command::new("sh").args(["-c", script])).expect("first");
        let all = whole(Command::new("sh").args(["-c", script])).expect("whole");
        assert!(first < all, "{first} < {all}");
    }

    #[test]
    fn silence_and_failure_are_errors() {
        assert!(first_output(&mut Command::new("true")).is_err());
        assert!(whole(&mut Command::new("false")).is_err());
        assert!(whole(&mut Command::new("handler-no-such-program")).is_err());
        assert!(
            Engine::find("handler-no-such-engine", None).is_err_and(|why| why.contains("not here"))
        );
    }
}
