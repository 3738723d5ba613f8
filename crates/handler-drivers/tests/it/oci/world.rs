//! A place to try containers in: folders, a driver of one engine, commands through the guest.

use super::engine::Engine;
use crate::world::{Done, LIMIT, guest_program};
use handler_drivers::oci::{OciConfig, OciDriver};
use handler_engine::driver::{Driver, DriverError, Instance, InstancePlan};
use handler_engine::guest::{GuestHandle, GuestTiming, StreamItem};
use handler_types::SandboxId;
use handler_types::guest::{ProcessSpec, Stream};
use handler_types::image::ImageUse;
use handler_types::sandbox::SandboxSpec;
use std::path::PathBuf;
use tempfile::TempDir;

/// Folders of one test on one engine, and its driver.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) driver: OciDriver,
    pub(crate) owner: String,
    pub(crate) folder: TempDir,
}

/// A world for every engine of this machine.
pub(crate) fn worlds() -> Vec<World> {
    Engine::all().iter().cloned().map(World::on).collect()
}

impl World {
    pub(crate) fn on(engine: Engine) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ho")
            .tempdir()
            .expect("temp folder");
        let driver = Self::driver(&engine, &folder);
        Self {
            engine,
            driver,
            owner: format!("t{}", handler_base::random::hex(6)),
            folder,
        }
    }

    fn driver(engine: &Engine, folder: &TempDir) -> OciDriver {
        let config = OciConfig::new(guest_program().to_owned(), folder.path().to_owned());
        OciDriver::new(engine.flavour, engine.source(folder.path()), config)
    }

    /// Another driver on the same folders, as after a restart of the daemon.
    pub(crate) fn another_driver(&self) -> OciDriver {
        Self::driver(&self.engine, &self.folder)
    }

    /// A folder of this world, made.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).expect("folder is made");
        folder.canonicalize().expect("folder is there")
    }

    /// A plan with a project folder that an ordinary user owns.
    pub(crate) fn plan(&self, change: impl FnOnce(&mut SandboxSpec)) -> InstancePlan {
        let id = SandboxId::from_random(handler_base::random::bytes());
        let mut spec: SandboxSpec = serde_json::from_str(
            r#"{"backend":"x","workdir":"/home/agent","home":"/home/agent","network":{"mode":"none"}}"#,
        )
        .expect("a spec");
        spec.backend = self.engine.flavour.name().to_owned();
        spec.image = Some(ImageUse {
            reference: "test".to_owned(),
            id: self.engine.image.clone(),
        });
        let scope = self.dir("code ü");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&scope, Some(4321), Some(4321)).expect("chown");
        }
        let scope = scope.to_str().expect("utf-8").to_owned();
        spec.workdir.clone_from(&scope);
        spec.scope = Some(scope);
        change(&mut spec);
        InstancePlan {
            dir: self.dir(&format!("s/{id}")),
            runtime_dir: self.dir(&format!("r/{id}")),
            id,
            owner: self.owner.clone(),
            spec,
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

    /// A sandbox of this spec, which must start.
    pub(crate) async fn sandbox(&self, change: impl FnOnce(&mut SandboxSpec)) -> Sandbox<'_> {
        self.start(self.plan(change))
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.engine.flavour.name()))
    }

    /// Nothing of this world's owner is on the host any more.
    pub(crate) async fn assert_nothing_left(&self) {
        assert_eq!(self.driver.list_owned(&self.owner).await, []);
        let label = format!("label=handler.owner={}", self.owner);
        let listed = self.engine.ask(&["ps", "-aq", "--filter", &label]);
        // What is in the list and cannot be found is none: see `oci::observe::existing`.
        for id in listed.lines() {
            let found = self.engine.tool().args(["inspect", id]).output();
            assert!(
                found.is_ok_and(|found| !found.status.success()),
                "{id} is left: {}",
                self.engine
                    .ask(&["ps", "-a", "--no-trunc", "--filter", &label])
            );
        }
        self.driver.api().shutdown().await;
    }
}

impl Drop for World {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let label = format!("label=handler.owner={}", self.owner);
        for id in self.engine.ask(&["ps", "-aq", "--filter", &label]).lines() {
            let _ = self.engine.tool().args(["rm", "-f", id]).output();
        }
    }
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
            match tokio::time::timeout(LIMIT * 4, stream.next())
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

    /// Output of a script that must succeed.
    pub(crate) async fn out(&self, script: &str) -> String {
        let done = self.sh(script).await;
        assert_eq!(done.code, 0, "{script}: {done:?}");
        done.out.trim_end().to_owned()
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
