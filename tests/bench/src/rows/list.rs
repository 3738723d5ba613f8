//! The first page of a long list, read by a client; the rows lie in the database before the daemon starts.

use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{ms_since, series};
use crate::memory::resident_mib;
use anyhow::{Context as _, ensure};
use handler_store::Store;
use handler_store::rows::{Batch, Indexed, Message, Role, SandboxIntent, SandboxRow, SessionRow};
use handler_testkit::World;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Lifetime, Resources, SandboxSpec, SandboxState};
use handler_types::session::SessionState;
use handler_types::{SandboxId, SessionId};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Items on a page.
const PAGE: u32 = 50;

/// Messages of a session that a search looks through.
const MESSAGES: u64 = 10;

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
    let sessions = series(5, context.pick(200, 10), async || {
        let began = Instant::now();
        let page = client.sessions("", "", PAGE).await?;
        ensure!(
            page.items.len() == PAGE as usize && page.next_cursor.is_some(),
            "a short page"
        );
        Ok(ms_since(began))
    });
    let sessions = sessions.await?;
    let search = series(5, context.pick(200, 10), async || {
        let began = Instant::now();
        let query = [("q", "lexer tokens"), ("limit", "50")];
        let found = client.search_sessions(&query).await?;
        ensure!(found.items.len() == PAGE as usize, "a short page");
        Ok(ms_since(began))
    });
    let search = search.await?;
    let resident = resident_mib(world.daemon_pid().context("no daemon")?)?;
    let limit = Target::Value(Bound::AtMost(5.0));
    let line = |id: &str, what: &str, samples: &[f64]| {
        Line::new(id, what, Unit::Ms, samples).promised(limit)
    };
    Ok(vec![
        line(
            "list/sandboxes",
            "list of sandboxes, first page",
            &sandboxes,
        )
        .noted(format!(
            "of {count}; daemon ready in {ready:.0} ms, {resident:.0} MiB resident"
        )),
        line("list/sessions", "list of sessions, first page", &sessions)
            .noted(format!("of {count}")),
        line("list/search", "  search in messages, first page", &search)
            .noted(format!("{count} sessions of {MESSAGES} messages")),
    ])
}

async fn fill(world: &World, count: u32) -> anyhow::Result<()> {
    let store = Store::open(&world.scratch().folder("state").join("handler.db"))?;
    for number in 0..count {
        store.sandboxes().insert(sandbox(number)).await?;
        let row = session(number);
        let id = row.id.clone();
        store.sessions().insert(row).await?;
        store.session_texts().add(&id, talk(number)).await?;
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
            ..SandboxSpec::default()
        },
        state: SandboxState::Stopped,
        intent: SandboxIntent::Stop,
        instance: None,
        warnings: Vec::new(),
        error: None,
        session_id: None,
        expires_ms: None,
        idled: false,
        created_ms: made,
        updated_ms: made,
    }
}

/// What was said in a session: words that many have, and in one of ten those that are looked for.
fn talk(number: u32) -> Batch {
    let special = if number.is_multiple_of(10) {
        "The lexer cuts tokens."
    } else {
        "All is well."
    };
    let text = |nth: u64| {
        let role = if nth.is_multiple_of(2) {
            Role::User
        } else {
            Role::Agent
        };
        let text =
            format!("Message {nth} of task {number}: mend the parser, run the tests. {special}");
        Message {
            seq: nth + 1,
            role,
            text,
        }
    };
    Batch {
        messages: (0..MESSAGES).map(text).collect(),
        turns: Vec::new(),
        indexed: Indexed {
            seq: MESSAGES,
            ..Indexed::default()
        },
    }
}

/// A session that is over, as the daemon keeps it.
fn session(number: u32) -> SessionRow {
    let made = 1_700_000_000_000 + i64::from(number) * 1000;
    SessionRow {
        id: SessionId::from_random(u64::from(number).to_be_bytes()),
        scope: format!("/srv/projects/p{}", number % 50),
        harness: "pi".to_owned(),
        provider: "anthropic".to_owned(),
        state: SessionState::Stopped,
        document: json!({
            "model": "a-model",
            "permissions": "bypass",
            "network": NetworkPolicy::default(),
            "turnTimeoutSecs": 3600,
            "title": format!("Task number {number}: mend the parser"),
            "acpSessionId": format!("{number:032x}"),
            "canResume": true,
            "hadTurn": true,
            "lastStopReason": "end_turn",
            "lastSeq": 1234,
        }),
        created_ms: made,
        agent: None,
        updated_ms: made,
    }
}
