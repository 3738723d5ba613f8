//! Sandboxes over the API, as the rows use them.

use crate::measure::{REST, ms_since};
use anyhow::{Context as _, ensure};
use handler_client::Client;
use handler_testkit::World;
use handler_types::api::{ExecRequest, ExecResult};
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{CreateSandbox, SandboxView};
use std::time::Instant;

/// How long the parts of one start took, milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// The call that makes the sandbox.
    pub(crate) create: f64,
    /// The first command.
    pub(crate) exec: f64,
    /// Removing it.
    pub(crate) delete: f64,
}

impl Start {
    /// From nothing to the first command's output.
    pub(crate) fn to_output(self) -> f64 {
        self.create + self.exec
    }
}

/// Makes a sandbox.
pub(crate) async fn create(
    client: &Client,
    network: Option<NetworkPolicy>,
) -> anyhow::Result<SandboxView> {
    let request = CreateSandbox {
        network,
        ..CreateSandbox::default()
    };
    client
        .create_sandbox(&request)
        .await
        .context("create a sandbox")
}

/// Runs a command that must succeed.
pub(crate) async fn exec(client: &Client, id: &str, argv: &[&str]) -> anyhow::Result<ExecResult> {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    let request = ExecRequest {
        argv,
        ..ExecRequest::default()
    };
    let result = client.exec(id, &request).await.context("run a command")?;
    ensure!(
        result.exit.code == 0,
        "the command ended with {:?}",
        result.exit
    );
    Ok(result)
}

/// Makes a sandbox after a pause, runs `echo hi` in it, removes it.
pub(crate) async fn start_once(
    client: &Client,
    network: Option<NetworkPolicy>,
) -> anyhow::Result<Start> {
    let request = CreateSandbox {
        network,
        ..CreateSandbox::default()
    };
    start_with(client, &request, &["echo", "hi"]).await
}

/// Makes a sandbox as asked after a pause, runs a command in it that prints `hi`, removes it.
pub(crate) async fn start_with(
    client: &Client,
    request: &CreateSandbox,
    argv: &[&str],
) -> anyhow::Result<Start> {
    tokio::time::sleep(REST).await;
    let began = Instant::now();
    let sandbox = client
        .create_sandbox(request)
        .await
        .context("create a sandbox")?;
    let create = ms_since(began);
    let began = Instant::now();
    let result = exec(client, sandbox.id.as_str(), argv).await?;
    let exec = ms_since(began);
    ensure!(result.stdout == "hi\n", "echo printed {:?}", result.stdout);
    let began = Instant::now();
    client
        .delete_sandbox(sandbox.id.as_str())
        .await
        .context("remove a sandbox")?;
    Ok(Start {
        create,
        exec,
        delete: ms_since(began),
    })
}

/// The filter's process.
pub(crate) fn filter_pid(world: &World) -> anyhow::Result<u32> {
    let is_filter = |argv: &[String]| argv.get(1).is_some_and(|verb| verb == "egress");
    let found = world
        .processes()
        .into_iter()
        .find(|member| is_filter(&member.argv));
    Ok(found.context("no filter runs")?.pid.cast_unsigned())
}
