//! Rules of accounts (contract D.9): a subscription that one harness logs in with. A login goes in and never comes
//! out: a token to the secret store, a credential file to the logins.
//!
//! Invariant: an account is in use while an agent lists it or a session that is kept was started on it; it then keeps
//! its name.

mod login;
mod view;

pub use login::{file_tokens, log_in, log_out, logged_in, stored, token, token_path};
pub use view::list;

use super::agents::row_error;
use super::contexts;
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::accounts::AccountFileError;
use handler_types::ProblemCode;
use handler_types::account::{ACCOUNT_VERSION, Account, AccountRequest, AccountView};
use handler_types::harness::HarnessLogin;

fn file_error(error: &AccountFileError) -> ApiError {
    let code = match error {
        AccountFileError::Io { .. } => ProblemCode::BackendFailed,
        _ => ProblemCode::Invalid,
    };
    ApiError::new(code, chain(error))
}

fn conflict(title: &str, detail: impl Into<String>) -> ApiError {
    ApiError::titled(ProblemCode::Conflict, title, detail)
}

fn missing(name: &str) -> ApiError {
    let shown: String = name.chars().take(80).collect();
    let detail = format!("there is no account `{shown}`; `handler account list` shows them");
    ApiError::titled(ProblemCode::NotFound, "account not found", detail)
}

/// The login of its harness; what is wrong with an account whose file has the right form (contract E1).
pub(crate) fn login_of(account: &Account) -> Result<&'static HarnessLogin, String> {
    let known = handler_harness::require(&account.harness).map_err(|e| e.to_string())?;
    let login = known.login.as_ref().ok_or_else(|| {
        let product = &known.product;
        format!("{product} has no login: it runs on providers only (`handler provider add`)")
    })?;
    if let Some(plan) = &account.plan
        && !login.plans.contains(plan)
    {
        let plans = match login.plans.is_empty() {
            true => "its accounts have no plans; leave it out".to_owned(),
            false => format!("there are: {}", login.plans.join(", ")),
        };
        return Err(format!("plan: {plans}"));
    }
    if account.connectors && known.account_connectors.is_empty() {
        let product = &known.product;
        return Err(format!(
            "connectors: accounts of {product} have none; leave it out"
        ));
    }
    if account.token.is_some() && login.token.is_none() {
        let product = &known.product;
        return Err(format!(
            "token: {product} logs in with a file; take the token out and run `handler account login`"
        ));
    }
    Ok(login)
}

/// One that can be used, as far as its file says.
///
/// # Errors
/// 424 when it is missing or wrong, with what to do.
pub fn usable(app: &App, name: &str) -> ApiResult<Account> {
    let wrong = |text: String| ApiError::new(ProblemCode::NotConfigured, text);
    match app.accounts.get(name) {
        Ok(Some(account)) => match login_of(&account) {
            Ok(_) => Ok(account),
            Err(why) => Err(wrong(format!("account `{name}` cannot be used: {why}"))),
        },
        Ok(None) => Err(wrong(format!(
            "there is no account `{name}`; make it with `handler account add`"
        ))),
        Err(error) => Err(wrong(chain(&error))),
    }
}

/// All whose files can be read.
///
/// # Errors
/// An unreadable folder.
pub fn readable(app: &App) -> ApiResult<Vec<(String, Account)>> {
    let entries = app.accounts.list().map_err(|e| file_error(&e))?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| entry.account.ok().map(|account| (entry.name, account)))
        .collect())
}

/// Its file as it is now.
fn find(app: &App, name: &str) -> ApiResult<Account> {
    match app.accounts.get(name) {
        Ok(Some(account)) => Ok(account),
        Ok(None) | Err(AccountFileError::InvalidName { .. }) => Err(missing(name)),
        Err(AccountFileError::Invalid { problems }) => Err(conflict(
            "invalid account: fix its file",
            problems.join("; "),
        )),
        Err(error) => Err(file_error(&error)),
    }
}

fn asked(request: &AccountRequest, before: Option<&Account>) -> Account {
    Account {
        api_version: ACCOUNT_VERSION.to_owned(),
        harness: request.harness.clone(),
        description: request.description.clone().filter(|text| !text.is_empty()),
        plan: request.plan.clone(),
        connectors: request.connectors,
        token: before.and_then(|account| account.token.clone()),
        contexts: contexts::once(&request.contexts),
    }
}

/// State folders are named after either, and so are commands.
fn name_is_free(app: &App, name: &str, title: &str) -> ApiResult<()> {
    let taken = |what: &str| {
        let detail = format!("there is {what} `{name}` already: choose another name");
        conflict(title, detail)
    };
    match app.accounts.get(name) {
        Ok(None) => {}
        Err(AccountFileError::InvalidName { .. }) => {
            let text = AccountFileError::InvalidName {
                name: name.chars().take(80).collect(),
            };
            return Err(conflict(title, text.to_string()));
        }
        _ => return Err(taken("an account")),
    }
    match app.providers.get(name) {
        Ok(None) => Ok(()),
        _ => Err(taken("a provider")),
    }
}

/// Makes one.
///
/// # Errors
/// 409 for a name that is taken or anything its harness does not have; 400 for an unknown context.
pub async fn create(app: &App, request: AccountRequest) -> ApiResult<AccountView> {
    const TITLE: &str = "cannot create the account";
    let _turn = app.agents_turn.lock().await;
    name_is_free(app, &request.name, TITLE)?;
    let account = asked(&request, None);
    login_of(&account).map_err(|why| conflict(TITLE, why))?;
    contexts::known(app, &account.contexts)?;
    let written = app.accounts.put(&request.name, &account);
    written.map_err(|error| conflict(TITLE, chain(&error)))?;
    view::one(app, &request.name).await
}

/// Says something else of one, whole; its login stays.
///
/// # Errors
/// 404; 409 for another harness, another name while it is in use, a file that is wrong; 400 for an unknown context.
pub async fn update(app: &App, name: &str, request: AccountRequest) -> ApiResult<AccountView> {
    const TITLE: &str = "cannot change the account";
    let _turn = app.agents_turn.lock().await;
    let before = find(app, name)?;
    if request.harness != before.harness {
        let detail = format!(
            "it is one of {}: make another account for {}",
            before.harness, request.harness
        );
        return Err(conflict("an account's harness cannot change", detail));
    }
    let mut account = asked(&request, Some(&before));
    login_of(&account).map_err(|why| conflict(TITLE, why))?;
    contexts::known(app, &account.contexts)?;
    if request.name != name {
        name_is_free(app, &request.name, TITLE)?;
        not_in_use(app, name).await?;
        login::carry_over(app, name, &request.name, &mut account).await?;
        let renamed = app.accounts.rename(name, &request.name);
        renamed.map_err(|error| conflict(TITLE, chain(&error)))?;
    }
    let written = app.accounts.put(&request.name, &account);
    written.map_err(|error| conflict(TITLE, chain(&error)))?;
    if request.name != name {
        login::forget(app, name).await?;
    }
    view::one(app, &request.name).await
}

async fn not_in_use(app: &App, name: &str) -> ApiResult<()> {
    let agents = app.store.agents().all().await.map_err(row_error)?;
    let lists = |agent: &&handler_store::rows::AgentRow| {
        let mut models = agent.settings.models.iter();
        models.any(|access| access.account.as_deref() == Some(name))
    };
    let agents = agents.iter().filter(lists).count();
    let used = app.store.sessions().on_accounts().await;
    let used = used.map_err(crate::app::sessions::store_error)?;
    let sessions = used.get(name).map_or(0, |(count, _)| *count);
    if agents == 0 && sessions == 0 {
        return Ok(());
    }
    let detail = format!("{agents} agents list it and {sessions} sessions are on it");
    Err(conflict("account in use: cannot rename it", detail))
}

/// Removes one with its login. Agents that list it say so as their problem.
///
/// # Errors
/// 404; 409 while a sandbox has its login's file.
pub async fn remove(app: &App, name: &str) -> ApiResult<()> {
    let _turn = app.agents_turn.lock().await;
    login::not_in_a_sandbox(app, name)?;
    match app.accounts.remove(name) {
        Ok(true) => login::forget(app, name).await,
        Ok(false) | Err(AccountFileError::InvalidName { .. }) => Err(missing(name)),
        Err(error) => Err(file_error(&error)),
    }
}
