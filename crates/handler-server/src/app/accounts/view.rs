//! Accounts as they are now: logged in or not, who uses them.

use super::{file_error, login, login_of, missing, stored, token_path};
use crate::app::agents::row_error;
use crate::app::secrets::store_error;
use crate::app::sessions;
use crate::http::problem::ApiResult;
use crate::state::App;
use handler_base::clock::rfc3339;
use handler_store::accounts::AccountEntry;
use handler_store::rows::AgentRow;
use handler_types::AgentId;
use handler_types::account::{Account, AccountStatus, AccountView, LoginKind};
use handler_types::harness::HarnessLogin;
use handler_types::provider::SecretRef;
use std::collections::BTreeMap;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// What all views are made of, read once.
struct Facts {
    agents: Vec<AgentRow>,
    sessions: BTreeMap<String, (u64, i64)>,
    /// Path of a secret → when its value was given, RFC 3339.
    given: BTreeMap<String, String>,
}

impl Facts {
    async fn read(app: &App) -> ApiResult<Self> {
        let secrets = app.secrets.list().await.map_err(|e| store_error(&e))?;
        let secrets = secrets.into_iter().map(|one| (one.path, one.updated_at));
        let used = app.store.sessions().on_accounts().await;
        Ok(Self {
            agents: app.store.agents().all().await.map_err(row_error)?,
            sessions: used.map_err(sessions::store_error)?,
            given: secrets.collect(),
        })
    }

    fn agents_on(&self, name: &str) -> Vec<AgentId> {
        let lists = |agent: &&AgentRow| {
            let mut models = agent.settings.models.iter();
            models.any(|access| access.account.as_deref() == Some(name))
        };
        let found = self.agents.iter().filter(lists);
        found.map(|agent| agent.id.clone()).collect()
    }
}

/// All, broken files included.
///
/// # Errors
/// An unreadable folder or store.
pub async fn list(app: &App) -> ApiResult<Vec<AccountView>> {
    let entries = app.accounts.list().map_err(|e| file_error(&e))?;
    let facts = Facts::read(app).await?;
    let mut views = Vec::with_capacity(entries.len());
    for entry in entries {
        views.push(view(app, entry, &facts).await?);
    }
    Ok(views)
}

pub(super) async fn one(app: &App, name: &str) -> ApiResult<AccountView> {
    let all = list(app).await?;
    let found = all.into_iter().find(|view| view.name == name);
    found.ok_or_else(|| missing(name))
}

async fn view(app: &App, entry: AccountEntry, facts: &Facts) -> ApiResult<AccountView> {
    let AccountEntry { name, account } = entry;
    let (sessions, last) = facts.sessions.get(&name).copied().unwrap_or_default();
    let mut view = AccountView {
        harness: String::new(),
        description: None,
        plan: None,
        connectors: false,
        contexts: Vec::new(),
        login: None,
        token: None,
        logged_in_at: None,
        expires_at: None,
        hosts: Vec::new(),
        status: AccountStatus::Invalid,
        problems: Vec::new(),
        agents: facts.agents_on(&name),
        sessions,
        last_used_at: (sessions > 0).then(|| rfc3339(last)),
        name,
    };
    let account = match account {
        Ok(account) => account,
        Err(problems) => {
            view.problems = problems;
            return Ok(view);
        }
    };
    match login_of(&account) {
        Ok(login) => logged(app, &mut view, &account, login, facts).await?,
        Err(why) => view.problems.push(why),
    }
    view.harness = account.harness;
    view.description = account.description;
    view.plan = account.plan;
    view.connectors = account.connectors;
    view.contexts = account.contexts;
    view.token = account.token.map(|token| token.source().to_owned());
    Ok(view)
}

/// What is known of its login.
async fn logged(
    app: &App,
    view: &mut AccountView,
    account: &Account,
    login: &HarnessLogin,
    facts: &Facts,
) -> ApiResult<()> {
    view.hosts.clone_from(&login.hosts);
    view.login = Some(match login.token {
        Some(_) => LoginKind::Token,
        None => LoginKind::File,
    });
    view.status = match login::logged_in(app, &view.name, account).await {
        Ok(()) => AccountStatus::Ready,
        Err(why) => {
            view.problems.push(why);
            AccountStatus::Incomplete
        }
    };
    if login.token.is_none() {
        let kept = app.logins.store.get(&stored(&view.name)).await;
        let kept = kept.map_err(|e| store_error(&e))?;
        view.logged_in_at = kept.and_then(|login| login.given_ms).map(rfc3339);
        return Ok(());
    }
    let path = token_path(&view.name);
    if account.token == Some(SecretRef::Secret(path.clone())) {
        view.logged_in_at = facts.given.get(&path).cloned();
        let given = view.logged_in_at.as_deref();
        let given = given.and_then(handler_base::clock::parse_rfc3339);
        let days = login.token_lifetime_days.map(i64::from);
        view.expires_at = given
            .zip(days)
            .map(|(given, days)| rfc3339(given + days * DAY_MS));
    }
    Ok(())
}
