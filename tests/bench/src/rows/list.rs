//! The first page of a long list, read by a client; the rows lie in the database before the daemon starts.

use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{ms_since, series};
use crate::memory::resident_mib;
use anyhow::{Context as _, ensure};
use handler_store::Store;
use handler_store::rows::{SandboxIntent, SandboxRow};
use handler_testkit::World;
use handler_types::SandboxId;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Lifetime, Resources, SandboxSpec, SandboxState};
use std::collections::BTreeMap;
use std::time::Instant;

/// Items on a page.
const PAGE: u32 = 50;

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let count: u32 = context.pick(10_000, 500);
    let mut world = context.empty_world()?;
    fill(&world, count).await?;
    let began = Instant::now();
    world.start_daemon().await?;
    let ready = ms_since(began);
    let client = world.client();
    let sandboxes = series(5, context.pick(200, 10), async || {
        let began = Instant::now();
        let page = client.sandboxes("", PAGE).await?;
        ensure!(
            page.items.len() == PAGE as usize && page.next_cursor.is_some(),
            "a short page"
        );
        Ok(ms_since(began))
    });
    let sandboxes = sandboxes.await?;
    let resident = resident_mib(world.daemon_pid().context("no daemon")?)?;
    Ok(vec![
        Line::new(
            "list/sandboxes",
            "list of sandboxes, first page",
            Unit::Ms,
            &sandboxes,
        )
        .promised(Target::Value(Bound::AtMost(5.0)))
        .noted(format!(
            "of {count}; ready in {ready:.0} ms, {resident:.0} MiB resident"
        )),
    ])
}

async fn fill(world: &World, count: u32) -> anyhow::Result<()> {
    let store = Store::open(&world.scratch().folder("state").join("handler.db"))?;
    for number in 0..count {
        store.sandboxes().insert(sandbox(number)).await?;
    }
    store.close().await;
    Ok(())
}

fn sandbox(number: u32) -> SandboxRow {
    let made = 1_700_000_000_000 + i64::from(number) * 1000;
    let home = "/home/agent".to_owned();
    SandboxRow {
        id: SandboxId::from_random(u64::from(number).to_be_bytes()),
        name: Some(format!("box-{number}")),
        backend: "native".to_owned(),
        spec: SandboxSpec {
            backend: "native".to_owned(),
            name: Some(format!("box-{number}")),
            scope: None,
            workdir: home.clone(),
            home,
            mounts: Vec::new(),
            files: Vec::new(),
            env: BTreeMap::new(),
            network: NetworkPolicy::default(),
            resources: Resources::default(),
            strict_limits: true,
            lifetime: Lifetime::Kept,
            labels: BTreeMap::from([("team".to_owned(), format!("t{}", number % 7))]),
            phantoms: Vec::new(),
        },
        state: SandboxState::Stopped,
        intent: SandboxIntent::Stop,
        instance: None,
        warnings: Vec::new(),
        error: None,
        session_id: None,
        created_ms: made,
        updated_ms: made,
    }
}
