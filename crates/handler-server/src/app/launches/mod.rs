//! An agent's program without a session: a plain ACP connection (contract C) or the program's own terminal (D.16).
//! Each has a sandbox of its own, which goes when it ends.
//!
//! Invariant: a sandbox with [`AGENT_LABEL`] belongs to a connection of this daemon or to a terminal that runs;
//! every other one is removed, at the latest when the next daemon starts.

pub mod connection;
mod lane;
pub mod terminal;

use crate::app::agent::{AgentRequest, ModelUse, PreparedAgent, TerminalLaunch, owner, prepare};
use crate::app::agents::{self, Use};
use crate::app::sandboxes::{engine_error, work_folder};
use crate::app::sessions::{choose, place};
use crate::app::{caches, network};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::network::{AllowEntry, NetworkPolicy};
use handler_types::sandbox::SandboxView;
use handler_types::session::CreateSession;
use handler_types::{AgentId, ProblemCode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label: the agent.
pub const AGENT_LABEL: &str = "handler.agent";
/// Label: what it is, [`CONNECTION`] or [`TERMINAL`].
pub const KIND_LABEL: &str = "handler.kind";
/// Label: hosts its model needs, besides the agent's own list.
const NEEDS_LABEL: &str = "handler.needs";
/// A plain ACP connection.
pub const CONNECTION: &str = "connection";
/// A harness's own terminal.
pub const TERMINAL: &str = "terminal";

/// Which of the agent's models, or which other one; and where, for an agent without a folder.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Harness.
    pub harness: Option<String>,
    /// Account, instead of a provider.
    pub account: Option<String>,
    /// Provider.
    pub provider: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// The folder; must lie in the agent's own, if it has one.
    pub folder: String,
}

/// What is to be started.
#[derive(Debug)]
pub struct Launch {
    /// The agent.
    pub agent: Use,
    /// Its folder.
    pub scope: String,
    /// Its sandbox and process.
    pub prepared: PreparedAgent,
}

/// Everything that can be checked before anything is made.
///
/// # Errors
/// 404 `agent not found`; 400 `model access unusable`; what stands in the way of a start.
pub async fn prepared(
    app: &App,
    text: &str,
    wanted: &Wanted,
    terminal: Option<&[String]>,
) -> ApiResult<Launch> {
    let row = agents::find_row(app, text).await.map_err(not_found)?;
    let (mut request, agent) = filled(app, &row.id, wanted).await?;
    request.scope = work_folder(app, &request.scope)?;
    let choice = choose(app, &request).await.map_err(unusable)?;
    let used = ModelUse::of(app, choice.through(), &choice.model).map_err(unusable)?;
    let network = request.network.clone().unwrap_or_default();
    let extras = agents::extras(app, Some(&agent.agent), &network, &[], &used).await?;
    let state = app.settings.layout.agent_state_dir(&agent.agent);
    let state = state.join(format!("{}@{}", choice.descriptor.name, used.name()));
    let kind = terminal.map_or(CONNECTION, |_| TERMINAL);
    let place = place(app, choice.descriptor, choice.backend.as_deref())
        .await
        .map_err(unusable)?;
    let owner = owner(app, place.backend(), &request.scope);
    let caches = caches::for_session(app, Some(&agent.agent), owner).await?;
    let made = prepare(
        app,
        AgentRequest {
            descriptor: choice.descriptor,
            place,
            used,
            permissions: choice.permissions,
            network: network.clone(),
            scope: &request.scope,
            state_dir: &state,
            shared_state: None,
            labels: labels(&agent.agent, kind),
            caches,
            terminal: terminal.map(|args| TerminalLaunch {
                args: args.to_vec(),
                instructions: agent.instructions.clone(),
            }),
        },
    );
    let mut prepared = made.await.map_err(|error| match terminal {
        None => unusable(error),
        Some(_) => cannot(error),
    })?;
    extras.put_into(&mut prepared.spec)?;
    note_needs(&mut prepared, &network);
    Ok(Launch {
        agent,
        scope: request.scope,
        prepared,
    })
}

fn labels(agent: &AgentId, kind: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (AGENT_LABEL.to_owned(), agent.to_string()),
        (KIND_LABEL.to_owned(), kind.to_owned()),
    ])
}

/// Writes down which hosts are not the agent's own, for a change of its list later.
fn note_needs(prepared: &mut PreparedAgent, own: &NetworkPolicy) {
    let listed = match own {
        NetworkPolicy::Filtered { allow, .. } => allow.as_slice(),
        NetworkPolicy::None | NetworkPolicy::Open => &[],
    };
    let needs = prepared.needs.iter().filter(|host| !listed.contains(host));
    let needs: Vec<String> = needs.map(ToString::to_string).collect();
    let labels = &mut prepared.spec.labels;
    labels.insert(NEEDS_LABEL.to_owned(), needs.join(","));
}

/// The agent's settings, with the model that was asked for: one of its own, else any other that is named whole.
async fn filled(app: &App, id: &AgentId, wanted: &Wanted) -> ApiResult<(CreateSession, Use)> {
    let asked = CreateSession {
        agent_id: Some(id.clone()),
        scope: wanted.folder.clone(),
        harness: wanted.harness.clone(),
        account: wanted.account.clone(),
        provider: wanted.provider.clone(),
        model: wanted.model.clone(),
        ..CreateSession::default()
    };
    let (request, agent) = agents::for_session(app, asked).await.map_err(not_found)?;
    let agent = agent.ok_or_else(|| ApiError::new(ProblemCode::Internal, "an agent got lost"))?;
    Ok((request, agent))
}

const UNUSABLE: &str = "model access unusable";

fn not_found(mut error: ApiError) -> ApiError {
    if error.0.code == ProblemCode::NotFound {
        "agent not found".clone_into(&mut error.0.title);
    }
    error
}

/// Contract C.1: what makes a model unusable is a 400; faults of ours stay what they are.
fn unusable(error: ApiError) -> ApiError {
    match error.0.code {
        ProblemCode::Invalid | ProblemCode::NotConfigured | ProblemCode::NotFound => {
            ApiError::titled(ProblemCode::Invalid, UNUSABLE, error.0.detail)
        }
        _ => error,
    }
}

/// Contract D.16: the model is usable, and the terminal cannot be had with it all the same.
fn cannot(error: ApiError) -> ApiError {
    match error.0.code {
        ProblemCode::Internal | ProblemCode::NoSpace | ProblemCode::TooMany => error,
        _ => ApiError::titled(
            ProblemCode::Conflict,
            "the terminal cannot start",
            error.0.detail,
        ),
    }
}

/// The sandboxes of an agent's connections and terminals.
fn of_agent(app: &App, agent: &AgentId) -> Vec<SandboxView> {
    let mut all = app.engine.list();
    all.retain(|view| view.labels.get(AGENT_LABEL).map(String::as_str) == Some(agent.as_str()));
    all
}

/// Puts a change of an agent's policy into its connections and terminals; says which could not take it over.
pub async fn follow(
    app: &App,
    agent: &AgentId,
    before: &NetworkPolicy,
    after: &NetworkPolicy,
) -> Vec<String> {
    let _turn = app.network_turn.lock().await;
    let mut left = Vec::new();
    for view in of_agent(app, agent) {
        let wanted = agents::merged(before, after, &view.network);
        let wanted = with_needs(wanted, &view);
        if wanted == view.network {
            continue;
        }
        if let Err(error) = network::set(app, &view, &view.network, wanted).await {
            left.push(format!("sandbox {}: {}", view.name, error.0.detail));
        }
    }
    left
}

/// The policy with what the model of this sandbox needs.
fn with_needs(mut policy: NetworkPolicy, view: &SandboxView) -> NetworkPolicy {
    let needs = view.labels.get(NEEDS_LABEL).map_or("", String::as_str);
    if let NetworkPolicy::Filtered { allow, .. } = &mut policy {
        for host in needs
            .split(',')
            .filter_map(|text| text.parse::<AllowEntry>().ok())
        {
            if !allow.contains(&host) {
                allow.push(host);
            }
        }
    }
    policy
}

/// Ends an agent's connections and terminals, because it is removed.
///
/// # Errors
/// What the engine refuses.
pub async fn end(app: &App, agent: &AgentId) -> ApiResult<()> {
    let mut result = Ok(());
    for view in of_agent(app, agent) {
        if let Err(error) = app.engine.delete(&view.id).await {
            result = Err(engine_error(error));
        }
    }
    result
}

/// Whether a sandbox belongs to a terminal: it may go on under another daemon.
pub fn is_terminal(view: &SandboxView) -> bool {
    view.labels.get(KIND_LABEL).map(String::as_str) == Some(TERMINAL)
}

/// At the daemon's start: goes on with terminals whose program runs, and removes what is left of others.
pub async fn take_up(app: &Arc<App>) {
    for view in app.engine.list().into_iter().filter(is_terminal) {
        terminal::take_up(app, view).await;
    }
}

impl Launch {
    /// Says that the agent is used now.
    async fn touch(&self, app: &App) {
        agents::touch(app, &self.agent).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: ApiError) -> (u16, String) {
        (error.0.status, error.0.title)
    }

    #[test]
    fn what_makes_a_model_unusable_is_a_400_and_a_terminal_that_cannot_start_a_409() {
        use ProblemCode::{Conflict, Internal, Invalid, NoSpace, NotConfigured};
        for (given, of_model, of_terminal) in [
            (Invalid, 400, 409),
            (NotConfigured, 400, 409),
            (Conflict, 409, 409),
            (NoSpace, 507, 507),
            (Internal, 500, 500),
        ] {
            let model = code(unusable(ApiError::new(given, "why")));
            let terminal = code(cannot(ApiError::new(given, "why")));
            assert_eq!((model.0, terminal.0), (of_model, of_terminal), "{given:?}");
            assert_eq!(model.1 == UNUSABLE, of_model == 400, "{given:?}");
        }
    }
}
