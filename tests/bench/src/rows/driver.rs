//! The native driver alone: launcher spawned to the guest's greeting, without daemon, filter and API.

use crate::context::Context;
use crate::line::{Line, Unit};
use crate::measure::{REST, ms_since, pairs, series};
use crate::peers;
use anyhow::{Context as _, ensure};
use handler_drivers::native::{BACKEND, NativeConfig, NativeDriver};
use handler_engine::driver::{Driver as _, InstancePlan};
use handler_engine::guest::{GuestHandle, GuestTiming};
use handler_testkit::Scratch;
use handler_types::SandboxId;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Lifetime, Resources, SandboxSpec};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long one start may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let guest = context.guest.clone().filter(|guest| guest.is_file());
    let guest =
        guest.context("no guest program: run `cargo xtask bench`, or set HANDLER_BENCH_GUEST")?;
    let scratch = Scratch::new()?;
    let driver = NativeDriver::new(NativeConfig::new(guest, scratch.folder("state")));
    let ours = async || start_once(&driver, &scratch).await;
    let rounds = context.pick(150, 8);
    let line = match context.bwrap() {
        Ok(()) => {
            let bwrap = async || {
                tokio::time::sleep(REST).await;
                peers::first_output(&mut peers::bwrap(&["echo", "hi"]))
            };
            let pairs = pairs(3, rounds, ours, bwrap).await?;
            line(&pairs.ours).against("bwrap", &pairs.theirs)
        }
        Err(why) => line(&series(3, rounds, ours).await?).without("bwrap", why),
    };
    Ok(vec![line])
}

fn line(samples: &[f64]) -> Line {
    Line::new(
        "driver/start",
        "driver start → guest's greeting",
        Unit::Ms,
        samples,
    )
}

async fn start_once(driver: &NativeDriver, scratch: &Scratch) -> anyhow::Result<f64> {
    let plan = plan(scratch)?;
    tokio::time::sleep(REST).await;
    let began = Instant::now();
    let instance = driver.start(&plan).await?;
    let greeted =
        GuestHandle::connect(&instance.guest_socket, PATIENCE, GuestTiming::default()).await;
    let time = ms_since(began);
    if let Ok(handle) = &greeted {
        handle.close("measured");
    }
    driver
        .destroy(&plan.id, &plan.owner, Some(&instance))
        .await?;
    for folder in [&plan.dir, &plan.runtime_dir] {
        std::fs::remove_dir_all(folder)?;
    }
    greeted?;
    ensure!(
        !driver.is_alive(&plan.id, &instance).await,
        "an instance outlived its removal"
    );
    Ok(time)
}

fn plan(scratch: &Scratch) -> anyhow::Result<InstancePlan> {
    let id = SandboxId::from_random(handler_base::random::bytes());
    let make = |parent: &Path| -> anyhow::Result<_> {
        let folder = parent.join(id.as_str());
        handler_base::fs::create_private_dir(&folder)?;
        Ok(folder)
    };
    Ok(InstancePlan {
        dir: make(&scratch.folder("state"))?,
        runtime_dir: make(&scratch.folder("run"))?,
        owner: scratch.mark(),
        spec: spec(),
        egress_dir: None,
        ca_pem: None,
        id,
    })
}

fn spec() -> SandboxSpec {
    SandboxSpec {
        backend: BACKEND.to_owned(),
        name: None,
        scope: None,
        workdir: "/home/agent".to_owned(),
        home: "/home/agent".to_owned(),
        mounts: Vec::new(),
        files: Vec::new(),
        env: BTreeMap::new(),
        network: NetworkPolicy::None,
        resources: Resources::default(),
        strict_limits: false,
        lifetime: Lifetime::Kept,
        labels: BTreeMap::new(),
        phantoms: Vec::new(),
        ..SandboxSpec::default()
    }
}
