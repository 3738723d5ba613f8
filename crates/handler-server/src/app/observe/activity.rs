//! What the terminals and sessions of sandboxes do, kept as it is now; told to everyone when it changes.
//!
//! Sessions are read from what they say of themselves, terminals from their screens (`terminals`). The most urgent of
//! a sandbox's sources is the sandbox's own activity.

use super::terminals::Touched;
use crate::app::sandboxes::find;
use crate::app::sessions;
use crate::http::problem::ApiResult;
use crate::http::sessions::SessionQuery;
use crate::state::App;
use handler_types::SandboxId;
use handler_types::event::ServerEvent;
use handler_types::observe::{Activity, ActivitySource, SandboxActivity, Why};
use handler_types::session::{SessionState, SessionView};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast::error::RecvError;

/// Sessions looked through when somebody asks.
const MOST_SESSIONS: u32 = 500;

/// What has an activity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Terminal(u32),
    Session(String),
}

#[derive(Debug, Default)]
struct OfSandbox {
    sources: BTreeMap<Key, ActivitySource>,
    /// What was said of the whole, and since when.
    whole: Option<(Activity, String)>,
}

/// The activities known.
#[derive(Debug, Default)]
pub struct Activities {
    all: Mutex<HashMap<SandboxId, OfSandbox>>,
    touched: Touched,
}

/// A reading of one source.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) harness: Option<String>,
    pub(super) state: Activity,
    pub(super) why: Why,
}

impl Activities {
    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, OfSandbox>> {
        // Short sections without waiting; a panic elsewhere leaves whole entries.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Terminals to be read.
    pub fn touched(&self) -> &Touched {
        &self.touched
    }

    /// Takes a reading; the source, if it is news.
    fn take(&self, id: &SandboxId, key: Key, found: Found) -> Option<ActivitySource> {
        let now = handler_base::clock::rfc3339(handler_base::clock::now_ms());
        let mut all = self.all();
        let of = all.entry(id.clone()).or_default();
        let before = of.sources.get(&key);
        let since = match before {
            Some(before) if before.state == found.state => before.since.clone(),
            _ => now.clone(),
        };
        let is_news = before
            .is_none_or(|before| before.state != found.state || before.why.rule != found.why.rule);
        let (terminal, session) = match &key {
            Key::Terminal(number) => (Some(*number), None),
            Key::Session(id) => (None, Some(id.clone())),
        };
        let source = ActivitySource {
            terminal,
            session,
            harness: found.harness,
            state: found.state,
            why: found.why,
            since,
        };
        of.sources.insert(key, source.clone());
        of.settle(&now);
        is_news.then_some(source)
    }

    fn drop_source(&self, id: &SandboxId, key: &Key) -> Option<ActivitySource> {
        let now = handler_base::clock::rfc3339(handler_base::clock::now_ms());
        let mut all = self.all();
        let of = all.get_mut(id)?;
        let gone = of.sources.remove(key);
        of.settle(&now);
        gone
    }

    /// Forgets a sandbox.
    pub(super) fn forget(&self, id: &SandboxId) {
        self.all().remove(id);
    }

    /// It does not run any more: its terminals are gone.
    pub(super) fn rests(&self, app: &App, id: &SandboxId) {
        let terminals: Vec<u32> = self
            .all()
            .get(id)
            .into_iter()
            .flat_map(|of| of.sources.values().filter_map(|source| source.terminal))
            .collect();
        for number in terminals {
            self.terminal_gone(app, id, number);
        }
    }

    /// A terminal was read.
    pub(super) fn terminal(&self, app: &App, id: &SandboxId, number: u32, found: Found) {
        self.tell(app, id, Key::Terminal(number), found);
    }

    /// A terminal is no more.
    pub(crate) fn terminal_gone(&self, app: &App, id: &SandboxId, number: u32) {
        self.gone(app, id, &Key::Terminal(number));
    }

    /// A session changed.
    pub(super) fn session(&self, app: &App, view: &SessionView) {
        let key = Key::Session(view.id.to_string());
        self.leave_others(app, view.sandbox_id.as_ref(), &key);
        let Some(id) = &view.sandbox_id else {
            return;
        };
        self.tell(app, id, key, of_session(view));
    }

    /// A session was removed.
    fn session_gone(&self, app: &App, session: &str) {
        self.leave_others(app, None, &Key::Session(session.to_owned()));
    }

    /// A session is in one sandbox at a time.
    fn leave_others(&self, app: &App, own: Option<&SandboxId>, key: &Key) {
        let others: Vec<SandboxId> = self
            .all()
            .iter()
            .filter(|(id, of)| of.sources.contains_key(key) && own != Some(*id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in others {
            self.gone(app, &id, key);
        }
    }

    fn tell(&self, app: &App, id: &SandboxId, key: Key, found: Found) {
        let Some(source) = self.take(id, key, found) else {
            return;
        };
        app.observe.counters.activity_changed();
        app.events.publish(ServerEvent::Activity {
            sandbox: id.to_string(),
            source,
        });
    }

    fn gone(&self, app: &App, id: &SandboxId, key: &Key) {
        let Some(mut source) = self.drop_source(id, key) else {
            return;
        };
        source.state = Activity::Idle;
        source.why = Why {
            rule: "gone".to_owned(),
            text: String::new(),
        };
        source.since = handler_base::clock::rfc3339(handler_base::clock::now_ms());
        app.events.publish(ServerEvent::Activity {
            sandbox: id.to_string(),
            source,
        });
    }

    fn read(&self, id: &SandboxId) -> SandboxActivity {
        let all = self.all();
        let of = all.get(id);
        let mut sources: Vec<ActivitySource> = of
            .into_iter()
            .flat_map(|of| of.sources.values().cloned())
            .collect();
        sources.sort_by_key(|source| source.state);
        let since = of.and_then(|of| of.whole.clone()).map(|(_, since)| since);
        let (state, why) = sources.first().map_or_else(
            || {
                let rule = "nothing-there".to_owned();
                let text = String::new();
                (Activity::Idle, Why { rule, text })
            },
            |source| (source.state, source.why.clone()),
        );
        SandboxActivity {
            state,
            why,
            since: since
                .unwrap_or_else(|| handler_base::clock::rfc3339(handler_base::clock::now_ms())),
            sources,
        }
    }
}

impl OfSandbox {
    /// Notes since when the whole is as it is.
    fn settle(&mut self, now: &str) {
        let state = self
            .sources
            .values()
            .map(|source| source.state)
            .min()
            .unwrap_or(Activity::Idle);
        if self
            .whole
            .as_ref()
            .is_none_or(|(before, _)| *before != state)
        {
            self.whole = Some((state, now.to_owned()));
        }
    }
}

/// What happens in a sandbox.
///
/// # Errors
/// 404.
pub async fn of(app: &App, text: &str) -> ApiResult<SandboxActivity> {
    let id = find(app, text).await?.id;
    // Of sessions that an earlier daemon started nothing may have been said yet.
    let query = SessionQuery {
        limit: Some(MOST_SESSIONS),
        ..SessionQuery::default()
    };
    for view in sessions::list(app, query).await?.items {
        if view.sandbox_id.as_ref() == Some(&id) {
            app.observe.activities.session(app, &view);
        }
    }
    Ok(app.observe.activities.read(&id))
}

/// Follows what sessions say of themselves.
pub(super) fn follow_sessions(app: &Arc<App>) {
    let mut events = app.events.subscribe();
    let app = app.clone();
    handler_base::tasks::spawn_named("session activity", async move {
        loop {
            let event = tokio::select! {
                () = app.shutdown.cancelled() => return,
                event = events.recv() => event,
            };
            match event {
                Ok((_, ServerEvent::Session { session })) => {
                    app.observe.activities.session(&app, &session);
                }
                Ok((_, ServerEvent::SessionRemoved { id })) => {
                    app.observe.activities.session_gone(&app, &id);
                }
                // What was missed is read again by whoever asks.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
}

/// What a session says of itself, as an activity.
fn of_session(view: &SessionView) -> Found {
    let (state, rule, text) = match view.state {
        SessionState::Failed => (Activity::Error, "failed", view.error.as_deref()),
        _ if view.pending_permissions > 0 => (Activity::NeedsInput, "permission", None),
        SessionState::Starting => (Activity::Working, "starting", None),
        SessionState::Running if view.busy => (Activity::Working, "turn", None),
        SessionState::Running if view.error.is_some() => {
            (Activity::Error, "agent", view.error.as_deref())
        }
        SessionState::Running | SessionState::Stopped => {
            ended_turn(view.last_stop_reason.as_deref())
        }
    };
    let mut shown: String = text.unwrap_or_default().chars().take(200).collect();
    if state == Activity::NeedsInput {
        shown = format!("{} waiting", view.pending_permissions);
    }
    Found {
        harness: Some(view.harness.clone()),
        state,
        why: Why {
            rule: format!("session/{rule}"),
            text: shown,
        },
    }
}

fn ended_turn(reason: Option<&str>) -> (Activity, &'static str, Option<&str>) {
    match reason {
        None => (Activity::Idle, "no-turn", None),
        Some("cancelled" | "stopped") => (Activity::Idle, "cancelled", reason),
        Some("timed_out" | "error" | "failed") => (Activity::Error, "turn-failed", reason),
        Some(_) => (Activity::Done, "turn-ended", reason),
    }
}
