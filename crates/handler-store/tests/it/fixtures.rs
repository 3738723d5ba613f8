//! Rows and stores for tests.

use handler_store::Store;
use handler_store::rows::{SandboxIntent, SandboxRow, SessionRow};
use handler_types::sandbox::{SandboxSpec, SandboxState};
use handler_types::session::SessionState;
use handler_types::{SandboxId, SessionId};

/// A store that vanishes with its folder.
pub(crate) struct TempStore {
    pub(crate) store: Store,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) fn store() -> TempStore {
    let dir = tempfile::tempdir().expect("temp folder");
    let store = Store::open(&dir.path().join("handler.db")).expect("store opens");
    TempStore { store, dir }
}

pub(crate) fn sandbox_id(n: u64) -> SandboxId {
    SandboxId::from_random(n.to_be_bytes())
}

pub(crate) fn session_id(n: u64) -> SessionId {
    SessionId::from_random(n.to_be_bytes())
}

/// As JSON, so that fields with a default need not be named here.
fn spec(n: u64) -> SandboxSpec {
    serde_json::from_value(serde_json::json!({
        "backend": "native",
        "scope": format!("/home/ada/code/project-{n}"),
        "workdir": format!("/home/ada/code/project-{n}"),
        "home": "/home/agent",
        "env": {"LANG": "C.UTF-8"},
        "network": {"mode": "filtered", "allow": ["api.example.com:443"]},
    }))
    .expect("a spec")
}

/// Sandbox number `n`, made at millisecond `n`.
pub(crate) fn sandbox(n: u64) -> SandboxRow {
    let ms = i64::try_from(n).expect("small number");
    SandboxRow {
        id: sandbox_id(n),
        name: None,
        backend: "native".to_owned(),
        spec: spec(n),
        state: SandboxState::Creating,
        intent: SandboxIntent::Run,
        instance: None,
        warnings: Vec::new(),
        error: None,
        session_id: None,
        expires_ms: None,
        idled: false,
        created_ms: ms,
        updated_ms: ms,
    }
}

/// Session number `n`, made at millisecond `n`.
pub(crate) fn session(n: u64) -> SessionRow {
    let ms = i64::try_from(n).expect("small number");
    SessionRow {
        id: session_id(n),
        scope: format!("/home/ada/code/project-{}", n % 10),
        harness: "claude-code".to_owned(),
        provider: "anthropic".to_owned(),
        state: SessionState::Stopped,
        document: serde_json::json!({"title": format!("session {n}"), "model": "m"}),
        created_ms: ms,
        updated_ms: ms,
        agent: None,
    }
}
