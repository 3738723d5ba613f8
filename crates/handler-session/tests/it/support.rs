//! A session on a fake guest, and what its log says.

use handler_session::testing::{BasicAgent, FakeGuest};
use handler_session::{SessionConfig, SessionCore, SessionFacts, SessionHandle, StartKind};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The project folder of all tests.
pub(crate) const SCOPE: &str = "/home/dev/project";

/// A session and its guest.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) guest: FakeGuest,
    pub(crate) session: SessionHandle,
}

/// A configuration in a folder.
pub(crate) fn config(dir: &Path) -> SessionConfig {
    SessionConfig::new("s_0000000000000001", dir.join("s"), SCOPE)
}

impl World {
    /// A ready session with the usual agent.
    pub(crate) async fn new() -> Self {
        Self::with(BasicAgent::default(), |_| {}).await
    }

    /// A ready session.
    pub(crate) async fn with(agent: BasicAgent, change: impl FnOnce(&mut SessionConfig)) -> Self {
        let dir = tempfile::tempdir().expect("temp folder");
        let guest = FakeGuest::new(agent);
        let mut config = config(dir.path());
        change(&mut config);
        let session = SessionCore::start(config, guest.attach(), StartKind::New)
            .await
            .expect("start");
        session.ready().await.expect("ready");
        Self {
            dir,
            guest,
            session,
        }
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        log(self.dir.path())
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        is_true: impl Fn(&SessionFacts) -> bool,
    ) -> SessionFacts {
        until(&self.session, what, is_true).await
    }

    /// Lets go of the session as a daemon that is killed, and takes it over again.
    pub(crate) async fn restart(&mut self, change: impl FnOnce(&mut SessionConfig)) {
        self.session.release().await;
        let mut config = config(self.dir.path());
        change(&mut config);
        self.session = SessionCore::start(config, self.guest.attach(), StartKind::Adopt)
            .await
            .expect("adopt");
        self.session.ready().await.expect("ready again");
    }
}

/// Waits for a fact.
pub(crate) async fn until(
    session: &SessionHandle,
    what: &str,
    is_true: impl Fn(&SessionFacts) -> bool,
) -> SessionFacts {
    let mut facts = session.state();
    let waited =
        tokio::time::timeout(Duration::from_secs(20), facts.wait_for(|f| is_true(f))).await;
    match waited {
        Ok(Ok(facts)) => facts.clone(),
        other => panic!("{what} did not come: {other:?}"),
    }
}

/// The events of the session in `dir`.
pub(crate) fn log(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("s/events.ndjson")).expect("the log is there");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("events are JSON"))
        .collect()
}

/// What an event is, in short.
pub(crate) fn brief(event: &Value) -> String {
    match event["kind"].as_str().unwrap_or_default() {
        "update" => {
            let update = &event["update"];
            let text = update["content"]["text"].as_str().unwrap_or_default();
            format!(
                "{} {text}",
                update["sessionUpdate"].as_str().unwrap_or_default()
            )
            .trim()
            .to_owned()
        }
        "turn" => format!(
            "turn {} {}",
            event["phase"].as_str().unwrap_or_default(),
            event["stopReason"].as_str().unwrap_or_default()
        )
        .trim()
        .to_owned(),
        "lifecycle" => event["event"].as_str().unwrap_or_default().to_owned(),
        "permission" => format!(
            "permission {} {} {}",
            event["phase"].as_str().unwrap_or_default(),
            event["outcome"]["optionId"]
                .as_str()
                .or(event["outcome"]["outcome"].as_str())
                .unwrap_or_default(),
            event["by"].as_str().unwrap_or_default()
        )
        .trim()
        .to_owned(),
        other => other.to_owned(),
    }
}

/// The log in short.
pub(crate) fn briefs(events: &[Value]) -> Vec<String> {
    events.iter().map(brief).collect()
}
