//! A command in a running sandbox, API in to result out, against `exec` of the container engines and
//! against the same command started bare.

use super::sandbox;
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{ms_since, pairs, series};
use crate::peers;
use std::process::Command;
use std::time::Instant;

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let world = context.world().await?;
    let client = world.client();
    let view = sandbox::create(&client, None).await?;
    let ours = async || {
        let began = Instant::now();
        sandbox::exec(&client, view.id.as_str(), &["true"]).await?;
        Ok(ms_since(began))
    };
    let rounds = context.pick(500, 20);
    let bare_program = peers::find("true");
    let bare = async || peers::whole(&mut Command::new(&bare_program));
    let measured = pairs(10, rounds, ours, bare).await?;
    let mut lines = vec![
        Line::new(
            "exec/own",
            "exec `true`, own overhead",
            Unit::Ms,
            &measured.ours,
        )
        .against("spawned bare", &measured.theirs)
        .promised(Target::Added(Bound::AtMost(1.0))),
    ];
    for (name, engine) in context.engines() {
        let (id, peer) = (format!("exec/{name}"), format!("{name} exec"));
        let line = match engine {
            Ok(engine) => {
                let container = engine.container()?;
                let theirs = async || peers::whole(&mut container.exec(&["/bin/true"]));
                let pairs = pairs(2, context.pick(20, 2), ours, theirs).await?;
                Line::new(&id, "exec `true`", Unit::Ms, &pairs.ours).against(&peer, &pairs.theirs)
            }
            Err(why) => Line::new(&id, "exec `true`", Unit::Ms, &[]).without(&peer, why),
        };
        lines.push(line.promised(Target::Ratio(Bound::AtMost(0.2))));
    }
    let health = series(10, rounds, async || {
        let began = Instant::now();
        client.health().await?;
        Ok(ms_since(began))
    });
    lines.push(Line::new(
        "exec/health",
        "  floor: GET /v1/health",
        Unit::Ms,
        &health.await?,
    ));
    Ok(lines)
}
