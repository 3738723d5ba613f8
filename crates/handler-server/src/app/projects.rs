//! Rules of projects (contract D.8): one per folder, found by the folder somebody stands in.
//!
//! Invariant: a project's folder is a work folder, canonical, when it is saved; its default agent is one of its own.

use super::agents::check::{Problems, is_name, named};
use super::agents::{self, row_error};
use super::caches;
use super::contexts;
use super::sandboxes::work_folder;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_base::clock::{now_ms, rfc3339};
use handler_store::StoreError;
use handler_store::rows::{AgentRow, ProjectRow};
use handler_types::agent::AgentView;
use handler_types::cache::ProjectRef;
use handler_types::context::ANY;
use handler_types::event::ServerEvent;
use handler_types::project::{CreateProject, ProjectSettings, ProjectView};
use handler_types::{ProblemCode, ProjectId};
use std::path::Path;
use std::sync::Arc;

/// Most agents a project is made with.
const MOST_AGENTS: usize = 50;

/// Its name: the one that was given, else its folder's.
pub(super) fn name_of(settings: &ProjectSettings) -> String {
    let own = Path::new(&settings.folder).file_name();
    let own = own.map(|name| name.to_string_lossy().into_owned());
    settings.name.clone().or(own).unwrap_or_default()
}

/// Every project.
pub(super) async fn rows(app: &App) -> ApiResult<Vec<ProjectRow>> {
    app.store.projects().all().await.map_err(row_error)
}

/// A project, named.
pub(super) fn project_ref(row: &ProjectRow) -> ProjectRef {
    ProjectRef {
        id: row.id.clone(),
        name: name_of(&row.settings),
    }
}

/// Projects, last used first. With a folder: only the one that this folder is in, the innermost.
///
/// # Errors
/// The database's.
pub async fn list(app: &App, folder: &str) -> ApiResult<Vec<ProjectView>> {
    let mut rows = app.store.projects().all().await.map_err(row_error)?;
    if !folder.is_empty() {
        // A folder is known under its canonical name, however it was typed.
        let path = Path::new(folder);
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        rows = enclosing(rows, &path).into_iter().collect();
    }
    views(app, &rows).await
}

/// The innermost project around a path. Pure.
fn enclosing(rows: Vec<ProjectRow>, path: &Path) -> Option<ProjectRow> {
    rows.into_iter()
        .filter(|row| path.starts_with(&row.settings.folder))
        .max_by_key(|row| row.settings.folder.len())
}

/// One project: by id, the beginning of one, or its name.
///
/// # Errors
/// 404, 409 when several fit.
pub async fn find(app: &App, text: &str) -> ApiResult<ProjectView> {
    let row = find_row(app, text).await?;
    one(app, row).await
}

pub(super) async fn find_row(app: &App, text: &str) -> ApiResult<ProjectRow> {
    let rows = app.store.projects().all().await.map_err(row_error)?;
    pick(&rows, text).cloned()
}

/// The project that a text means. Pure.
pub(super) fn pick<'r>(rows: &'r [ProjectRow], text: &str) -> ApiResult<&'r ProjectRow> {
    let is_prefix = text.len() > ProjectId::PREFIX.len() && text.starts_with(ProjectId::PREFIX);
    let found: Vec<&ProjectRow> = rows
        .iter()
        .filter(|row| {
            let is_called = name_of(&row.settings).to_lowercase() == text.to_lowercase();
            is_called || (is_prefix && row.id.as_str().starts_with(text))
        })
        .collect();
    let shown: String = text.chars().take(80).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(ApiError::titled(
            ProblemCode::NotFound,
            "project not found",
            format!("there is no project `{shown}`; `handler project list` shows them"),
        )),
        several => {
            let ids: Vec<&str> = several.iter().map(|row| row.id.as_str()).collect();
            let detail = format!("several projects fit `{shown}`: {}", ids.join(", "));
            Err(ApiError::new(ProblemCode::Ambiguous, detail))
        }
    }
}

async fn one(app: &App, row: ProjectRow) -> ApiResult<ProjectView> {
    let mut views = views(app, std::slice::from_ref(&row)).await?;
    views
        .pop()
        .ok_or_else(|| ApiError::new(ProblemCode::Internal, "a project got lost"))
}

async fn views(app: &App, rows: &[ProjectRow]) -> ApiResult<Vec<ProjectView>> {
    let mut all = app.store.agents().all().await.map_err(row_error)?;
    let ids: Vec<&ProjectId> = rows.iter().map(|row| &row.id).collect();
    all.retain(|agent| agent.project.as_ref().is_some_and(|own| ids.contains(&own)));
    let shown = agents::views(app, &all).await?;
    Ok(rows.iter().map(|row| view(app, row, &shown)).collect())
}

fn view(app: &App, row: &ProjectRow, agents: &[AgentView]) -> ProjectView {
    let mut own: Vec<AgentView> = agents
        .iter()
        .filter(|agent| agent.project_id.as_ref() == Some(&row.id))
        .cloned()
        .collect();
    own.sort_by_cached_key(|agent| {
        let name = agent.name.as_deref().unwrap_or_default().to_lowercase();
        (!agent.default, name)
    });
    let settings = row.settings.clone();
    ProjectView {
        id: row.id.clone(),
        name: name_of(&settings),
        default_agent: own.iter().find(|a| a.default).map(|a| a.id.clone()),
        problem: work_folder(app, &settings.folder)
            .err()
            .map(|error| error.0.detail),
        description: settings.description,
        folder: settings.folder,
        caches: settings.caches,
        context: settings.context,
        agents: own,
        created_at: rfc3339(row.created_ms),
        last_used_at: row.used_ms.map(rfc3339),
    }
}

/// Settings as they are kept.
fn checked(app: &App, mut asked: ProjectSettings) -> ApiResult<ProjectSettings> {
    asked.folder = work_folder(app, &asked.folder).map_err(|mut error| {
        "scope not allowed".clone_into(&mut error.0.title);
        error
    })?;
    let mut problems = Problems::default();
    named(
        asked.name.as_deref(),
        asked.description.as_deref(),
        &mut problems,
    );
    if asked.name.is_none() && !is_name(&name_of(&asked)) {
        let text = "name: the folder's name cannot be the project's; give it one of its own";
        problems.add("name required", text);
    }
    problems.none()?;
    contexts::known(app, &asked.context)?;
    if asked.context.as_deref() == Some(ANY) {
        let detail =
            "context: `any` is for accounts and providers; leave it out for a project without one";
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    Ok(asked)
}

/// Makes one with its first agents: all of it or nothing.
///
/// # Errors
/// A folder that is not allowed or is another project's; everything that is wrong with an agent.
pub async fn create(app: &App, request: CreateProject) -> ApiResult<ProjectView> {
    let _turn = app.agents_turn.lock().await;
    let mut settings = checked(
        app,
        ProjectSettings {
            name: request.name,
            description: request.description,
            folder: request.folder,
            default_agent: None,
            caches: request.caches,
            context: request.context,
        },
    )?;
    if request.agents.len() > MOST_AGENTS {
        let detail = format!("agents: at most {MOST_AGENTS} at first");
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    let id = ProjectId::from_random(handler_base::random::bytes());
    let context = settings.context.clone();
    let mut agents: Vec<AgentRow> = Vec::new();
    for (at, asked) in request.agents.into_iter().enumerate() {
        if asked.project_id.is_some() {
            let detail = format!("agents[{at}]: projectId is the new project's; leave it out");
            let title = "a new project's agent";
            return Err(ApiError::titled(ProblemCode::Invalid, title, detail));
        }
        let is_default = asked.default;
        let home = Some((&id, context.as_deref()));
        let mut row = agents::checked(app, asked, home, &format!("agents[{at}]")).await?;
        // Their order is the one they were given in.
        row.created_ms += i64::try_from(at).unwrap_or_default();
        if is_default || settings.default_agent.is_none() {
            settings.default_agent = Some(row.id.clone());
        }
        agents.push(row);
    }
    let now = now_ms();
    let row = ProjectRow {
        id: id.clone(),
        settings,
        created_ms: now,
        updated_ms: now,
        used_ms: None,
    };
    let added = app.store.projects().insert(row, agents).await;
    added.map_err(row_error)?;
    tell(app, &id).await
}

async fn tell(app: &App, id: &ProjectId) -> ApiResult<ProjectView> {
    let project = find(app, id.as_str()).await?;
    app.events.publish(ServerEvent::Project {
        project: Box::new(project.clone()),
    });
    Ok(project)
}

/// Says something else of one, whole. Sessions that run stay where they are.
///
/// # Errors
/// 404; as [`create`]; a default agent that is not its own; 409 for a context that its agents are not made for.
pub async fn update(app: &App, text: &str, asked: ProjectSettings) -> ApiResult<ProjectView> {
    let _turn = app.agents_turn.lock().await;
    let row = find_row(app, text).await?;
    let settings = checked(app, asked)?;
    if let Some(agent) = &settings.default_agent {
        let found = app.store.agents().get(agent).await.map_err(row_error)?;
        if found.and_then(|agent| agent.project).as_ref() != Some(&row.id) {
            let detail = format!("defaultAgent: {agent} is no agent of this project");
            return Err(ApiError::titled(
                ProblemCode::Invalid,
                "unknown agent",
                detail,
            ));
        }
    }
    if settings.context != row.settings.context {
        let all = app.store.agents().all().await.map_err(row_error)?;
        let own = all
            .iter()
            .filter(|agent| agent.project.as_ref() == Some(&row.id));
        let own = own.map(|agent| &agent.settings);
        contexts::fits(app, settings.context.as_deref(), own)?;
    }
    let saved = app.store.projects().update(&row.id, settings).await;
    saved.map_err(|error| match error {
        StoreError::NotFound { .. } => ApiError::new(ProblemCode::NotFound, "it is gone"),
        other => row_error(other),
    })?;
    tell(app, &row.id).await
}

/// Removes one with its agents and its own caches: their sessions are stopped. The folder and the sessions' own folders
/// stay.
///
/// # Errors
/// 404; a session that could not be stopped.
pub async fn remove(app: &Arc<App>, text: &str) -> ApiResult<()> {
    let _turn = app.agents_turn.lock().await;
    let row = find_row(app, text).await?;
    let mut agents = app.store.agents().all().await.map_err(row_error)?;
    agents.retain(|agent| agent.project.as_ref() == Some(&row.id));
    app.store
        .projects()
        .delete(&row.id)
        .await
        .map_err(row_error)?;
    app.events.publish(ServerEvent::ProjectRemoved {
        id: row.id.to_string(),
    });
    let gone: Vec<_> = agents.into_iter().map(|agent| agent.id).collect();
    let cleared = agents::clear(app, &gone).await;
    caches::remove_own(app, &row.id).await;
    cleared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(n: u8, folder: &str, name: Option<&str>) -> ProjectRow {
        ProjectRow {
            id: ProjectId::from_random([n; 8]),
            settings: ProjectSettings {
                folder: folder.to_owned(),
                name: name.map(str::to_owned),
                ..ProjectSettings::default()
            },
            created_ms: 0,
            updated_ms: 0,
            used_ms: None,
        }
    }

    #[test]
    fn the_innermost_project_around_a_folder_counts() {
        let rows = || {
            vec![
                project(1, "/w/app", None),
                project(2, "/w/app/web", None),
                project(3, "/w/ap", None),
            ]
        };
        for (path, number) in [
            ("/w/app", Some(1)),
            ("/w/app/src", Some(1)),
            ("/w/app/web/x", Some(2)),
            ("/w/app/website", Some(1)),
            ("/w/ap", Some(3)),
            ("/w/a", None),
            ("/w", None),
        ] {
            let found = enclosing(rows(), Path::new(path)).map(|row| row.id);
            let wanted = number.map(|n| ProjectId::from_random([n; 8]));
            assert_eq!(found, wanted, "{path}");
        }
    }

    #[test]
    fn a_project_is_found_by_id_and_name_and_is_called_like_its_folder() {
        let rows = [
            project(1, "/w/app", None),
            project(2, "/w/two", Some("App two")),
            project(0x11, "/w/three", Some("APP")),
        ];
        assert_eq!(pick(&rows, "app TWO").expect("found").id, rows[1].id);
        assert_eq!(pick(&rows, "p_02").expect("found").id, rows[1].id);
        assert_eq!(
            pick(&rows, "app").expect_err("two").0.code,
            ProblemCode::Ambiguous
        );
        for nothing in ["", "p_", "two", "p_ff"] {
            let error = pick(&rows, nothing).expect_err(nothing).0;
            assert_eq!(error.code, ProblemCode::NotFound, "{nothing}");
        }
    }
}
