//! Logins for a sandbox that is being made: copies with stand-ins in place of tokens.
//!
//! Invariant: what stands for a token is sealed before the sandbox exists, and forgotten when it does not come to be.

use super::renew::{NoStandIn, random, stand_in};
use super::{invalid, missing};
use crate::app::agent::LoginUse;
use crate::app::quick_files::{Load, target};
use crate::app::secrets::store_error;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_store::logins::{Login, StandIn};
use handler_types::ProblemCode;
use handler_types::login::LoginFile;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{LoginBinding, LoginGrant, SandboxSpec};
use std::collections::BTreeMap;

/// Most logins of one sandbox.
const MOST_LOGINS: usize = 4;
/// Most sandboxes that have one login.
const MOST_SANDBOXES: usize = 100;
/// Permissions of the file inside.
const MODE: u32 = 0o600;

/// What a sandbox gets.
#[derive(Default)]
pub(crate) struct Granted(Vec<One>);

struct One {
    binding: LoginBinding,
    /// The file as the sandbox gets it; no token is in it.
    file: String,
    /// Whether its stand-ins are bound: not where nothing can be reached.
    is_bound: bool,
}

/// Makes the copy of an account's login for the sandbox of a session.
///
/// # Errors
/// As [`grant`].
pub(crate) async fn grant_account(
    app: &App,
    used: &LoginUse,
    network: &NetworkPolicy,
) -> ApiResult<Granted> {
    let wanted = LoginGrant {
        login: used.login.clone(),
        hosts: used.hosts.clone(),
    };
    let one = grant_one(app, &used.target, &wanted, network.needs_egress()).await?;
    Ok(Granted(vec![one]))
}

/// Makes copies of logins for a sandbox.
///
/// # Errors
/// A bad path, an unknown login, no hosts, too many.
pub(crate) async fn grant(
    app: &App,
    asked: &BTreeMap<String, LoginGrant>,
    network: &NetworkPolicy,
) -> ApiResult<Granted> {
    if asked.len() > MOST_LOGINS {
        return Err(invalid(format!(
            "logins: at most {MOST_LOGINS} for a sandbox"
        )));
    }
    let mut granted = Granted::default();
    for (path, wanted) in asked {
        let made = match super::check_name(&wanted.login) {
            Ok(()) => grant_one(app, path, wanted, network.needs_egress()).await,
            Err(error) => Err(error),
        };
        match made {
            Ok(one) => granted.0.push(one),
            Err(error) => {
                granted.end(app, false).await;
                return Err(error);
            }
        }
    }
    Ok(granted)
}

async fn grant_one(app: &App, path: &str, wanted: &LoginGrant, is_bound: bool) -> ApiResult<One> {
    let (target, name) = (target(path)?, wanted.login.as_str());
    let grant = handler_base::random::hex(16);
    app.logins.making().insert(grant.clone());
    let work = |known: Option<Login>| {
        let mut login = known.ok_or_else(|| missing(name))?;
        let hosts = match wanted.hosts.is_empty() {
            true => login.hosts.clone(),
            false => wanted.hosts.clone(),
        };
        check(&login, &hosts, name)?;
        let (file, known) = copy(&login.file).map_err(|e| invalid(e.to_string()))?;
        if is_bound {
            login.grants.insert(grant.clone(), known);
        }
        Ok::<_, ApiError>((login, (file, hosts)))
    };
    let changed = app.logins.store.change(name, work).await;
    let changed = changed.map_err(|e| store_error(&e)).and_then(|inner| inner);
    let (file, hosts) = changed.inspect_err(|_| {
        app.logins.making().remove(&grant);
    })?;
    let binding = LoginBinding {
        login: name.to_owned(),
        grant,
        target,
        hosts,
    };
    Ok(One {
        binding,
        file,
        is_bound,
    })
}

fn check(login: &Login, hosts: &[handler_types::network::AllowEntry], name: &str) -> ApiResult<()> {
    if hosts.is_empty() {
        return Err(invalid(format!(
            "login `{name}`: name at least one host its tokens are given to, here or with `handler login add {name} --host HOST:PORT`"
        )));
    }
    if login.grants.len() >= MOST_SANDBOXES {
        let text =
            format!("login `{name}` is in {MOST_SANDBOXES} sandboxes already: remove one first");
        return Err(ApiError::new(ProblemCode::Conflict, text));
    }
    Ok(())
}

/// A file with stand-ins in place of its tokens, and these.
fn copy(file: &str) -> Result<(String, Vec<StandIn>), NoStandIn> {
    let Ok(mut copy) = LoginFile::parse(file) else {
        // It was checked when it came.
        return Ok((String::new(), Vec::new()));
    };
    let mut known: Vec<StandIn> = Vec::new();
    for token in copy.tokens() {
        let one = stand_in(&token.field, &token.value, random)?;
        copy.set(&token.field, &one.phantom);
        known.push(one);
    }
    Ok((copy.text().to_string(), known))
}

impl Granted {
    /// Puts the files in, and what they are bound to.
    pub(in crate::app) fn put_into(&self, spec: &mut SandboxSpec, load: &mut Load) {
        for one in &self.0 {
            load.push(one.binding.target.clone(), MODE, one.file.clone());
            if one.is_bound {
                spec.logins.push(one.binding.clone());
            }
        }
    }

    /// The sandbox is there, or did not come to be.
    pub(crate) async fn end(&self, app: &App, is_made: bool) {
        if self.0.is_empty() {
            return;
        }
        for one in &self.0 {
            app.logins.making().remove(&one.binding.grant);
        }
        if !is_made {
            super::sweep(app).await;
        }
    }
}
