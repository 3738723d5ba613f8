//! Logins: credential files of agent programs. They go in and never come out of the API; sandboxes get copies
//! with stand-ins, and what a server renews is kept here before a sandbox sees stand-ins for it.

mod follow;
mod grant;
mod renew;

pub use follow::{follow, sweep};
pub(crate) use grant::{grant, grant_account};

use super::secrets::store_error;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_store::logins::{Login, LoginStore};
use handler_types::ProblemCode;
use handler_types::api::{LoginRequest, LoginView, SecretView};
use handler_types::login::LoginFile;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most hosts of one.
const MOST_HOSTS: usize = 64;

/// The logins and the grants of sandboxes that are being made: no row speaks of these yet.
#[derive(Debug)]
pub struct Logins {
    pub(crate) store: LoginStore,
    making: Mutex<BTreeSet<String>>,
}

impl Logins {
    /// Those in a store.
    #[must_use]
    pub fn new(store: LoginStore) -> Self {
        Self {
            store,
            making: Mutex::default(),
        }
    }

    fn making(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All, without their files.
///
/// # Errors
/// An unreadable store.
pub async fn list(app: &App) -> ApiResult<Vec<LoginView>> {
    let store = &app.logins.store;
    let mut views = Vec::new();
    for entry in store.list().await.map_err(|e| store_error(&e))? {
        // Accounts' are shown with these.
        if entry.path.contains('/') {
            continue;
        }
        let login = store.get(&entry.path).await.map_err(|e| store_error(&e))?;
        // One removed meanwhile is left out.
        views.extend(login.map(|login| view(entry, &login)));
    }
    Ok(views)
}

fn view(entry: SecretView, login: &Login) -> LoginView {
    LoginView {
        name: entry.path,
        hosts: login.hosts.clone(),
        tokens: LoginFile::parse(&login.file)
            .map(|file| file.tokens().into_iter().map(|token| token.field).collect())
            .unwrap_or_default(),
        renewed_at: login.renewed_ms.map(handler_base::clock::rfc3339),
        created_at: entry.created_at,
        updated_at: entry.updated_at,
    }
}

/// Adds or replaces one; sandboxes that have it use the new tokens from now on.
///
/// # Errors
/// A bad name, a file that is no login, an unusable store.
pub async fn put(app: &App, name: &str, request: LoginRequest) -> ApiResult<LoginView> {
    check_name(name)?;
    if request.hosts.len() > MOST_HOSTS {
        return Err(invalid(format!("hosts: at most {MOST_HOSTS}")));
    }
    let LoginRequest { file, hosts } = request;
    keep(app, name, file, hosts).await?;
    let all = list(app).await?;
    let made = all.into_iter().find(|view| view.name == name);
    made.ok_or_else(|| missing(name))
}

/// Keeps a file under a name of the store; sandboxes that have the login use its tokens from now on.
///
/// # Errors
/// A file that is no login, an unusable store.
pub(crate) async fn keep(
    app: &App,
    name: &str,
    file: String,
    hosts: Vec<handler_types::network::AllowEntry>,
) -> ApiResult<()> {
    LoginFile::parse(&file).map_err(|e| invalid(format!("file: {e}")))?;
    let work = |known: Option<Login>| {
        let mut login = known.unwrap_or_else(|| Login {
            file: String::new().into(),
            hosts: Vec::new(),
            given_ms: None,
            renewed_ms: None,
            grants: std::collections::BTreeMap::new(),
        });
        login.hosts = hosts;
        login.given_ms = Some(handler_base::clock::now_ms());
        renew::replace(&mut login, file, renew::random)?;
        Ok::<_, renew::NoStandIn>((login, ()))
    };
    let changed = app.logins.store.change(name, work).await;
    changed
        .map_err(|e| store_error(&e))?
        .map_err(|e| invalid(e.to_string()))?;
    for (id, sandbox) in app.engine.with_login(name) {
        if let Err(error) = app.engine.renew_filter(&id).await {
            tracing::warn!(sandbox, error = %error, "a sandbox has not got its renewed login yet");
        }
    }
    Ok(())
}

/// Removes one that no sandbox has.
///
/// # Errors
/// 404 when there is none; 409 while a sandbox has it.
pub async fn remove(app: &App, name: &str) -> ApiResult<()> {
    check_name(name)?;
    let users: Vec<String> = app
        .engine
        .with_login(name)
        .into_iter()
        .map(|(_, n)| n)
        .collect();
    if !users.is_empty() {
        let text = format!(
            "login `{name}` is in {}: remove these sandboxes first",
            users.join(", ")
        );
        return Err(ApiError::new(ProblemCode::Conflict, text));
    }
    let removed = app.logins.store.remove(name).await;
    match removed.map_err(|e| store_error(&e))? {
        true => Ok(()),
        false => Err(missing(name)),
    }
}

/// The tokens in a login's file, for taking them out of texts.
pub(crate) fn tokens_of(file: &str) -> Vec<String> {
    LoginFile::parse(file)
        .map(|file| {
            file.tokens()
                .iter()
                .map(|token| token.value.to_string())
                .collect()
        })
        .unwrap_or_default()
}

fn invalid(text: String) -> ApiError {
    ApiError::new(ProblemCode::Invalid, text)
}

fn missing(name: &str) -> ApiError {
    ApiError::new(
        ProblemCode::NotFound,
        format!(
            "there is no login `{name}`; `handler login list` shows them, `handler login add {name} --file FILE` adds it"
        ),
    )
}

/// `[a-z0-9][a-z0-9_.-]{0,62}`.
fn check_name(name: &str) -> ApiResult<()> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut bytes = name.bytes();
    let fits = name.len() <= 63
        && bytes.next().is_some_and(is_plain)
        && bytes.all(|b| is_plain(b) || matches!(b, b'_' | b'.' | b'-'));
    match fits {
        true => Ok(()),
        false => Err(invalid(
            "a login's name has up to 63 of a-z, 0-9, `_`, `.`, `-`, the first a letter or digit"
                .to_owned(),
        )),
    }
}
