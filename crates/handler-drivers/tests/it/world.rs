//! A place to try sandboxes in: folders, a driver, and commands run through the real guest link.

use handler_drivers::native::{NativeConfig, NativeDriver, StoreConfig};
use handler_engine::driver::{Driver, DriverError, Instance, InstancePlan};
use handler_engine::guest::{GuestHandle, GuestTiming, StreamItem};
use handler_types::SandboxId;
use handler_types::guest::{ProcessSpec, Stream};
use handler_types::sandbox::SandboxSpec;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// A test that takes longer is stuck.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Folders of one test, and its driver.
pub(crate) struct World {
    pub(crate) driver: NativeDriver,
    pub(crate) owner: String,
    pub(crate) folder: TempDir,
}

/// What a command did.
#[derive(Debug)]

pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The guest program: `HANDLER_GUEST`, else the one of the workspace, built when it is missing.
pub(crate) fn guest_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("HANDLER_GUEST") {
            return program.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let program = root
            .join("target/guest")
            .join(&target)
            .join("guest/handler-guest");
        if !program.exists() {
            build_guest(&root, &target);
        }
        program.canonicalize().expect("the guest program is there")
    })
}

fn build_guest(root: &Path, target: &str) {
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--profile",
            "guest",
            "-p",
            "handler-guest",
            "--target",
            target,
        ])
        .arg("--target-dir")
        .arg(root.join("target/guest"))
        .env("RUSTFLAGS", "-Ctarget-feature=+crt-static")
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(root)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the guest program is built");
}

/// Says that a test did not run.
pub(crate) fn skip(name: &str, why: &str) {
    eprintln!("SKIP {name}: {why}");
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("hn")
            .tempdir()
            .expect("temp folder");
        let mut config = NativeConfig::new(guest_program().to_owned(), folder.path().to_owned());
        config.images = Some(StoreConfig {
            folder: folder.path().join("images"),
            ..StoreConfig::default()
        });
        let owner = format!("t{}", handler_base::random::hex(6));
        Self {
            driver: NativeDriver::new(config),
            owner,
            folder,
        }
    }

    /// A folder of this world, made.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).expect("folder is made");
        folder.canonicalize().expect("folder is there")
    }

    /// A plan with the project folder `code ü,x`, whose spec `change` may edit.
    pub(crate) fn plan(&self, change: impl FnOnce(&mut SandboxSpec)) -> InstancePlan {
        let id = SandboxId::from_random(handler_base::random::bytes());
        let mut spec: SandboxSpec = serde_json::from_str(
            r#"{"backend":"native","workdir":"/home/agent","home":"/home/agent","network":{"mode":"none"}}"#,
        )
        .expect("a spec");
        let scope = self.dir("code ü,x").to_str().expect("utf-8").to_owned();
        spec.workdir.clone_from(&scope);
        spec.scope = Some(scope);
        change(&mut spec);
        let dir = self.dir(&format!("s/{id}"));
        let runtime_dir = self.dir(&format!("r/{id}"));
        InstancePlan {
            id,
            owner: self.owner.clone(),
            spec,
            dir,
            runtime_dir,
            egress_dir: None,
            ca_pem: None,
        }
    }

    /// Starts a sandbox and links to its guest.
    pub(crate) async fn start(&self, plan: InstancePlan) -> Result<Sandbox<'_>, DriverError> {
        let instance = self.driver.start(&plan).await?;
        let guest = GuestHandle::connect(&instance.guest_socket, LIMIT, GuestTiming::default())
            .await
            .expect("the guest answers");
        Ok(Sandbox {
            world: self,
            plan,
            instance,
            guest,
        })
    }

    /// A sandbox with nothing special.
    pub(crate) async fn sandbox(&self) -> Sandbox<'_> {
        self.start(self.plan(|_| {})).await.expect("starts")
    }

    /// Nothing of this world's owner is on the host any more.
    pub(crate) async fn assert_nothing_left(&self) {
        assert_eq!(self.driver.list_owned(&self.owner).await, []);
        let strays = lasting_zombies().await;
        assert!(strays.is_empty(), "zombies: {strays:?}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let folder = self.folder.path().to_str().expect("utf-8");
        assert!(!mounts.contains(folder), "a mount is left");
    }
}

impl Drop for World {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (driver, owner) = (&self.driver, self.owner.as_str());
        let clear = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                for left in driver.list_owned(owner).await {
                    let _ = driver.destroy(&left.id, owner, None).await;
                }
            });
        };
        // A runtime cannot be entered from within another one.
        std::thread::scope(|scope| {
            let _ = scope.spawn(clear).join();
        });
    }
}

/// Those that are still there after a while: what other tests have just ended is taken within moments.
async fn lasting_zombies() -> Vec<String> {
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let seen = zombies();
        if seen.is_empty() || tokio::time::Instant::now() > deadline {
            return seen;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Ended PID 1s nobody took the status of. Launchers of other tests of this process are not among them.
fn zombies() -> Vec<String> {
    let me = format!("PPid:\t{}\n", std::process::id());
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok())
        .filter(|status| status.contains(&me) && status.contains("State:\tZ"))
        .filter(|status| {
            let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            pids.is_some_and(|pids| pids.split_ascii_whitespace().nth(1) == Some("1"))
        })
        .collect()
}

/// A running sandbox.
pub(crate) struct Sandbox<'w> {
    pub(crate) world: &'w World,
    pub(crate) plan: InstancePlan,
    pub(crate) instance: Instance,
    pub(crate) guest: GuestHandle,
}

impl Sandbox<'_> {
    /// Runs a shell script to its end.
    pub(crate) async fn sh(&self, script: &str) -> Done {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let spec = ProcessSpec {
            argv,
            ..ProcessSpec::default()
        };
        let info = self.guest.start(spec).await.expect("starts");
        let mut stream = self.guest.attach(info.process, 0).await.expect("attaches");
        let (mut code, mut out, mut err) = (-1, Vec::new(), Vec::new());
        loop {
            match tokio::time::timeout(LIMIT, stream.next())
                .await
                .expect("an item in time")
            {
                StreamItem::Chunk {
                    offset,
                    stream: kind,
                    bytes,
                } => {
                    let into = if kind == Stream::Stderr {
                        &mut err
                    } else {
                        &mut out
                    };
                    into.extend_from_slice(&bytes);
                    stream.ack(offset + bytes.len() as u64);
                }
                StreamItem::Exited(exit) => code = exit.code,
                StreamItem::End { .. } => break,
                StreamItem::Lost(why) => {
                    err.extend_from_slice(why.as_bytes());
                    break;
                }
            }
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Done {
            code,
            out: text(out),
            err: text(err),
        }
    }

    /// Pid of PID 1 outside.
    pub(crate) fn pid(&self) -> i32 {
        let pid = self.instance.reference["pid"].as_i64().expect("a pid");
        i32::try_from(pid).expect("a pid")
    }

    /// Ends it and checks that it is gone.
    pub(crate) async fn destroy(self) {
        let (id, owner) = (&self.plan.id, &self.plan.owner);
        self.guest.close("the test is over");
        let driver = &self.world.driver;
        driver
            .destroy(id, owner, Some(&self.instance))
            .await
            .expect("is destroyed");
        assert!(!driver.is_alive(id, &self.instance).await);
    }
}

/// Waits until `is_so`, with a deadline.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !is_so() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
