//! Rules of contexts (contract D.19): what projects are for, and what may run in them.
//!
//! A guard against the wrong account, not a wall. It is asked when an agent or a project is saved, when a session
//! starts, and by an agent's `problem`.

use super::agent::ModelUse;
use super::agents::row_error;
use super::{accounts, providers};
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::contexts::ContextsError;
use handler_types::agent::{AgentSettings, Through};
use handler_types::context::{ANY, ContextRequest, ContextView, is_context_name, may_use};
use handler_types::{ProblemCode, ProjectId};

/// The title of contract D.19.
pub(super) const NOT_FOR_IT: &str = "not for this project's context";

fn file_error(error: &ContextsError) -> ApiError {
    let code = match error {
        ContextsError::Io { .. } => ProblemCode::BackendFailed,
        ContextsError::Invalid { .. } => ProblemCode::NotConfigured,
    };
    ApiError::new(code, chain(error))
}

fn missing(name: &str) -> ApiError {
    let shown: String = name.chars().take(80).collect();
    let detail = format!("there is no context `{shown}`; `handler context list` shows them");
    ApiError::titled(ProblemCode::NotFound, "context not found", detail)
}

/// All, with what is in them.
///
/// # Errors
/// A file that is wrong, an unreadable folder, the database's.
pub async fn list(app: &App) -> ApiResult<Vec<ContextView>> {
    let known = app.contexts.list().map_err(|e| file_error(&e))?;
    let projects = app.store.projects().all().await.map_err(row_error)?;
    let accounts = accounts::readable(app)?;
    let providers = providers::readable(app)?;
    let of = |name: &str, all: Vec<(&String, &Vec<String>)>| -> Vec<String> {
        all.into_iter()
            .filter(|(_, contexts)| contexts.iter().any(|own| own == name))
            .map(|(own, _)| own.clone())
            .collect()
    };
    Ok(known
        .into_iter()
        .map(|(name, color)| ContextView {
            projects: projects
                .iter()
                .filter(|row| row.settings.context.as_ref() == Some(&name))
                .map(|row| super::projects::name_of(&row.settings))
                .collect(),
            accounts: of(
                &name,
                accounts.iter().map(|(n, a)| (n, &a.contexts)).collect(),
            ),
            providers: of(
                &name,
                providers.iter().map(|(n, p)| (n, &p.contexts)).collect(),
            ),
            name,
            color,
        })
        .collect())
}

async fn one(app: &App, name: &str) -> ApiResult<ContextView> {
    let all = list(app).await?;
    let found = all.into_iter().find(|view| view.name == name);
    found.ok_or_else(|| missing(name))
}

/// Makes one.
///
/// # Errors
/// 400 for a name that cannot be one; 409 when there is one of that name, whatever the case.
pub async fn create(app: &App, request: ContextRequest) -> ApiResult<ContextView> {
    let _turn = app.agents_turn.lock().await;
    if !is_context_name(&request.name) {
        let detail = "name: 1 to 32 letters, digits, spaces, `-` and `_`, no space at its ends, and not `any`";
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    let known = app.contexts.list().map_err(|e| file_error(&e))?;
    let lower = request.name.to_lowercase();
    if let Some((own, _)) = known.iter().find(|(own, _)| own.to_lowercase() == lower) {
        let detail = format!("there is a context `{own}` already");
        return Err(ApiError::titled(
            ProblemCode::Conflict,
            "context exists",
            detail,
        ));
    }
    let put = app.contexts.put(&request.name, request.color);
    put.map_err(|e| file_error(&e))?;
    one(app, &request.name).await
}

/// Gives one another colour.
///
/// # Errors
/// 404; 409 for another name.
pub async fn update(app: &App, name: &str, request: ContextRequest) -> ApiResult<ContextView> {
    let _turn = app.agents_turn.lock().await;
    one(app, name).await?;
    if request.name != name {
        let detail = "make another and put its projects, accounts and providers there";
        let title = "a context's name cannot change";
        return Err(ApiError::titled(ProblemCode::Conflict, title, detail));
    }
    let put = app.contexts.put(name, request.color);
    put.map_err(|e| file_error(&e))?;
    one(app, name).await
}

/// Removes one that nothing is in.
///
/// # Errors
/// 404; 409 while a project, an account or a provider names it.
pub async fn remove(app: &App, name: &str) -> ApiResult<()> {
    let _turn = app.agents_turn.lock().await;
    let view = one(app, name).await?;
    let users: Vec<String> = [
        ("project", view.projects),
        ("account", view.accounts),
        ("provider", view.providers),
    ]
    .into_iter()
    .flat_map(|(what, names)| names.into_iter().map(move |name| format!("{what} {name}")))
    .collect();
    if !users.is_empty() {
        let detail = format!("take it away from: {}", users.join(", "));
        return Err(ApiError::titled(
            ProblemCode::Conflict,
            "context in use",
            detail,
        ));
    }
    app.contexts.remove(name).map_err(|e| file_error(&e))
}

/// Each once, in their order.
pub(super) fn once(contexts: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for name in contexts {
        if !kept.contains(name) {
            kept.push(name.clone());
        }
    }
    kept
}

/// Whether all are contexts, or `any`.
///
/// # Errors
/// 400 for one that is not.
pub(super) fn known<'c>(app: &App, named: impl IntoIterator<Item = &'c String>) -> ApiResult<()> {
    let mut named = named.into_iter().filter(|name| *name != ANY).peekable();
    if named.peek().is_none() {
        return Ok(());
    }
    let known = app.contexts.list().map_err(|e| file_error(&e))?;
    let unknown = named.find(|name| !known.iter().any(|(own, _)| own == *name));
    match unknown {
        None => Ok(()),
        Some(name) => {
            let shown: String = name.chars().take(80).collect();
            let detail =
                format!("there is no context `{shown}`: make it with `handler context add`");
            Err(ApiError::titled(
                ProblemCode::Invalid,
                "unknown context",
                detail,
            ))
        }
    }
}

/// The context of a project; none outside projects.
///
/// # Errors
/// The database's.
pub(super) async fn of_project(
    app: &App,
    project: Option<&ProjectId>,
) -> ApiResult<Option<String>> {
    let Some(id) = project else { return Ok(None) };
    let row = app.store.projects().get(id).await.map_err(row_error)?;
    Ok(row.and_then(|row| row.settings.context))
}

/// Why something made for `contexts` does not run here; none: it does.
fn reason(here: Option<&str>, through: Through<'_>, contexts: &[String]) -> Option<String> {
    if may_use(here, contexts) {
        return None;
    }
    let made = match contexts {
        [] => "made for no context".to_owned(),
        some => format!("made for {}", some.join(", ")),
    };
    let (here, name) = (here.unwrap_or_default(), through.name());
    let noun = match through {
        Through::Account(_) => "account",
        Through::Provider(_) => "provider",
    };
    Some(format!(
        "{noun} `{name}` is {made}, and this project is in the context {here}: choose another, or allow it with `handler {noun} set {name} --context \"{here}\"`"
    ))
}

/// Whether a project with this context runs it.
///
/// # Errors
/// 409 when it does not.
pub(super) fn check(here: Option<&str>, used: &ModelUse<'_>) -> ApiResult<()> {
    let through = match used {
        ModelUse::Account { name, .. } => Through::Account(name),
        ModelUse::Provider { name, .. } => Through::Provider(name),
    };
    match reason(here, through, used.contexts()) {
        None => Ok(()),
        Some(why) => Err(ApiError::titled(ProblemCode::Conflict, NOT_FOR_IT, why)),
    }
}

/// Whether agents may run in a project of this context; what is missing is another matter.
///
/// # Errors
/// 409 with everything that may not.
pub(super) fn fits<'s>(
    app: &App,
    here: Option<&str>,
    agents: impl Iterator<Item = &'s AgentSettings>,
) -> ApiResult<()> {
    let mut reasons: Vec<String> = Vec::new();
    for agent in agents {
        let name = agent.name.as_deref().unwrap_or("an agent");
        for through in agent.models.iter().filter_map(|access| access.through()) {
            let Ok(used) = ModelUse::of(app, through, "") else {
                continue;
            };
            if let Some(why) = reason(here, through, used.contexts()) {
                reasons.push(format!("{name}: {why}"));
            }
        }
    }
    refuse(reasons)
}

fn refuse(reasons: Vec<String>) -> ApiResult<()> {
    if reasons.is_empty() {
        return Ok(());
    }
    let mut error = ApiError::titled(ProblemCode::Conflict, NOT_FOR_IT, reasons.join("; "));
    error.0.reasons = reasons;
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_it_is_made_for_and_what_to_do() {
        let account = Through::Account("perso");
        assert_eq!(reason(None, account, &[]), None);
        assert_eq!(reason(Some("Work"), account, &["any".into()]), None);
        let why = reason(Some("Work"), account, &["Home".into()]).expect("refused");
        for part in [
            "account `perso`",
            "made for Home",
            "context Work",
            "handler account set",
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let why = reason(Some("Work"), Through::Provider("p"), &[]).expect("refused");
        assert!(why.contains("made for no context"), "{why}");
    }

    #[test]
    fn names_are_kept_once() {
        let names = ["b", "a", "b"].map(str::to_owned);
        assert_eq!(once(&names), ["b", "a"]);
    }
}
