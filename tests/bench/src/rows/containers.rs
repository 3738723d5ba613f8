//! Containers made by us, their network filtered, against the engines' own `run`, `exec` and `rm` without a
//! network: the same image, the same commands.

use super::sandbox::{self, Start};
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{REST, ms_since, pairs};
use crate::peers::{self, Engine};
use handler_client::Client;
use handler_types::api::FolderRequest;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::sandbox::CreateSandbox;
use std::time::Instant;

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (name, engine) in context.engines() {
        match engine {
            Ok(engine) => lines.extend(of_engine(context, engine).await?),
            Err(why) => lines.push(absent(name, why)),
        }
    }
    Ok(lines)
}

fn absent(name: &str, why: &str) -> Line {
    let what = format!("{name} create → output");
    Line::new(&format!("containers/{name}-run"), &what, Unit::Ms, &[])
        .without(&format!("{name} run"), why)
        .promised(Target::Ratio(Bound::AtMost(0.6)))
}

async fn of_engine(context: &Context, engine: &Engine) -> anyhow::Result<Vec<Line>> {
    let world = context.world_with(engine).await?;
    let path = world.work().to_string_lossy().into_owned();
    world.client().add_folder(&FolderRequest { path }).await?;
    let client = world.client();
    let rounds = context.pick(30, 2);
    let mut lines = starts(&client, engine, rounds).await?;
    lines.push(execs(&client, engine, rounds).await?);
    lines.push(removals(&client, engine, rounds).await?);
    Ok(lines)
}

/// What we ask for: the engine, its image, the filter.
fn request(engine: &Engine) -> CreateSandbox {
    CreateSandbox {
        backend: Some(engine.name().to_owned()),
        image: Some(engine.image().to_owned()),
        network: Some(NetworkPolicy::Filtered {
            allow: Vec::new(),
            enforcement: Enforcement::Enforce,
        }),
        ..CreateSandbox::default()
    }
}

async fn starts(client: &Client, engine: &Engine, rounds: usize) -> anyhow::Result<Vec<Line>> {
    let name = engine.name();
    let mut parts: Vec<Start> = Vec::new();
    let ours = async || {
        let start = sandbox::start_with(client, &request(engine), &["/bin/echo", "hi"]).await?;
        parts.push(start);
        Ok(start.to_output())
    };
    let theirs = async || {
        tokio::time::sleep(REST).await;
        peers::first_output(&mut engine.run(&["/bin/echo", "hi"]))
    };
    let measured = pairs(2, rounds, ours, theirs).await?;
    let what = format!("{name} create → output, filtered");
    let first = Line::new(
        &format!("containers/{name}-run"),
        &what,
        Unit::Ms,
        &measured.ours,
    )
    .against(&format!("{name} run"), &measured.theirs)
    .promised(Target::Ratio(Bound::AtMost(0.6)));
    let creates: Vec<f64> = parts.iter().map(|part| part.create).collect();
    let create = Line::new(
        &format!("containers/{name}-create"),
        "  of it: create",
        Unit::Ms,
        &creates,
    );
    Ok(vec![first, create])
}

async fn execs(client: &Client, engine: &Engine, rounds: usize) -> anyhow::Result<Line> {
    let name = engine.name();
    let view = client.create_sandbox(&request(engine)).await?;
    let container = engine.container()?;
    let ours = async || {
        let began = Instant::now();
        sandbox::exec(client, view.id.as_str(), &["/bin/true"]).await?;
        Ok(ms_since(began))
    };
    let theirs = async || peers::whole(&mut container.exec(&["/bin/true"]));
    let measured = pairs(2, rounds, ours, theirs).await?;
    client.delete_sandbox(view.id.as_str()).await?;
    let what = format!("{name}: exec `true`");
    Ok(Line::new(
        &format!("containers/{name}-exec"),
        &what,
        Unit::Ms,
        &measured.ours,
    )
    .against(&format!("{name} exec"), &measured.theirs)
    .promised(Target::Ratio(Bound::AtMost(0.2))))
}

/// Removing one that runs.
async fn removals(client: &Client, engine: &Engine, rounds: usize) -> anyhow::Result<Line> {
    let name = engine.name();
    let ours = async || {
        let view = client.create_sandbox(&request(engine)).await?;
        tokio::time::sleep(REST).await;
        let began = Instant::now();
        client.delete_sandbox(view.id.as_str()).await?;
        Ok(ms_since(began))
    };
    let theirs = async || {
        let container = engine.container()?;
        tokio::time::sleep(REST).await;
        peers::whole(&mut container.remove())
    };
    let measured = pairs(1, rounds.div_ceil(2), ours, theirs).await?;
    let what = format!("{name}: remove a running one");
    Ok(Line::new(
        &format!("containers/{name}-rm"),
        &what,
        Unit::Ms,
        &measured.ours,
    )
    .against(&format!("{name} rm --force"), &measured.theirs))
}
