//! The daemon by itself: how long until it answers, and its memory when idle.

use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::ms_since;
use crate::memory::{anonymous_mib, resident_mib};
use anyhow::{bail, ensure};
use handler_testkit::World;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long one start may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often an answer is looked for.
const LOOK: Duration = Duration::from_micros(250);

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let rounds = context.pick(15, 2);
    let (mut first, mut again) = (Vec::new(), Vec::new());
    let (mut resident, mut anonymous) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let world = context.empty_world()?;
        let (daemon, time) = start(&world).await?;
        first.push(time);
        let pid = daemon.0.id();
        for _ in 0..20 {
            world.client().health().await?;
        }
        resident.push(resident_mib(pid)?);
        anonymous.push(anonymous_mib(pid)?);
        daemon.stop()?;
        let (daemon, time) = start(&world).await?;
        again.push(time);
        daemon.stop()?;
    }
    let anonymous = crate::figures::Figures::of(&anonymous).map_or(0.0, |figures| figures.median);
    let ready = Target::Value(Bound::AtMost(100.0));
    Ok(vec![
        Line::new(
            "daemon/ready",
            "daemon ready, first start",
            Unit::Ms,
            &first,
        )
        .promised(ready),
        Line::new(
            "daemon/ready-again",
            "daemon ready, started again",
            Unit::Ms,
            &again,
        )
        .promised(ready),
        Line::new("daemon/idle", "daemon idle, resident", Unit::Mib, &resident)
            .promised(Target::Value(Bound::AtMost(20.0)))
            .noted(format!("{anonymous:.1} MiB of it anonymous")),
    ])
}

/// A daemon process, killed when dropped.
#[derive(Debug)]
struct Daemon(Child);

impl Daemon {
    /// Ends it as a person would.
    fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let end = Instant::now() + PATIENCE;
        while self.0.try_wait()?.is_none() {
            ensure!(Instant::now() < end, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Milliseconds from the start of the program to its first answer.
async fn start(world: &World) -> anyhow::Result<(Daemon, f64)> {
    let log = std::fs::File::create(world.scratch().daemon_output())?;
    let mut command = world.command();
    command.args(["serve", "--port", "0"]).stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log);
    let began = Instant::now();
    let mut daemon = Daemon(command.spawn()?);
    let pid = daemon.0.id();
    loop {
        // Health needs no token; a socket of an earlier daemon refuses.
        if let Ok(health) = world.client().health().await
            && health.pid == pid
        {
            return Ok((daemon, ms_since(began)));
        }
        if let Some(status) = daemon.0.try_wait()? {
            bail!("the daemon ended ({status})\n{}", world.daemon_tail());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "the daemon does not answer\n{}",
            world.daemon_tail()
        );
        tokio::time::sleep(LOOK).await;
    }
}
