//! An agent as it is now: which of its models can run, what they need, and what stands in the way.

use super::row_error;
use crate::app::agent::{ModelUse, would_run};
use crate::app::sandboxes::work_folder;
use crate::app::{accounts, contexts, harnesses, knowledge, secrets};
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_base::clock::rfc3339;
use handler_store::rows::{AgentRow, ProjectRow};
use handler_types::ProjectId;
use handler_types::agent::{
    AgentModel, AgentSettings, AgentView, ModelAccess, RequiredHost, Through,
};
use handler_types::network::NetworkPolicy;
use handler_types::provider::SecretRef;
use std::collections::HashMap;

/// Several, in their order.
///
/// # Errors
/// The database's.
pub async fn views(app: &App, rows: &[AgentRow]) -> ApiResult<Vec<AgentView>> {
    let all = app.store.projects().all().await.map_err(row_error)?;
    let defaults = defaults(&all, &app.store.agents().all().await.map_err(row_error)?);
    let projects: HashMap<&ProjectId, &ProjectRow> = all.iter().map(|row| (&row.id, row)).collect();
    let mut views = Vec::with_capacity(rows.len());
    for row in rows {
        let project = row
            .project
            .as_ref()
            .and_then(|id| projects.get(id).copied());
        let is_default = project.is_some_and(|project| defaults.get(&project.id) == Some(&row.id));
        views.push(view(app, row, project, is_default).await);
    }
    Ok(views)
}

/// The default agent of each project: the one chosen, else the first that was made.
pub(crate) fn defaults(
    projects: &[ProjectRow],
    agents: &[AgentRow],
) -> HashMap<ProjectId, handler_types::AgentId> {
    let of = |project: &ProjectRow| {
        let mut own = agents
            .iter()
            .filter(|agent| agent.project.as_ref() == Some(&project.id));
        let chosen = project.settings.default_agent.clone();
        chosen.or_else(|| own.next().map(|agent| agent.id.clone()))
    };
    projects
        .iter()
        .filter_map(|project| Some((project.id.clone(), of(project)?)))
        .collect()
}

pub(super) async fn one(app: &App, row: AgentRow) -> ApiResult<AgentView> {
    let mut views = views(app, std::slice::from_ref(&row)).await?;
    views
        .pop()
        .ok_or_else(|| ApiError::new(handler_types::ProblemCode::Internal, "an agent got lost"))
}

async fn view(
    app: &App,
    row: &AgentRow,
    project: Option<&ProjectRow>,
    is_default: bool,
) -> AgentView {
    let settings = row.settings.clone();
    let scope = match project {
        Some(project) => Some(project.settings.folder.clone()),
        None => settings.scope.clone(),
    };
    let context = project.and_then(|project| project.settings.context.as_deref());
    let mut models = Vec::with_capacity(settings.models.len());
    for access in &settings.models {
        models.push(model(app, &settings, access, context).await);
    }
    let problem = match problem(app, &settings, scope.as_deref()).await {
        None if models.iter().all(|model| model.problem.is_some()) => {
            models.first().and_then(|model| model.problem.clone())
        }
        found => found,
    };
    AgentView {
        id: row.id.clone(),
        project_id: row.project.clone(),
        default: is_default,
        scope,
        models,
        problem,
        created_at: rfc3339(row.created_ms),
        updated_at: rfc3339(row.updated_ms),
        last_used_at: row.used_ms.map(rfc3339),
        name: settings.name,
        description: settings.description,
        instructions: settings.instructions,
        backend: settings.backend,
        network: settings.network,
        permissions: settings.permissions,
        confinement: settings.confinement,
        secrets: settings.secrets,
        folders: settings.folders,
        knowledge: settings.knowledge,
        limits: settings.limits,
        turn_timeout_secs: settings.turn_timeout_secs,
        idle_timeout_secs: settings.idle_timeout_secs,
    }
}

/// What stands in the way whatever the model is.
async fn problem(app: &App, settings: &AgentSettings, scope: Option<&str>) -> Option<String> {
    if let Some(Err(error)) = scope.map(|scope| work_folder(app, scope)) {
        return Some(error.0.detail);
    }
    for folder in &settings.folders {
        if let Err(error) = work_folder(app, &folder.source) {
            return Some(error.0.detail);
        }
    }
    if let Err(error) = knowledge::check(app, &settings.knowledge).await {
        return Some(error.0.detail);
    }
    for grant in settings.secrets.values() {
        let secret = SecretRef::Secret(grant.secret.clone());
        if let Err(error) = secrets::resolve(app, &secret).await {
            return Some(error.0.detail);
        }
    }
    None
}

async fn model(
    app: &App,
    settings: &AgentSettings,
    access: &ModelAccess,
    context: Option<&str>,
) -> AgentModel {
    let mut view = AgentModel {
        harness: access.harness.clone().unwrap_or_default(),
        account: access.account.clone(),
        provider: access.provider.clone(),
        model: access.model.clone().unwrap_or_default(),
        problem: None,
        required_hosts: Vec::new(),
    };
    let Some(through) = access.through() else {
        view.problem = Some("it names no account and no provider: save it anew".to_owned());
        return view;
    };
    let used = match ModelUse::of(app, through, access.model.as_deref().unwrap_or_default()) {
        Ok(used) => used,
        Err(error) => {
            view.problem = Some(error.0.detail);
            return view;
        }
    };
    match needs(settings, &view.harness, through, &used) {
        Ok(hosts) => view.required_hosts = hosts,
        Err(why) => view.problem = Some(why),
    }
    if view.problem.is_none() {
        let fits = contexts::check(context, &used);
        view.problem = fits.err().map(|error| error.0.detail);
    }
    if view.problem.is_none() {
        view.problem = missing(app, settings, &view.harness, &used).await;
    }
    view
}

/// The hosts that a sandbox with this model needs (contract E4), none twice.
fn needs(
    settings: &AgentSettings,
    harness: &str,
    through: Through<'_>,
    used: &ModelUse<'_>,
) -> Result<Vec<RequiredHost>, String> {
    let descriptor = harnesses::descriptor(harness).map_err(|e| e.0.detail)?;
    let launch = would_run(descriptor, used, settings.permissions);
    let launch = launch.map_err(|e| chain(&e))?;
    let mut hosts: Vec<RequiredHost> = Vec::new();
    if !matches!(settings.network, NetworkPolicy::Filtered { .. }) {
        return Ok(hosts);
    }
    let by_model = launch
        .egress
        .into_iter()
        .map(|host| (host, through.to_string()));
    let by_secrets = settings.secrets.iter().flat_map(|(variable, grant)| {
        let by = format!("secret {} ({variable})", grant.secret);
        grant
            .hosts
            .iter()
            .map(move |host| (host.clone(), by.clone()))
    });
    for (host, by) in by_model.chain(by_secrets) {
        let found = RequiredHost { host, by };
        if !hosts.contains(&found) {
            hosts.push(found);
        }
    }
    Ok(hosts)
}

/// What of it is not there: the key's value, the login, the program.
async fn missing(
    app: &App,
    settings: &AgentSettings,
    harness: &str,
    used: &ModelUse<'_>,
) -> Option<String> {
    // Commands and files are not run just to be shown: only the store is asked.
    let value = match used {
        ModelUse::Account { name, account, .. } => accounts::logged_in(app, name, account).await,
        ModelUse::Provider { provider, .. } => match &provider.api_key {
            Some(key @ SecretRef::Secret(_)) => {
                let found = secrets::resolve(app, key).await;
                found.map(|_| ()).map_err(|error| error.0.detail)
            }
            _ => Ok(()),
        },
    };
    if let Err(why) = value {
        return Some(why);
    }
    let descriptor = harnesses::descriptor(harness).ok()?;
    let there = match settings.backend.as_deref().filter(|name| *name != "native") {
        None => harnesses::installed(app, descriptor).map(|_| ()),
        Some(backend) => harnesses::image(app, backend, descriptor).await.map(|_| ()),
    };
    there.err().map(|error| error.0.detail)
}
