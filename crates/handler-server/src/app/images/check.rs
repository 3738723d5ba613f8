//! The check of a new image before anything uses it (contract D.4): the real pipeline, without network and with
//! a dummy key. It must open a conversation that offers every mode and option the harness is said to have, and
//! start the MCP server that it is given with the sandbox's environment and without the key.

use super::mcp_probe::{self, MARK};
use super::probe::{Conversation, has_option, modes};
use crate::app::agent::{
    self, AgentRequest, GuestAgent, HarnessPlace, ModelUse, PreparedAgent, prepare,
};
use crate::app::builds::Run;
use crate::app::exec;
use crate::app::sandboxes::engine_error;
use crate::http::problem::ApiError;
use handler_engine::CreateArgs;
use handler_engine::guest::GuestHandle;
use handler_engine::images::ImageError;
use handler_types::api::ExecRequest;
use handler_types::harness::{HarnessDescriptor, McpServer, McpTransport};
use handler_types::image::ImageUse;
use handler_types::network::NetworkPolicy;
use handler_types::provider::{PROVIDER_VERSION, Provider, ProviderModel, SecretRef};
use handler_types::sandbox::{Lifetime, SandboxSpec, SandboxView};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Longest check of one image.
const LIMIT: Duration = Duration::from_secs(180);
/// Label of sandboxes of checks.
const LABEL: &str = "handler.image-check";

fn failed(what: impl std::fmt::Display) -> ImageError {
    ImageError::Failed(what.to_string())
}

fn api(error: ApiError) -> ImageError {
    ImageError::Failed(error.0.detail)
}

/// Checks the toolbox: what Handler and the recipes need of it runs.
///
/// # Errors
/// What is missing.
pub(super) async fn toolbox(run: &Run, image: &ImageUse) -> Result<(), ImageError> {
    let spec = SandboxSpec {
        backend: run.backend.clone(),
        workdir: crate::app::sandboxes::HOME.to_owned(),
        home: crate::app::sandboxes::HOME.to_owned(),
        network: NetworkPolicy::None,
        lifetime: Lifetime::Session,
        labels: BTreeMap::from([(LABEL.to_owned(), run.id.to_string())]),
        image: Some(image.clone()),
        ..SandboxSpec::default()
    };
    in_sandbox(run, spec, async |guest| {
        for line in [
            "node --version",
            "npm --version",
            "python3 --version",
            "git --version",
        ] {
            let said = command(&guest, &["sh", "-c", line]).await?;
            run.say(format!("check: {line}: {said}")).await;
        }
        Ok(())
    })
    .await
}

/// Checks a harness's image; answers its version line.
///
/// # Errors
/// What is missing, in words.
pub(super) async fn harness(
    run: &Run,
    descriptor: &'static HarnessDescriptor,
    image: &ImageUse,
) -> Result<String, ImageError> {
    run.say(format!(
        "check: {} in a sandbox without network",
        descriptor.product
    ))
    .await;
    let scratch = run.work().join(format!("check-{}", descriptor.name));
    let project = scratch.join("project");
    let key = scratch.join("key");
    let dummy = format!("sk-check-{}", handler_base::random::hex(24));
    make_scratch(run, &project, &key, &dummy)
        .map_err(|e| failed(format!("no scratch folder: {e}")))?;
    let mode = descriptor
        .permissions
        .keys()
        .next_back()
        .copied()
        .unwrap_or_default();
    let mut agent = prepare(
        &run.app,
        AgentRequest {
            descriptor,
            place: HarnessPlace::Image {
                backend: run.backend.clone(),
                image: image.clone(),
            },
            used: ModelUse::Provider {
                name: "check",
                provider: nowhere(descriptor, &key),
                model: "check",
            },
            permissions: mode,
            network: NetworkPolicy::None,
            scope: &project.to_string_lossy(),
            state_dir: &scratch.join("state"),
            shared_state: None,
            labels: BTreeMap::from([(LABEL.to_owned(), run.id.to_string())]),
            terminal: None,
            caches: BTreeMap::new(),
        },
    )
    .await
    .map_err(api)?;
    agent.spec.env.insert(MARK.to_owned(), run.id.to_string());
    // Without network there is no filter to give the key to: the stand-in for it is all the agent has.
    let bindings = std::mem::take(&mut agent.spec.phantoms);
    let stand_ins = bindings.into_iter().map(|binding| binding.phantom);
    let keys: Vec<String> = stand_ins.chain([dummy]).collect();
    let PreparedAgent { spec, process, .. } = agent;
    let secrets = Secrets::of(keys, spec.env.iter().chain(&process.env));
    let version = in_sandbox(run, spec, async |guest| {
        let version = command(&guest, &["cat", handler_harness::VERSION_FILE]).await?;
        let io = GuestAgent::start(guest, process).await.map_err(api)?;
        let mut conversation = Conversation::new(io);
        talk(run, descriptor, &mut conversation, &project, &secrets).await?;
        Ok(version)
    })
    .await?;
    let version: String = version
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    run.say(format!("check: passed: {version}")).await;
    Ok(version)
}

/// What only the agent may see.
struct Secrets {
    /// The dummy and the stand-in for it.
    keys: Vec<String>,
    /// The variables that hold them.
    variables: Vec<String>,
}

impl Secrets {
    fn of<'a>(keys: Vec<String>, env: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        let holds = |value: &str| keys.iter().any(|key| value.contains(key.as_str()));
        let variables = env
            .filter(|(_, value)| holds(value))
            .map(|(name, _)| name.clone())
            .collect();
        Self { keys, variables }
    }
}

fn make_scratch(run: &Run, project: &Path, key: &Path, dummy: &str) -> std::io::Result<()> {
    handler_base::fs::create_private_dir(project)?;
    handler_base::fs::write_atomic(key, dummy.as_bytes(), 0o600)?;
    let owner = agent::owner(&run.app, &run.backend, &project.to_string_lossy());
    mcp_probe::put(project, owner)?;
    agent::give(project, owner)
}

/// A model server that is never called, with a key that is none.
fn nowhere(descriptor: &HarnessDescriptor, key: &Path) -> Provider {
    let protocol = descriptor.provider_protocols.iter().copied().take(1);
    Provider {
        api_version: PROVIDER_VERSION.to_owned(),
        description: None,
        endpoints: protocol
            .map(|p| (p, "http://127.0.0.1:9/v1".to_owned()))
            .collect(),
        api_key: Some(SecretRef::File(key.to_string_lossy().into_owned())),
        models: vec![ProviderModel {
            id: "check".to_owned(),
            ..Default::default()
        }],
        files: BTreeMap::new(),
        contexts: Vec::new(),
    }
}

async fn talk(
    run: &Run,
    descriptor: &HarnessDescriptor,
    conversation: &mut Conversation,
    project: &Path,
    secrets: &Secrets,
) -> Result<(), ImageError> {
    let capabilities =
        json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
    let hello = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    let answer = conversation
        .ask("initialize", hello)
        .await
        .map_err(failed)?;
    if answer["protocolVersion"] != json!(1) {
        return Err(failed("it does not speak version 1 of ACP"));
    }
    run.say("check: it answers initialize").await;
    let server = McpServer::Stdio {
        name: "handler-check".to_owned(),
        command: mcp_probe::path(project).to_string_lossy().into_owned(),
        args: Vec::new(),
        env: Vec::new(),
    };
    let server = handler_harness::mcp::for_harness(descriptor, server, &secrets.variables);
    let open = json!({"cwd": project, "mcpServers": [server]});
    let opened = conversation
        .ask("session/new", open)
        .await
        .map_err(failed)?;
    run.say("check: it opens a session").await;
    offers(descriptor, &opened).map_err(failed)?;
    run.say("check: it offers every mode and option it is said to have")
        .await;
    if descriptor.mcp_transports.contains(&McpTransport::Stdio) {
        mcp_probe::started(project, &run.id.to_string(), &secrets.keys)
            .await
            .map_err(failed)?;
        run.say(
            "check: it starts the MCP server with the sandbox's environment and without the key",
        )
        .await;
    }
    Ok(())
}

/// Whether the session has what the descriptor says.
fn offers(descriptor: &HarnessDescriptor, opened: &Value) -> Result<(), String> {
    let offered = modes(opened);
    for (mode, mapping) in &descriptor.permissions {
        let is_there = mapping.session_modes.is_empty()
            || mapping.session_modes.iter().any(|id| offered.contains(id));
        if !is_there {
            return Err(format!(
                "it offers no mode for {mode:?} ({}); it has: {}",
                mapping.session_modes.join(", "),
                offered.join(", ")
            ));
        }
    }
    match &descriptor.model_option {
        Some(option) if !has_option(opened, option) => {
            Err(format!("it has no option `{option}` to choose the model"))
        }
        _ => Ok(()),
    }
}

async fn command(guest: &GuestHandle, argv: &[&str]) -> Result<String, ImageError> {
    let request = ExecRequest {
        argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
        timeout_ms: Some(60_000),
        ..ExecRequest::default()
    };
    let result = exec::buffered(guest, request).await.map_err(api)?;
    if result.exit.code == 0 {
        return Ok(result.stdout.trim().to_owned());
    }
    let said: String = result.stderr.trim().chars().take(300).collect();
    Err(failed(format!(
        "`{}` ends with {}: {said}",
        argv.join(" "),
        result.exit.code
    )))
}

/// Runs something in a sandbox that is gone afterwards, within the check's time.
async fn in_sandbox<T>(
    run: &Run,
    spec: SandboxSpec,
    inside: impl AsyncFnOnce(GuestHandle) -> Result<T, ImageError>,
) -> Result<T, ImageError> {
    let engine = &run.app.engine;
    let args = CreateArgs {
        spec,
        label: "image check".to_owned(),
    };
    let view: SandboxView = engine
        .create(args)
        .await
        .map_err(|e| api(engine_error(e)))?;
    let checked = async {
        let guest = engine.guest(&view.id).map_err(|e| api(engine_error(e)))?;
        inside(guest).await
    };
    let outcome = tokio::select! {
        () = run.cancel.cancelled() => Err(ImageError::Cancelled),
        outcome = tokio::time::timeout(LIMIT, checked) => {
            outcome.unwrap_or_else(|_| Err(failed(format!("the check takes longer than {LIMIT:?}"))))
        }
    };
    if let Err(error) = engine.delete(&view.id).await {
        tracing::warn!(%error, sandbox = %view.id, "a check's sandbox could not be removed");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_lacks_is_told() {
        let descriptor = handler_harness::descriptor("claude-code").expect("known");
        let mode = |id: &str| json!({"id": id});
        let all = ["default", "acceptEdits", "bypassPermissions"].map(mode);
        let options = json!([{"id": "model"}]);
        let good = json!({"modes": {"availableModes": all}, "configOptions": options});
        assert_eq!(offers(descriptor, &good), Ok(()));
        let less =
            json!({"modes": {"availableModes": [mode("default")]}, "configOptions": options});
        let said = offers(descriptor, &less).expect_err("a mode is missing");
        assert!(
            said.contains("acceptEdits") && said.contains("default"),
            "{said}"
        );
        let none = json!({"modes": {"availableModes": all}});
        assert!(
            offers(descriptor, &none)
                .expect_err("no option")
                .contains("model")
        );
    }
}
