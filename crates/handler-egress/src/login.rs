//! Logins: when a host renews a login's tokens for a sandbox, the answer is kept from it until the daemon
//! has the new tokens sealed and has given the sandbox stand-ins for them.
//!
//! Invariant: an answer to a request that a refresh token was given to leaves here with stand-ins only, or
//! not at all; and tokens that came in one are not forgotten before the daemon has said that it keeps them.

mod answer;
mod desk;
mod end;
mod read;

pub(crate) use answer::answer;
pub(crate) use desk::Desk;
pub(crate) use end::to_the_end;

use crate::refuse::Refusal;
use crate::sandbox::Sandbox;
use crate::settings::Rules;
use crate::target::Target;

/// Returns when no login that is given to this destination waits for the daemon: what a request would be given
/// meanwhile may be worthless already. Only requests towards hosts of a login wait.
pub(crate) async fn settled(sandbox: &Sandbox, target: &Target) -> Result<(), Refusal> {
    let rules = sandbox.rules();
    if !renews_at(&rules, target) {
        return Ok(());
    }
    let here = rules.secrets.iter().filter(|secret| secret.is_for(target));
    let desk = &sandbox.shared.logins;
    for renews in here.filter_map(|secret| secret.renews.as_ref()) {
        if !desk
            .settled(&renews.login, sandbox.shared.limits.login)
            .await
        {
            return Err(Refusal::login_waits(target, &renews.login));
        }
    }
    Ok(())
}

/// Whether a login can be renewed at this destination.
pub(crate) fn renews_at(rules: &Rules, target: &Target) -> bool {
    let mut secrets = rules.secrets.iter();
    secrets.any(|secret| secret.renews.is_some() && secret.is_for(target))
}
