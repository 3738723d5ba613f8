//! The engines of this machine, made ready once for all tests: a private `dockerd`, and an image of nothing but busybox.

use crate::world::skip;
use handler_drivers::oci::{Flavour, OciSource};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Programs of busybox that tests use.
const APPLETS: &[&str] = &[
    "sh", "cat", "id", "echo", "sleep", "env", "touch", "mkdir", "ls", "stat", "ps", "mount",
    "wget", "rm", "grep", "head", "ln", "chmod", "tr", "wc", "nc", "dd", "ip",
];
const NAME: &str = "localhost/handler-oci-test:1";

/// An engine that answers.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(crate) flavour: Flavour,
    /// Docker's socket.
    socket: Option<PathBuf>,
    /// Id of the test image.
    pub(crate) image: String,
}

impl Engine {
    /// Every engine that there is; a missing one is said once.
    pub(crate) fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Engine>> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut all = Vec::new();
            for (name, found) in [("podman", podman()), ("docker", docker())] {
                match found {
                    Ok(engine) => all.push(engine),
                    Err(why) => skip(&format!("every test of {name} containers"), &why),
                }
            }
            all
        })
    }

    /// Where a driver finds it; `folder` is for Podman's service.
    pub(crate) fn source(&self, folder: &Path) -> OciSource {
        match &self.socket {
            Some(socket) => OciSource::Socket(socket.clone()),
            None => OciSource::Service {
                folder: folder.join("podman"),
                log: folder.join("podman.log"),
            },
        }
    }

    /// The command line tool of the engine, as a second opinion.
    pub(crate) fn tool(&self) -> Command {
        match &self.socket {
            Some(socket) => {
                let mut command = Command::new("docker");
                command
                    .arg("-H")
                    .arg(format!("unix://{}", socket.display()));
                command
            }
            None => Command::new("podman"),
        }
    }

    /// Output of the tool.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let output = self.tool().args(arguments).output().expect("the tool runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }
}

fn works(command: &mut Command) -> Result<String, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn podman() -> Result<Engine, String> {
    works(Command::new("podman").arg("info"))?;
    let image = image(|| Command::new("podman"))?;
    Ok(Engine {
        flavour: Flavour::Podman,
        socket: None,
        image,
    })
}

fn docker() -> Result<Engine, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("an ordinary user cannot start dockerd".to_owned());
    }
    let folder = std::env::temp_dir().join(format!("handler-dockerd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let socket = folder.join("d.sock");
    start_dockerd(folder.clone())?;
    let tool = || {
        let mut command = Command::new("docker");
        command
            .arg("-H")
            .arg(format!("unix://{}", socket.display()));
        command
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(why) = works(tool().arg("version")) {
        if Instant::now() > deadline {
            return Err(format!("dockerd does not answer: {why}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let image = image(tool)?;
    Ok(Engine {
        flavour: Flavour::Docker,
        socket: Some(socket),
        image,
    })
}

/// Starts it from a thread that lives as long as the tests: it dies with that thread. Its folder goes with it.
fn start_dockerd(folder: PathBuf) -> Result<(), String> {
    works(Command::new("dockerd").arg("--version"))?;
    let config = folder.join("daemon.json");
    let runsc = ["/usr/sbin/runsc", "/usr/bin/runsc"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let runtimes = runsc.map_or_else(
        || "{}".to_owned(),
        |path| format!(r#"{{"runtimes":{{"runsc":{{"path":"{path}","runtimeArgs":["--host-uds=all","--ignore-cgroups","--network=none"]}}}}}}"#),
    );
    std::fs::write(&config, runtimes).map_err(|error| error.to_string())?;
    let (told, started) = std::sync::mpsc::channel();
    let script = "trap '' TERM; \"$@\" & d=$!; while kill -0 $PPID 2>/dev/null && [ \"$(ps -o ppid= -p $$ | tr -d ' ')\" = \"$P\" ]; do sleep 0.3; done; kill $d; wait $d; umount \"$F\"/*/*/* \"$F\"/*/* 2>/dev/null; rm -rf \"$F\"";
    std::thread::spawn(move || {
        let log = std::fs::File::create(folder.join("log")).expect("log");
        let path = |name: &str| folder.join(name).display().to_string();
        let child = Command::new("setsid")
            .args([
                "sh",
                "-c",
                script,
                "sh",
                "dockerd",
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
            ])
            .args([
                "--host",
                &format!("unix://{}", path("d.sock")),
                "--data-root",
                &path("data"),
            ])
            .args([
                "--exec-root",
                &path("exec"),
                "--pidfile",
                &path("pid"),
                "--config-file",
                &path("daemon.json"),
            ])
            .env("F", &folder)
            .env("P", std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn();
        let _ = told.send(child.map(drop).map_err(|error| error.to_string()));
    });
    started.recv().map_err(|error| error.to_string())?
}

/// The test image's id; made when it is not there.
fn image(tool: impl Fn() -> Command) -> Result<String, String> {
    let id = || works(tool().args(["image", "inspect", "--format", "{{.Id}}", NAME]));
    if let Ok(id) = id() {
        return Ok(with_algorithm(id));
    }
    if !Path::new("/bin/busybox").exists() {
        return Err("there is no /bin/busybox (package busybox-static)".to_owned());
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let root = folder.path().join("root");
    for name in ["bin", "etc", "usr/bin", "tmp", "home", "opt/data"] {
        std::fs::create_dir_all(root.join(name)).map_err(|error| error.to_string())?;
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).map_err(|error| error.to_string())?;
    for name in APPLETS {
        symlink("busybox", root.join("bin").join(name)).map_err(|error| error.to_string())?;
    }
    let write = |name: &str, text: &str| {
        std::fs::write(root.join(name), text).map_err(|error| error.to_string())
    };
    write(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nimageuser:x:777:777::/:/bin/sh\n",
    )?;
    write("etc/group", "root:x:0:\nimagegroup:x:777:\n")?;
    write("opt/data/file", "of the image\n")?;
    let archive = folder.path().join("root.tar");
    works(
        Command::new("tar")
            .arg("-C")
            .arg(&root)
            .arg("-cf")
            .arg(&archive)
            .arg("."),
    )?;
    works(
        tool()
            .args([
                "import",
                "-c",
                "ENV PATH=/bin:/usr/bin",
                "-c",
                "ENV FROM_IMAGE=yes",
            ])
            .arg(&archive)
            .arg(NAME),
    )?;
    id().map(with_algorithm)
}

fn with_algorithm(id: String) -> String {
    if id.starts_with("sha256:") {
        id
    } else {
        format!("sha256:{id}")
    }
}
