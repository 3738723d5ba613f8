//! An agent's sessions: what a request for one means, and what a start of one is given.

use super::{check, row_error};
use crate::app::agent::ModelUse;
use crate::app::sandboxes::{grant_secret, work_folder};
use crate::app::{contexts, knowledge};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_store::rows::AgentRow;
use handler_types::agent::{AgentSettings, ModelAccess, Through};
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Confinement, MountSpec, PhantomBinding, Resources, SandboxSpec};
use handler_types::session::CreateSession;
use handler_types::{AgentId, ProblemCode, ProjectId};
use std::collections::BTreeMap;
use std::path::Path;

/// The agent a session belongs to.
#[derive(Debug, Clone)]
pub struct Use {
    /// Its id.
    pub agent: AgentId,
    /// Its project.
    pub project: Option<ProjectId>,
    /// What stands before the first prompt.
    pub instructions: Option<String>,
}

/// A request with what its agent says filled in; as it is without an agent.
///
/// # Errors
/// 404 without the agent; 400 for a model it does not list; 409 for what differs from its settings.
pub async fn for_session(
    app: &App,
    request: CreateSession,
) -> ApiResult<(CreateSession, Option<Use>)> {
    let Some(id) = request.agent_id.clone() else {
        if request.scope.is_empty() {
            let detail = "scope: say the folder the agent works in";
            return Err(ApiError::new(ProblemCode::Invalid, detail));
        }
        return Ok((request, None));
    };
    let row = load(app, &id).await?.ok_or_else(|| {
        let detail = format!("there is no agent `{id}`; `handler agent list` shows them");
        ApiError::titled(ProblemCode::NotFound, "agent not found", detail)
    })?;
    let scope = scope(app, &row, &request.scope).await?;
    let access = match choose(&row.settings, &request) {
        Ok(access) => access,
        Err(error) => other(app, &row, &request).await?.ok_or(error)?,
    };
    let filled = fill(&row.settings, access, request, scope)?;
    let agent = Use {
        agent: row.id,
        project: row.project,
        instructions: row.settings.instructions,
    };
    Ok((filled, Some(agent)))
}

async fn load(app: &App, id: &AgentId) -> ApiResult<Option<AgentRow>> {
    app.store.agents().get(id).await.map_err(row_error)
}

/// The folder its session works in: the agent's, else the one that was said.
async fn scope(app: &App, row: &AgentRow, said: &str) -> ApiResult<String> {
    let own = match &row.project {
        None => row.settings.scope.clone(),
        Some(id) => {
            let project = app.store.projects().get(id).await.map_err(row_error)?;
            project.map(|project| project.settings.folder)
        }
    };
    let Some(own) = own else {
        if said.is_empty() {
            let detail = "scope: this agent has no folder of its own; say the one it works in";
            return Err(ApiError::new(ProblemCode::Invalid, detail));
        }
        return Ok(said.to_owned());
    };
    if !said.is_empty() && !Path::new(&work_folder(app, said)?).starts_with(&own) {
        let detail = format!("this agent works in {own}; {said} is not in it");
        return Err(differs(detail));
    }
    Ok(own)
}

fn differs(detail: impl Into<String>) -> ApiError {
    ApiError::titled(ProblemCode::Conflict, "not the agent's settings", detail)
}

/// What the request names that the agent does not list, for this session only; none: it names no account and no
/// provider.
async fn other(
    app: &App,
    row: &AgentRow,
    request: &CreateSession,
) -> ApiResult<Option<ModelAccess>> {
    if Through::of(request.account.as_deref(), request.provider.as_deref()).is_none() {
        return Ok(None);
    }
    let access = ModelAccess {
        harness: request.harness.clone(),
        account: request.account.clone(),
        provider: request.provider.clone(),
        model: request.model.clone(),
    };
    let context = contexts::of_project(app, row.project.as_ref()).await?;
    let checked = check::model(app, &access, row.settings.permissions, context.as_deref());
    let checked = checked.map_err(|(title, text)| {
        let code = match title {
            contexts::NOT_FOR_IT => ProblemCode::Conflict,
            _ => ProblemCode::Invalid,
        };
        ApiError::titled(code, title, text)
    });
    checked.map(Some)
}

/// Fills in what the request leaves open, and refuses what is not the agent's. Pure.
fn fill(
    settings: &AgentSettings,
    access: ModelAccess,
    mut request: CreateSession,
    scope: String,
) -> ApiResult<CreateSession> {
    let mut other = Vec::new();
    let native = |backend: &Option<String>| backend.clone().unwrap_or_else(|| "native".into());
    if request
        .permissions
        .is_some_and(|asked| asked != settings.permissions)
    {
        other.push("permissions");
    }
    if request
        .network
        .as_ref()
        .is_some_and(|asked| *asked != settings.network)
    {
        other.push("network");
    }
    if request.backend.is_some() && native(&request.backend) != native(&settings.backend) {
        other.push("backend");
    }
    if !request.knowledge.is_empty() && request.knowledge != settings.knowledge {
        other.push("knowledge");
    }
    for (asked, own, name) in [
        (
            request.turn_timeout_secs,
            settings.turn_timeout_secs,
            "turnTimeoutSecs",
        ),
        (
            request.idle_timeout_secs,
            settings.idle_timeout_secs,
            "idleTimeoutSecs",
        ),
    ] {
        if asked.is_some() && own.is_some() && asked != own {
            other.push(name);
        }
    }
    if !other.is_empty() {
        let detail = format!(
            "not as the agent is set up: {}; change the agent, or leave it out of the request",
            other.join(", ")
        );
        return Err(differs(detail));
    }
    request.harness = access.harness;
    request.account = access.account;
    request.provider = access.provider;
    request.model = access.model;
    request.permissions = Some(settings.permissions);
    request.network = Some(settings.network.clone());
    request.backend.clone_from(&settings.backend);
    // Each start asks the agent for them anew.
    request.knowledge = Vec::new();
    request.turn_timeout_secs = request.turn_timeout_secs.or(settings.turn_timeout_secs);
    request.idle_timeout_secs = request.idle_timeout_secs.or(settings.idle_timeout_secs);
    request.scope = scope;
    Ok(request)
}

/// The first of its models that is what was said.
fn choose(settings: &AgentSettings, request: &CreateSession) -> ApiResult<ModelAccess> {
    let fits = |access: &&ModelAccess| {
        let is = |asked: &Option<String>, own: Option<&String>| {
            asked.as_ref().is_none_or(|asked| Some(asked) == own)
        };
        is(&request.harness, access.harness.as_ref())
            && is(&request.account, access.account.as_ref())
            && is(&request.provider, access.provider.as_ref())
            && is(&request.model, access.model.as_ref())
    };
    settings.models.iter().find(fits).cloned().ok_or_else(|| {
        let has: Vec<String> = settings.models.iter().map(said).collect();
        let detail = format!("the agent has no such model; it has: {}", has.join(", "));
        ApiError::titled(ProblemCode::Invalid, "model access unusable", detail)
    })
}

fn said(access: &ModelAccess) -> String {
    let harness = access.harness.as_deref().unwrap_or_default();
    let model = access.model.as_deref().unwrap_or("its own model");
    let through = access.through().map_or("nothing", Through::name);
    format!("{harness} with {model} of {through}")
}

/// What an agent's sandbox has besides its harness and its model.
#[derive(Debug, Default)]
pub struct Extras {
    settings: Option<AgentSettings>,
    mounts: Vec<MountSpec>,
    env: BTreeMap<String, String>,
    phantoms: Vec<PhantomBinding>,
}

/// What a start of a session of this agent is given, as the agent is now; without one, the knowledge folders that
/// the session itself has.
///
/// # Errors
/// 409 when the agent is gone, or its project's context does not allow what it runs on; a folder that may not be used any more; a secret without a value.
pub async fn extras(
    app: &App,
    agent: Option<&AgentId>,
    network: &NetworkPolicy,
    own_knowledge: &[String],
    used: &ModelUse<'_>,
) -> ApiResult<Extras> {
    let Some(id) = agent else {
        return Ok(Extras {
            mounts: knowledge::mounts(app, own_knowledge).await?,
            ..Extras::default()
        });
    };
    let row = load(app, id).await?.ok_or_else(|| {
        let detail = "its agent was removed: its history stays, but it cannot go on";
        ApiError::new(ProblemCode::Conflict, detail)
    })?;
    let context = contexts::of_project(app, row.project.as_ref()).await?;
    contexts::check(context.as_deref(), used)?;
    let mut extras = Extras::default();
    for folder in &row.settings.folders {
        let source = work_folder(app, &folder.source)?;
        extras.mounts.push(MountSpec {
            source,
            ..folder.clone()
        });
    }
    extras
        .mounts
        .extend(knowledge::mounts(app, &row.settings.knowledge).await?);
    for (variable, grant) in row.settings.secrets.clone() {
        let (stand_in, binding) = grant_secret(app, &variable, grant, network).await?;
        extras.env.insert(variable, stand_in);
        extras.phantoms.extend(binding);
    }
    extras.settings = Some(row.settings);
    Ok(extras)
}

impl Extras {
    /// How free the agent is now; none without an agent.
    #[must_use]
    pub fn permissions(&self) -> Option<handler_types::harness::PermissionMode> {
        self.settings.as_ref().map(|settings| settings.permissions)
    }

    /// Puts them into a sandbox that is to be made.
    ///
    /// # Errors
    /// 409 for a variable that the harness's launch sets.
    pub fn put_into(self, spec: &mut SandboxSpec) -> ApiResult<()> {
        let taken = self.env.keys().find(|name| spec.env.contains_key(*name));
        if let Some(name) = taken {
            let detail = format!(
                "the agent's secret {name} is a variable of its program's own: give it another name"
            );
            return Err(ApiError::new(ProblemCode::Conflict, detail));
        }
        spec.env.extend(self.env);
        spec.mounts.extend(self.mounts);
        spec.phantoms.extend(self.phantoms);
        let (limits, confinement) = self.settings.map_or_else(
            || (Resources::default(), Confinement::default()),
            |settings| (settings.limits, settings.confinement),
        );
        spec.resources = limits;
        spec.confinement = confinement;
        Ok(())
    }
}

/// Notes that an agent and its project are used now.
pub async fn touch(app: &App, agent: &Use) {
    let noted = async {
        app.store.agents().touch(&agent.agent).await?;
        match &agent.project {
            Some(project) => app.store.projects().touch(project).await,
            None => Ok(()),
        }
    };
    if let Err(error) = noted.await {
        tracing::warn!(agent = %agent.agent, %error, "its use could not be noted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(harness: &str, model: &str) -> ModelAccess {
        ModelAccess {
            harness: Some(harness.into()),
            account: None,
            provider: Some("here".into()),
            model: Some(model.into()),
        }
    }

    fn settings() -> AgentSettings {
        AgentSettings {
            models: vec![access("pi", "small"), access("claude-code", "large")],
            turn_timeout_secs: Some(60),
            ..AgentSettings::default()
        }
    }

    fn filled(request: CreateSession) -> ApiResult<CreateSession> {
        let access = choose(&settings(), &request)?;
        fill(&settings(), access, request, "/w".into())
    }

    #[test]
    fn what_is_left_open_is_the_agents_and_its_models_can_be_chosen_among() {
        let made = filled(CreateSession::default()).expect("filled");
        assert_eq!(made.harness.as_deref(), Some("pi"));
        assert_eq!(made.model.as_deref(), Some("small"));
        assert_eq!(made.network, Some(NetworkPolicy::default()));
        assert_eq!(
            (made.turn_timeout_secs, made.scope.as_str()),
            (Some(60), "/w")
        );
        let asked = CreateSession {
            harness: Some("claude-code".into()),
            permissions: Some(Default::default()),
            backend: Some("native".into()),
            idle_timeout_secs: Some(5),
            ..CreateSession::default()
        };
        let filled = filled(asked).expect("filled");
        assert_eq!(filled.model.as_deref(), Some("large"));
        assert_eq!(filled.idle_timeout_secs, Some(5));
    }

    #[test]
    fn what_is_not_the_agents_is_refused_and_named() {
        let asked = |change: fn(&mut CreateSession)| {
            let mut asked = CreateSession::default();
            change(&mut asked);
            filled(asked).expect_err("refused").0
        };
        for (change, named) in [
            (
                (|a| a.network = Some(NetworkPolicy::Open)) as fn(&mut CreateSession),
                "network",
            ),
            (
                |a| a.permissions = Some(handler_types::harness::PermissionMode::Ask),
                "permissions",
            ),
            (|a| a.backend = Some("podman".into()), "backend"),
            (|a| a.turn_timeout_secs = Some(61), "turnTimeoutSecs"),
        ] {
            let error = asked(change);
            assert_eq!(error.status, 409);
            assert!(error.detail.contains(named), "{}", error.detail);
        }
        let error = asked(|a| a.model = Some("huge".into()));
        assert_eq!(error.title, "model access unusable");
        assert!(
            error.detail.contains("pi with small of here"),
            "{}",
            error.detail
        );
    }
}
