//! A world with a scripted model, a provider that leads to it, installed harnesses and a work folder.

use crate::harness::shared;
use crate::sessions::viewer::Viewer;
use anyhow::Context as _;
use handler_client::Client;
use handler_scripted::{RecordedRequest, ScriptedConfig, ScriptedModel};
use handler_testkit::{World, eventually, skip};
use handler_types::api::{FolderRequest, ProviderRequest};
use handler_types::provider::{Protocol, ProviderModel};
use handler_types::session::{CreateSession, SessionState, SessionView};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long anything may take on a busy machine; no assertion about speed.
pub(crate) const LONG: Duration = Duration::from_secs(180);

/// Pause of the model before each word of a slow answer.
pub(crate) const WORD_DELAY: Duration = Duration::from_millis(40);

/// Everything a test of sessions needs.
pub(crate) struct Stage {
    /// The daemon.
    pub(crate) world: World,
    /// The model; it refuses every key but the right one.
    pub(crate) model: ScriptedModel,
    /// The right one.
    pub(crate) key: String,
    /// The project folder.
    pub(crate) project: PathBuf,
}

impl Stage {
    /// A world with a daemon on a machine that can make sandboxes; none otherwise, said loudly.
    pub(crate) async fn bare(test: &str) -> anyhow::Result<Option<World>> {
        let world = World::start().await?;
        let backends = world.client().backends().await?;
        let native = backends.iter().find(|backend| backend.name == "native");
        if native.is_some_and(|native| native.available) {
            return Ok(Some(world));
        }
        skip(test, &format!("no native sandboxes here: {native:?}"));
        Ok(None)
    }

    /// All of it; none when this machine cannot, said loudly.
    pub(crate) async fn set(test: &str, harnesses: &[&str]) -> anyhow::Result<Option<Self>> {
        let Some(world) = Self::bare(test).await? else {
            return Ok(None);
        };
        if !shared::provide(test, &world, harnesses).await? {
            return Ok(None);
        }
        Self::with(world).await.map(Some)
    }

    /// A model, a provider that leads to it and a project folder, in a world whose agents are provided for.
    pub(crate) async fn with(world: World) -> anyhow::Result<Self> {
        let key = format!("sk-ant-api03-{}", handler_base::random::hex(24));
        let model = ScriptedModel::start(ScriptedConfig {
            expect_key: Some(key.clone()),
            word_delay: WORD_DELAY,
            ..ScriptedConfig::default()
        })?;
        let project = world.work().join("my project");
        std::fs::create_dir(&project)?;
        let client = world.client();
        let path = world.work().to_string_lossy().into_owned();
        client.add_folder(&FolderRequest { path }).await?;
        client.add_provider(&provider(&model, &key)).await?;
        Ok(Self {
            world,
            model,
            key,
            project,
        })
    }

    /// A client of the daemon.
    pub(crate) fn client(&self) -> Client {
        self.world.client()
    }

    /// A request for a session in the project folder.
    pub(crate) fn request(&self, harness: &str) -> CreateSession {
        CreateSession {
            scope: self.project.to_string_lossy().into_owned(),
            harness: Some(harness.to_owned()),
            ..CreateSession::default()
        }
    }

    /// Makes a session and attaches to it.
    pub(crate) async fn open(&self, request: &CreateSession) -> anyhow::Result<Viewer> {
        let view = self.client().create_session(request).await?;
        self.attach(view.id.as_str(), 0).await
    }

    /// Attaches to a session.
    pub(crate) async fn attach(&self, id: &str, after: u64) -> anyhow::Result<Viewer> {
        Viewer::attach(&self.client(), id, after).await
    }

    /// Waits until a session is in a state.
    pub(crate) async fn reaches(
        &self,
        id: &str,
        state: SessionState,
    ) -> anyhow::Result<SessionView> {
        let what = format!("session {state:?}");
        eventually(&what, LONG, || async {
            let view = self.client().session(id).await.ok()?;
            (view.state == state && !view.busy).then_some(view)
        })
        .await
    }

    /// What the model was asked to answer with tools at hand, where the conversation has this text:
    /// titles and summaries are asked for without tools.
    pub(crate) fn asked(&self, text: &str) -> Vec<RecordedRequest> {
        let has_tools = |request: &RecordedRequest| {
            let tools = request.body.get("tools").and_then(|tools| tools.as_array());
            tools.is_some_and(|tools| !tools.is_empty())
        };
        let mut requests = self.model.requests();
        requests.retain(|r| r.method == "POST" && has_tools(r) && mentions(r, text));
        requests
    }

    /// A file of the project folder.
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.project.join(name)).context(name.to_owned())
    }
}

/// Whether a request's conversation has this text.
pub(crate) fn mentions(request: &RecordedRequest, text: &str) -> bool {
    request.body.to_string().contains(text)
}

fn provider(model: &ScriptedModel, key: &str) -> ProviderRequest {
    let base = model.base_url();
    ProviderRequest {
        name: "scripted".to_owned(),
        template: None,
        description: None,
        endpoints: BTreeMap::from([
            (Protocol::OpenaiChat, format!("{base}/v1")),
            (Protocol::Responses, format!("{base}/v1")),
            (Protocol::Gemini, base.clone()),
            (Protocol::Anthropic, base),
        ]),
        models: vec![ProviderModel {
            id: "scripted".to_owned(),
            ..ProviderModel::default()
        }],
        key: Some(key.to_owned()),
        ..ProviderRequest::default()
    }
}
