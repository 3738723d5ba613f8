//! An account's login: given, checked, taken away, and looked up for a launch. Its values are in no answer and no
//! error.

use super::{conflict, find, login_of, missing};
use crate::app::logins;
use crate::app::sandboxes::phantom_of;
use crate::app::secrets::{self, store_error};
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_types::account::{Account, AccountLoginRequest, AccountView};
use handler_types::harness::{HarnessDescriptor, HarnessLogin};
use handler_types::login::LoginFile;
use handler_types::provider::SecretRef;
use handler_types::{ProblemCode, SecretValue};

/// Longest token, bytes.
const MOST: usize = 16 * 1024;

/// Where an account's pasted token is kept.
#[must_use]
pub fn token_path(name: &str) -> String {
    format!("accounts/{name}/token")
}

/// The name of an account's credential file among the logins; no login of a person's own has a `/`.
#[must_use]
pub fn stored(name: &str) -> String {
    format!("accounts/{name}")
}

fn refused(detail: impl Into<String>) -> ApiError {
    ApiError::new(ProblemCode::LoginRefused, detail)
}

/// Gives an account its login.
///
/// # Errors
/// 404; 409 for a file that is wrong; 422 for what is no login of its harness.
pub async fn log_in(app: &App, name: &str, request: AccountLoginRequest) -> ApiResult<AccountView> {
    let _turn = app.agents_turn.lock().await;
    let mut account = find(app, name)?;
    let login = login_of(&account).map_err(|why| conflict("invalid account: fix its file", why))?;
    let AccountLoginRequest {
        token,
        token_ref,
        file,
    } = request;
    match (token, token_ref, file) {
        (Some(token), None, None) => {
            is_token_login(login, name)?;
            let token = SecretValue::new(token.trim().to_owned());
            check_token(login, &token).map_err(refused)?;
            let path = token_path(name);
            let note = Some(format!("token of the account {name}"));
            let kept = app.secrets.set(&path, token, note).await;
            kept.map_err(|e| store_error(&e))?;
            account.token = Some(SecretRef::Secret(path));
            put(app, name, &account)?;
        }
        (None, Some(reference), None) => {
            is_token_login(login, name)?;
            if matches!(reference, SecretRef::Secret(_)) {
                let detail =
                    "tokenRef: say env, file or command; a token is stored by giving it as token";
                return Err(refused(detail));
            }
            account.token = Some(reference);
            put(app, name, &account)?;
            // What was pasted before is nobody's any more.
            let gone = app.secrets.remove(&token_path(name)).await;
            gone.map_err(|e| store_error(&e))?;
        }
        (None, None, Some(file)) => {
            if login.file.is_none() {
                let command = login.token_command.as_deref().unwrap_or_default();
                let detail = format!(
                    "it logs in with a token: run `{command}` and give what it prints with `handler account token {name}`"
                );
                return Err(refused(detail));
            }
            LoginFile::parse(&file).map_err(|e| refused(e.to_string()))?;
            let kept = logins::keep(app, &stored(name), file, login.hosts.clone()).await;
            kept.map_err(|mut error| {
                if error.0.code == ProblemCode::Invalid {
                    error = refused(error.0.detail);
                }
                error
            })?;
        }
        _ => return Err(refused("give exactly one of token, tokenRef and file")),
    }
    super::view::one(app, name).await
}

fn put(app: &App, name: &str, account: &Account) -> ApiResult<()> {
    let written = app.accounts.put(name, account);
    written.map_err(|error| refused(chain(&error)))
}

fn is_token_login(login: &HarnessLogin, name: &str) -> ApiResult<()> {
    match login.token {
        Some(_) => Ok(()),
        None => Err(refused(format!(
            "it logs in with a file: run `handler account login {name}`, or give the file with `handler account import {name} FILE`"
        ))),
    }
}

/// Whether it can be a token of this login; the reason never shows it.
fn check_token(login: &HarnessLogin, token: &SecretValue) -> Result<(), String> {
    let text = token.expose();
    let prefix = login.token_prefix.as_deref().unwrap_or_default();
    if !text.starts_with(prefix) {
        let command = login.token_command.as_deref().unwrap_or_default();
        return Err(format!(
            "the token does not start with `{prefix}`: give what `{command}` prints at its end, not a code of its page"
        ));
    }
    if text.len() > MOST {
        return Err("a token has at most 16 KiB".to_owned());
    }
    // Its stand-in must keep the prefix: programs look for it.
    let stand_in = phantom_of(text, "token").map_err(|e| e.0.detail)?;
    match stand_in.starts_with(prefix) {
        true => Ok(()),
        false => Err("the token is too short to be one: it must be whole".to_owned()),
    }
}

/// Takes the login away; the account stays.
///
/// # Errors
/// 404; 409 while a sandbox has its file.
pub async fn log_out(app: &App, name: &str) -> ApiResult<AccountView> {
    let _turn = app.agents_turn.lock().await;
    let mut account = find(app, name)?;
    not_in_a_sandbox(app, name)?;
    if account.token.take().is_some() {
        put(app, name, &account)?;
    }
    forget(app, name).await?;
    super::view::one(app, name).await
}

/// 409 while a sandbox has its file: its tokens could not be renewed there any more.
pub(super) fn not_in_a_sandbox(app: &App, name: &str) -> ApiResult<()> {
    let users = app.engine.with_login(&stored(name));
    if users.is_empty() {
        return Ok(());
    }
    let users: Vec<String> = users.into_iter().map(|(_, name)| name).collect();
    let detail = format!(
        "its login is in {}: stop their sessions first",
        users.join(", ")
    );
    Err(conflict("cannot change the account", detail))
}

/// Removes what is kept of its login.
pub(super) async fn forget(app: &App, name: &str) -> ApiResult<()> {
    let token = app.secrets.remove(&token_path(name)).await;
    token.map_err(|e| store_error(&e))?;
    let file = app.logins.store.remove(&stored(name)).await;
    file.map(|_| ()).map_err(|e| store_error(&e))
}

/// Keeps its login under another name too; what the account says of it follows.
pub(super) async fn carry_over(
    app: &App,
    from: &str,
    to: &str,
    account: &mut Account,
) -> ApiResult<()> {
    let own = SecretRef::Secret(token_path(from));
    if account.token.as_ref() == Some(&own) {
        if let Ok(value) = secrets::resolve(app, &own).await {
            let note = Some(format!("token of the account {to}"));
            let kept = app.secrets.set(&token_path(to), value, note).await;
            kept.map_err(|e| store_error(&e))?;
        }
        account.token = Some(SecretRef::Secret(token_path(to)));
    }
    let login = app.logins.store.get(&stored(from)).await;
    if let Some(login) = login.map_err(|e| store_error(&e))? {
        let work = |_| Ok::<_, std::convert::Infallible>((login, ()));
        let kept = app.logins.store.change(&stored(to), work).await;
        kept.map_err(|e| store_error(&e))?.ok();
    }
    Ok(())
}

/// Whether it is logged in, as far as that is told without running or reading anything of the person's; the reason
/// says what to do.
///
/// # Errors
/// The reason.
pub async fn logged_in(app: &App, name: &str, account: &Account) -> Result<(), String> {
    let login = login_of(account)?;
    if login.token.is_none() {
        return match app.logins.store.get(&stored(name)).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(format!(
                "account `{name}` is not logged in: run `handler account login {name}`"
            )),
            Err(error) => Err(chain(&error)),
        };
    }
    let command = login.token_command.as_deref().unwrap_or_default();
    let say = format!(
        "account `{name}` is not logged in: run `{command}` and give what it prints with `handler account token {name}`"
    );
    match &account.token {
        None => Err(say),
        Some(own @ SecretRef::Secret(_)) => {
            let found = secrets::resolve(app, own).await;
            found.map(|_| ()).map_err(|_| say)
        }
        Some(_) => Ok(()),
    }
}

/// Its token, for a launch, and where it is kept.
///
/// # Errors
/// 424 when it is not logged in, or its token cannot be read or is none of its harness.
pub async fn token(
    app: &App,
    name: &str,
    account: &Account,
    descriptor: &HarnessDescriptor,
) -> ApiResult<(SecretRef, SecretValue)> {
    let wrong = |text: String| ApiError::new(ProblemCode::NotConfigured, text);
    logged_in(app, name, account).await.map_err(wrong)?;
    let (Some(reference), Some(login)) = (&account.token, &descriptor.login) else {
        return Err(missing(name));
    };
    let value = secrets::resolve(app, reference).await?;
    let checked = check_token(login, &value);
    checked.map_err(|why| wrong(format!("account `{name}`: {why}")))?;
    Ok((reference.clone(), value))
}

/// The tokens in its file, to be taken out of texts.
///
/// # Errors
/// 424 when it is not logged in.
pub async fn file_tokens(app: &App, name: &str) -> ApiResult<Vec<SecretValue>> {
    let found = app.logins.store.get(&stored(name)).await;
    let login = found.map_err(|e| store_error(&e))?.ok_or_else(|| {
        let text = format!("account `{name}` is not logged in: run `handler account login {name}`");
        ApiError::new(ProblemCode::NotConfigured, text)
    })?;
    let tokens = logins::tokens_of(&login.file);
    Ok(tokens.into_iter().map(SecretValue::new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_token_of_its_vendor_is_taken_and_no_reason_shows_it() {
        let login = handler_harness::descriptor("claude-code")
            .and_then(|known| known.login.as_ref())
            .expect("a token login");
        let check = |text: &str| check_token(login, &SecretValue::new(text.to_owned()));
        let good = format!("sk-ant-oat01-{}", "aB3-".repeat(20));
        assert_eq!(check(&good), Ok(()));
        for (bad, named) in [
            ("code-from-the-page", "does not start with `sk-ant-oat01-`"),
            ("", "does not start"),
            ("sk-ant-oat01-short", "too short"),
            (
                "sk-ant-oat01-with a space in it, and long enough",
                "printable",
            ),
            (&format!("{good}{}", "x".repeat(MOST)), "16 KiB"),
        ] {
            let why = check(bad).expect_err(bad);
            assert!(why.contains(named), "{bad}: {why}");
            assert!(bad.is_empty() || !why.contains(bad), "{why}");
        }
    }
}
