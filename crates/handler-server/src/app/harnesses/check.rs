//! Checks of a fresh installation: the program runs, and it answers a real ACP `initialize` and
//! `session/new` in a sandbox without network, through the same pipeline that sessions use.

use super::install::{in_sandbox, spec};
use crate::app::agent::{AgentRequest, GuestAgent, HarnessPlace, ModelUse, prepare};
use crate::app::sandboxes::engine_error;
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_engine::CreateArgs;
use handler_harness::InstallPlan;
use handler_session::{SessionConfig, SessionCore, StartKind};
use handler_types::ProblemCode;
use handler_types::api::ExecRequest;
use handler_types::harness::HarnessDescriptor;
use handler_types::network::NetworkPolicy;
use handler_types::provider::{PROVIDER_VERSION, Provider, ProviderModel};
use handler_types::session::StopHow;
use std::collections::BTreeMap;
use std::path::Path;

/// Runs both checks on the prefix at `staging`.
///
/// # Errors
/// What failed, with what the program said.
pub(super) async fn run(
    app: &App,
    descriptor: &'static HarnessDescriptor,
    plan: &InstallPlan,
    staging: &Path,
) -> ApiResult<()> {
    let request = ExecRequest {
        argv: plan.check.clone(),
        timeout_ms: Some(120_000),
        ..Default::default()
    };
    let offline = spec(plan, staging, NetworkPolicy::None);
    in_sandbox(app, offline, request, "the installed program").await?;
    let scratch = staging.with_extension("check");
    let outcome = conversation(app, descriptor, staging, &scratch).await;
    std::fs::remove_dir_all(&scratch).ok();
    outcome
}

/// A model server that is never called: the conversation is only opened.
fn nowhere(descriptor: &HarnessDescriptor) -> Provider {
    let protocol = descriptor.provider_protocols.iter().copied().take(1);
    Provider {
        api_version: PROVIDER_VERSION.to_owned(),
        description: None,
        endpoints: protocol
            .map(|p| (p, "http://127.0.0.1:9/v1".to_owned()))
            .collect(),
        api_key: None,
        models: vec![ProviderModel {
            id: "check".to_owned(),
            ..Default::default()
        }],
        files: BTreeMap::new(),
        contexts: Vec::new(),
    }
}

async fn conversation(
    app: &App,
    descriptor: &'static HarnessDescriptor,
    staging: &Path,
    scratch: &Path,
) -> ApiResult<()> {
    let project = scratch.join("project");
    let made = handler_base::fs::create_private_dir(&project);
    made.map_err(|e| ApiError::new(ProblemCode::NoSpace, format!("no scratch folder: {e}")))?;
    let scope = project.to_string_lossy().into_owned();
    let mode = descriptor
        .permissions
        .keys()
        .next_back()
        .copied()
        .unwrap_or_default();
    let agent = prepare(
        app,
        AgentRequest {
            descriptor,
            place: HarnessPlace::Prefix(staging.to_owned()),
            used: ModelUse::Provider {
                name: "check",
                provider: nowhere(descriptor),
                model: "check",
            },
            permissions: mode,
            network: NetworkPolicy::None,
            scope: &scope,
            state_dir: &scratch.join("state"),
            shared_state: None,
            labels: BTreeMap::from([("handler.install".to_owned(), descriptor.name.clone())]),
            terminal: None,
            caches: BTreeMap::new(),
        },
    )
    .await?;
    let args = CreateArgs {
        spec: agent.spec,
        label: "harness check".to_owned(),
    };
    let sandbox = app.engine.create(args).await.map_err(engine_error)?;
    let outcome = async {
        let guest = app.engine.guest(&sandbox.id).map_err(engine_error)?;
        let io = GuestAgent::start(guest, agent.process).await?;
        let mut config = SessionConfig::new("check", scratch.join("session"), &scope);
        config.defaults = agent.defaults;
        let failed = |text: String| {
            ApiError::new(
                ProblemCode::BackendFailed,
                format!("{} is installed but {text}", descriptor.product),
            )
        };
        let handle = SessionCore::start(config, Box::new(io), StartKind::New)
            .await
            .map_err(|e| failed(chain(&e)))?;
        let ready = handle.ready().await;
        handle.stop(StopHow::Explicit, "checked").await.ok();
        ready.map_err(|e| failed(format!("does not open a conversation: {}", chain(&e))))
    }
    .await;
    if let Err(error) = app.engine.delete(&sandbox.id).await {
        tracing::warn!(%error, sandbox = %sandbox.id, "a check's sandbox could not be removed");
    }
    outcome
}
