//! The daemon dies at every durable step of a conversation, before the step and in the middle of it. The
//! next daemon goes on; in the end the log is the one of a run without a crash, and the agent read every
//! line once.

use crate::support::{SCOPE, briefs, config, log, until};
use handler_session::testing::{BasicAgent, FakeGuest, TestViewer};
use handler_session::{Choice, CrashPoint, SessionCore, SessionHandle, StartKind};
use handler_types::session::StopHow;
use serde_json::{Value, json};
use std::path::Path;

/// What a conversation leaves.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Value>,
    lines: Vec<String>,
}

struct Run<'a> {
    dir: &'a Path,
    guest: FakeGuest,
    session: SessionHandle,
    crash: CrashPoint,
    crashes: usize,
    /// The next daemon dies too, after so many steps.
    second: Option<i64>,
}

impl Run<'_> {
    /// Takes the session over when its daemon died.
    async fn recover(&mut self) {
        while self.crash.is_dead() && !self.take_over().await {}
    }

    /// False when the next daemon died as well.
    async fn take_over(&mut self) -> bool {
        self.session.closed().await;
        self.crash = match self.second.take() {
            Some(steps) => CrashPoint::after(steps, true),
            None => CrashPoint::default(),
        };
        self.crashes += 1;
        self.session = match start(self.dir, &self.guest, &self.crash, StartKind::Adopt).await {
            Ok(session) => session,
            // It died after the last snapshot of a stop.
            Err(handler_session::StartError::NothingToAdopt) if is_stopped(self.dir) => {
                self.crash = CrashPoint::default();
                return true;
            }
            // The daemon died before the first snapshot: nothing was sent yet, the start is repeated.
            Err(handler_session::StartError::NothingToAdopt) => {
                assert!(self.guest.lines().is_empty());
                match start(self.dir, &self.guest, &self.crash, StartKind::New).await {
                    Ok(session) => session,
                    Err(_) if self.crash.is_dead() => return false,
                    Err(error) => panic!("a second start: {error}"),
                }
            }
            Err(_) if self.crash.is_dead() => return false,
            Err(error) => panic!("adopt: {error}"),
        };
        match self.session.ready().await {
            // It died while it stopped: the stop is all that was left to do.
            Ok(()) | Err(handler_session::StartError::Ended) => {}
            Err(_) if self.crash.is_dead() => return false,
            Err(error) => panic!("ready after the crash: {error}"),
        }
        true
    }

    /// Does something until its effect is there, over any crash in between.
    async fn step(
        &mut self,
        what: &str,
        is_done: impl Fn(&[String]) -> bool,
        act: impl AsyncFn(&SessionHandle),
    ) {
        for _ in 0..5 {
            self.recover().await;
            // After a crash it depends on the point whether it was taken.
            if !is_done(&briefs(&log(self.dir))) {
                act(&self.session).await;
            }
            if self.wait(&is_done).await {
                return;
            }
        }
        panic!("{what} did not come; log {:#?}", briefs(&log(self.dir)));
    }

    /// Turns of all kinds.
    async fn talk(&mut self) {
        self.step("start", |e| count(e, "started") == 1, async |_| {})
            .await;
        self.step(
            "a turn",
            |e| count(e, "turn end") == 1,
            async |s| {
                if !s.state().borrow().busy {
                    s.prompt("hello").await.ok();
                }
            },
        )
        .await;
        self.step(
            "a question",
            |e| count(e, "permission request") == 1,
            async |s| {
                if !s.state().borrow().busy {
                    s.prompt("ask").await.ok();
                }
            },
        )
        .await;
        self.step(
            "its turn's end",
            |e| count(e, "turn end") == 2,
            async |s| {
                s.answer_permission("0", Choice::Option("once".into()))
                    .await
                    .ok();
            },
        )
        .await;
        self.step(
            "file access",
            |e| count(e, "turn end") == 3,
            async |s| {
                if !s.state().borrow().busy {
                    s.prompt("fs").await.ok();
                }
            },
        )
        .await;
        self.step(
            "a question to cancel",
            |e| count(e, "permission request") == 2,
            async |s| {
                if !s.state().borrow().busy {
                    s.prompt("ask-hang").await.ok();
                }
            },
        )
        .await;
        self.step(
            "the cancel",
            |e| count(e, "turn end cancelled") == 1,
            async |s| {
                if s.state().borrow().pending_permissions > 0 {
                    s.cancel().await.ok();
                }
            },
        )
        .await;
    }

    /// True when it is done, false when the daemon died first.
    async fn wait(&self, is_done: &impl Fn(&[String]) -> bool) -> bool {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            if self.crash.is_dead() {
                return false;
            }
            if is_done(&briefs(&log(self.dir))) {
                return true;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "log {:#?}",
                briefs(&log(self.dir))
            );
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

async fn start(
    dir: &Path,
    guest: &FakeGuest,
    crash: &CrashPoint,
    kind: StartKind,
) -> Result<SessionHandle, handler_session::StartError> {
    let mut config = config(dir);
    config.crash = crash.clone();
    config.defaults.mode_ids = vec!["default".to_owned()];
    SessionCore::start(config, guest.attach(), kind).await
}

fn is_stopped(dir: &Path) -> bool {
    briefs(&log(dir))
        .last()
        .is_some_and(|event| event == "stopped")
}

fn count(events: &[String], what: &str) -> usize {
    events
        .iter()
        .filter(|event| event.starts_with(what))
        .count()
}

/// A conversation: start, a turn, a turn with a question, file access and a cancel, a stop.
async fn converse(crash: CrashPoint, chunk: usize, second: Option<i64>) -> (Outcome, usize) {
    let dir = tempfile::tempdir().expect("temp folder");
    let guest = FakeGuest::new(BasicAgent::default()).with_chunks(chunk);
    let (session, crash, crashes) = match start(dir.path(), &guest, &crash, StartKind::New).await {
        Ok(session) => (session, crash, 0),
        Err(error) => {
            assert!(crash.is_dead(), "{error}");
            let crash = CrashPoint::default();
            (
                start(dir.path(), &guest, &crash, StartKind::New)
                    .await
                    .expect("a second start"),
                crash,
                1,
            )
        }
    };
    let mut run = Run {
        dir: dir.path(),
        guest,
        session,
        crash,
        crashes,
        second,
    };
    run.talk().await;
    // The snapshot that follows belongs to the conversation too.
    let guest = run.guest.clone();
    let crash = run.crash.clone();
    handler_session::testing::wait_for("the last snapshot", || {
        crash.is_dead() || guest.acked() == guest.written()
    })
    .await;
    run.recover().await;
    run.step(
        "a stop",
        |e| count(e, "stopped") == 1,
        async |s| {
            s.stop(StopHow::Explicit, "done").await.ok();
        },
    )
    .await;
    run.session.closed().await;
    assert_eq!(run.guest.faults(), Vec::<String>::new());
    let mut events = log(dir.path());
    for event in &mut events {
        event["t"] = Value::Null;
    }
    (
        Outcome {
            events,
            lines: run.guest.lines(),
        },
        run.crashes,
    )
}

async fn every_step(is_torn: bool, chunk: usize, is_twice: bool) {
    let (expected, _) = converse(CrashPoint::default(), chunk, None).await;
    assert_eq!(expected.lines.len(), 11, "{:#?}", expected.lines);
    let mut died = 0;
    for step in 0.. {
        let crash = CrashPoint::after(step, is_torn);
        let (outcome, crashes) = converse(crash, chunk, is_twice.then_some(step % 11)).await;
        assert_eq!(
            outcome.lines, expected.lines,
            "what the agent read, death at step {step}"
        );
        assert_eq!(
            outcome.events, expected.events,
            "the log, death at step {step}"
        );
        if crashes == 0 {
            break;
        }
        died += 1;
    }
    assert!(died > 40, "only {died} deaths");
}

#[tokio::test]
async fn a_death_before_any_step_changes_nothing() {
    every_step(false, usize::MAX, false).await;
}

#[tokio::test]
async fn a_death_in_the_middle_of_any_step_changes_nothing() {
    every_step(true, usize::MAX, false).await;
}

#[tokio::test]
async fn a_death_changes_nothing_when_output_comes_in_small_pieces() {
    every_step(true, 37, false).await;
}

#[tokio::test]
async fn a_second_death_while_taking_over_changes_nothing() {
    every_step(true, 61, true).await;
}

#[tokio::test]
async fn a_viewer_sees_each_event_once_over_a_death() {
    for step in [25, 30, 35, 40] {
        let dir = tempfile::tempdir().expect("temp folder");
        let guest = FakeGuest::new(BasicAgent::default());
        let crash = CrashPoint::after(step, true);
        let session = start(dir.path(), &guest, &crash, StartKind::New)
            .await
            .expect("start");
        session.ready().await.expect("ready");
        let mut viewer = TestViewer::load(&session, SCOPE, 0).await;
        let params =
            json!({"sessionId": "agent-1", "prompt": [{"type": "text", "text": "many 30"}]});
        viewer.request("session/prompt", params).await;
        viewer.closed().await;
        session.closed().await;
        let session = start(dir.path(), &guest, &CrashPoint::default(), StartKind::Adopt)
            .await
            .expect("adopt");
        until(&session, "the turn's end", |f| f.last_stop_reason.is_some()).await;
        let last = viewer.seqs().last().copied().unwrap_or(0);
        let again = TestViewer::load(&session, SCOPE, last).await;
        let mut texts = viewer.texts("agent_message_chunk");
        texts.extend(again.texts("agent_message_chunk"));
        assert_eq!(
            texts,
            (0..30).map(|n| format!("chunk {n}")).collect::<Vec<_>>(),
            "death at step {step}"
        );
    }
}
