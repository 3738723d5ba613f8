//! Native create to the first command's output over the API, against peers that run the same command.

use super::sandbox::{Start, start_once};
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{Pairs, REST, pairs};
use crate::peers;
use handler_client::Client;
use std::process::Command;

const WHAT: &str = "native create → output";

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let world = context.world().await?;
    let client = world.client();
    let mut lines = Vec::new();
    let mut parts = Vec::new();
    lines.push(against_bwrap(context, &client, &mut parts).await?);
    for (name, engine) in context.engines() {
        let id = format!("start/{name}");
        let line = match engine {
            Ok(engine) => {
                let rounds = context.pick(20, 2);
                let make = || engine.run(&["/bin/echo", "hi"]);
                let pairs = rounds_against(&client, rounds, make, &mut Vec::new()).await?;
                let peer = format!("{name} run");
                Line::new(&id, WHAT, Unit::Ms, &pairs.ours).against(&peer, &pairs.theirs)
            }
            Err(why) => Line::new(&id, WHAT, Unit::Ms, &[]).without(&format!("{name} run"), why),
        };
        lines.push(line.promised(Target::Ratio(Bound::AtMost(0.1))));
    }
    for (what, pick) in PARTS {
        let samples: Vec<f64> = parts.iter().map(pick).collect();
        lines.push(Line::new(
            &format!("start/{what}"),
            &format!("  of it: {what}"),
            Unit::Ms,
            &samples,
        ));
    }
    Ok(lines)
}

type Part = (&'static str, fn(&Start) -> f64);

const PARTS: [Part; 3] = [
    ("create", |start| start.create),
    ("first command", |start| start.exec),
    ("delete (after)", |start| start.delete),
];

async fn against_bwrap(
    context: &Context,
    client: &Client,
    parts: &mut Vec<Start>,
) -> anyhow::Result<Line> {
    let rounds = context.pick(150, 8);
    let target = Target::Ratio(Bound::AtMost(1.5));
    match context.bwrap() {
        Ok(()) => {
            let make = || peers::bwrap(&["echo", "hi"]);
            let pairs = rounds_against(client, rounds, make, parts).await?;
            let line = Line::new("start/bwrap", WHAT, Unit::Ms, &pairs.ours);
            Ok(line.against("bwrap", &pairs.theirs).promised(target))
        }
        Err(why) => {
            for _ in 0..rounds {
                parts.push(start_once(client, None).await?);
            }
            let ours: Vec<f64> = parts.iter().map(|part| part.to_output()).collect();
            let line = Line::new("start/bwrap", WHAT, Unit::Ms, &ours);
            Ok(line.without("bwrap", why).promised(target))
        }
    }
}

async fn rounds_against(
    client: &Client,
    rounds: usize,
    peer: impl Fn() -> Command,
    parts: &mut Vec<Start>,
) -> anyhow::Result<Pairs> {
    let ours = async || {
        let start = start_once(client, None).await?;
        parts.push(start);
        Ok(start.to_output())
    };
    let theirs = async || {
        tokio::time::sleep(REST).await;
        peers::first_output(&mut peer())
    };
    pairs(2, rounds, ours, theirs).await
}
