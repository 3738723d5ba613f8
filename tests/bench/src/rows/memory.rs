//! Resident memory of daemon and filter, idle and with many sandboxes, each of which ran a command.

use super::sandbox;
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::memory::resident_mib;
use anyhow::Context as _;

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let count: u32 = context.pick(100, 5);
    let world = context.world().await?;
    let client = world.client();
    let daemon = world.daemon_pid().context("no daemon")?;
    let filter = sandbox::filter_pid(&world)?;
    let idle = resident_mib(filter)?;
    for _ in 0..count {
        let view = sandbox::create(&client, None).await?;
        sandbox::exec(&client, view.id.as_str(), &["true"]).await?;
    }
    let (daemon, full) = (resident_mib(daemon)?, resident_mib(filter)?);
    let each = (full - idle) / f64::from(count);
    Ok(vec![
        Line::new(
            "memory/filter-idle",
            "filter idle, resident",
            Unit::Mib,
            &[idle],
        )
        .promised(Target::Value(Bound::AtMost(12.0))),
        Line::new(
            "memory/filter-each",
            "filter, for each sandbox",
            Unit::Mib,
            &[each],
        )
        .promised(Target::Value(Bound::AtMost(0.2)))
        .noted(format!("{full:.1} MiB with {count}")),
        Line::new(
            "memory/daemon",
            &format!("daemon with {count} sandboxes"),
            Unit::Mib,
            &[daemon],
        )
        .promised(Target::Value(Bound::AtMost(60.0))),
    ])
}
