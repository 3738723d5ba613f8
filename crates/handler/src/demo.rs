//! The demo: a whole session with the real agent program and a scripted model, then the proofs.
//!
//! It needs no key and no network beyond the package registry that the harness is installed from.

use handler_cli::Context;
use handler_cli::Failure;
use handler_cli::args::DemoArgs;
use handler_cli::chat::{Chat, Until};
use handler_cli::out::{Out, printable};
use handler_client::Client;
use handler_scripted::{ScriptedConfig, ScriptedModel};
use handler_types::api::{ExecRequest, ProviderRequest};
use handler_types::egress::EgressDecision;
use handler_types::provider::{Protocol, ProviderModel};
use handler_types::session::{CreateSession, SessionView};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The provider the demo adds and takes away again.
const PROVIDER: &str = "demo";

/// Runs it.
pub(crate) async fn run(args: DemoArgs, context: &Context) -> ExitCode {
    match demo(args, context).await {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            context.out.failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

async fn demo(args: DemoArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    handler_cli::commands::daemon::start(context).await?;
    let client = context.client()?;
    install(&client, &args.harness, out).await?;
    let key = format!("sk-demo-{}", handler_base::random::hex(20));
    let model = ScriptedModel::start(ScriptedConfig {
        expect_key: Some(key.clone()),
        word_delay: Duration::from_millis(30),
        ..Default::default()
    })
    .map_err(|e| Failure::local("cannot start the scripted model", e))?;
    // One that a demo left that broke off.
    client.delete_provider(PROVIDER).await.ok();
    client.add_provider(&provider(&model, &key)).await?;
    let folder = folder(args.folder)?;
    let outcome = session(&client, &args.harness, &folder, &model, &key, context).await;
    client.delete_provider(PROVIDER).await.ok();
    model.stop();
    let code = outcome?;
    if code == 0 {
        next_steps(out);
    }
    Ok(code)
}

async fn install(client: &Client, harness: &str, out: &Out) -> Result<(), Failure> {
    let known = client.harnesses().await?;
    let is_installed = known
        .iter()
        .any(|h| h.name == harness && h.status == "installed");
    if !is_installed {
        out.note(format!(
            "installing {harness} into a managed folder, inside a sandbox that reaches only the package \
             registry (about a minute)…"
        ));
        let view = client.install_harness(harness).await?;
        out.note(format!("installed {}", view.version.unwrap_or_default()));
    }
    Ok(())
}

fn provider(model: &ScriptedModel, key: &str) -> ProviderRequest {
    let base = model.base_url();
    ProviderRequest {
        name: PROVIDER.to_owned(),
        description: Some("the demo's scripted model".to_owned()),
        endpoints: BTreeMap::from([
            (Protocol::OpenaiChat, format!("{base}/v1")),
            (Protocol::Responses, format!("{base}/v1")),
            (Protocol::Gemini, base.clone()),
            (Protocol::Anthropic, base),
        ]),
        models: vec![ProviderModel {
            id: "scripted".to_owned(),
            ..Default::default()
        }],
        key: Some(key.to_owned()),
        ..Default::default()
    }
}

fn folder(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let folder = match given {
        Some(folder) => std::path::absolute(&folder)
            .map_err(|e| Failure::local(format!("cannot use {}", folder.display()), e))?,
        None => {
            let home = std::env::var_os("HOME")
                .ok_or_else(|| Failure::Usage("HOME is not set; give --folder".into()))?;
            PathBuf::from(home).join("handler-demo")
        }
    };
    std::fs::create_dir_all(&folder)
        .map_err(|e| Failure::local(format!("cannot make {}", folder.display()), e))?;
    Ok(folder)
}

async fn session(
    client: &Client,
    harness: &str,
    folder: &std::path::Path,
    model: &ScriptedModel,
    key: &str,
    context: &Context,
) -> Result<u8, Failure> {
    let out = &context.out;
    let file = folder.join("hello.txt");
    std::fs::remove_file(&file).ok();
    let prompt = format!(
        "Write a greeting into hello.txt, look at the folder, then try to fetch a page. PLAN:write:{}|Hello from \
         inside the sandbox. THEN PLAN:shell:ls -l THEN PLAN:fetch:https://example.org/",
        file.display()
    );
    let request = CreateSession {
        scope: folder.to_string_lossy().into_owned(),
        harness: Some(harness.to_owned()),
        provider: Some(PROVIDER.to_owned()),
        prompt: Some(prompt),
        title: Some("Handler demo".to_owned()),
        turn_timeout_secs: Some(300),
        ..CreateSession::default()
    };
    out.note(format!(
        "working in {} — the agent sees this folder and nothing else of yours",
        folder.display()
    ));
    let session = client.create_session(&request).await?;
    let mut chat = Chat::attach(client, &session, 0, context).await?;
    let code = chat.follow(Until::TurnEnd).await?;
    let session = client.session(session.id.as_str()).await?;
    let proven = proofs(client, &session, &file, model, key, out).await;
    client.stop_session(session.id.as_str()).await?;
    proven?;
    Ok(code)
}

/// What a person would want to see for themselves.
async fn proofs(
    client: &Client,
    session: &SessionView,
    file: &std::path::Path,
    model: &ScriptedModel,
    key: &str,
    out: &Out,
) -> Result<(), Failure> {
    out.line("");
    out.line(out.bold("What happened"));
    let content = std::fs::read_to_string(file)
        .map_err(|e| Failure::local(format!("the agent did not write {}", file.display()), e))?;
    out.line(format!(
        "  file     {} says: {}",
        file.display(),
        printable(content.trim())
    ));
    let sandbox = session
        .sandbox_id
        .as_ref()
        .ok_or_else(|| Failure::Failed("the session has no sandbox".into()))?;
    let events = client.sandbox_egress(sandbox.as_str()).await?;
    for event in events
        .iter()
        .filter(|e| e.decision == EgressDecision::Denied)
        .take(3)
    {
        out.line(format!(
            "  denied   {} ({})",
            event.host,
            event.reason.clone().unwrap_or_default()
        ));
    }
    if !events.iter().any(|e| e.decision == EgressDecision::Denied) {
        return Err(Failure::Failed("no denied request was reported".into()));
    }
    let held = held_key(client, sandbox.as_str()).await?;
    let arrived = model
        .requests()
        .iter()
        .rev()
        .find_map(handler_scripted::RecordedRequest::key);
    out.line(format!("  agent    held   {} (a stand-in)", short(&held)));
    out.line(format!(
        "  model    got    {} (the real key)",
        short(arrived.as_deref().unwrap_or("nothing"))
    ));
    if held == key || arrived.as_deref() != Some(key) {
        return Err(Failure::Failed("the key was not kept apart".into()));
    }
    Ok(())
}

/// What the agent's environment holds in the key's place.
async fn held_key(client: &Client, sandbox: &str) -> Result<String, Failure> {
    let script = "printf %s \"${HANDLER_MODEL_KEY:-$ANTHROPIC_API_KEY}\"";
    let request = ExecRequest {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    Ok(client.exec(sandbox, &request).await?.stdout)
}

fn short(key: &str) -> String {
    let head: String = key.chars().take(18).collect();
    format!("{}…", printable(&head))
}

fn next_steps(out: &Out) {
    out.line("");
    out.line(out.bold("Next"));
    out.line(
        "  handler provider add anthropic        your own model (asks for the key, without echo)",
    );
    out.line("  handler harness install claude-code   another agent program");
    out.line("  cd ~/code/app && handler run \"…\"      give it a task");
    out.line("  handler attach · handler session list · handler sandbox up · handler doctor");
    out.line("  handler daemon stop                   sessions and sandboxes go on until stopped");
}
