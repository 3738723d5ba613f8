//! The connection outward for a request: one that is kept, the one a tunnel was opened with, or a new one.

use crate::accept::Session;
use crate::dial::dial;
use crate::refuse::Refusal;
use crate::settings::Rules;
use crate::target::Target;
use crate::upstream::{Scheme, Slot, Upstream, open};

/// A connection to the destination, and whether it has been used before.
pub(crate) async fn obtain(
    session: &Session,
    rules: &Rules,
    target: &Target,
    scheme: Scheme,
) -> Result<(Upstream, bool), Refusal> {
    if let Some(pool) = &session.pool {
        let fits = |one: &Upstream| one.fits(target, scheme, rules.generation);
        if let Some(kept) = pool.take(fits) {
            session.set_current(target, kept.address);
            return Ok((kept, true));
        }
        // The others wait: they may share what the first one opens.
        let _turn = pool.turn().await;
        if let Some(kept) = pool.take(fits) {
            session.set_current(target, kept.address);
            return Ok((kept, true));
        }
        if !pool.has_room() {
            let why = "the client has too many requests under way";
            return Err(Refusal::unreachable(target, why));
        }
        let upstream = fresh(session, rules, target, scheme).await?;
        return Ok((upstream, false));
    }
    obtain_alone(session, rules, target, scheme).await
}

/// For a client that has one request at a time.
async fn obtain_alone(
    session: &Session,
    rules: &Rules,
    target: &Target,
    scheme: Scheme,
) -> Result<(Upstream, bool), Refusal> {
    let kept = session.take_upstream();
    if let Slot::Open(mut kept) = kept {
        if kept.fits(target, scheme, rules.generation) && kept.is_ready().await {
            session.set_current(target, kept.address);
            return Ok((kept, true));
        }
    } else if let Slot::Dialled(dialled, generation) = kept
        && generation == rules.generation
    {
        session.set_current(target, dialled.address);
        let shared = &session.sandbox.shared;
        match open(shared, dialled, target, scheme, generation, false).await {
            Ok(upstream) => return Ok((upstream, false)),
            Err(error) => tracing::debug!(%error, %target, "made anew"),
        }
    }
    fresh(session, rules, target, scheme)
        .await
        .map(|upstream| (upstream, false))
}

/// A new one.
pub(crate) async fn fresh(
    session: &Session,
    rules: &Rules,
    target: &Target,
    scheme: Scheme,
) -> Result<Upstream, Refusal> {
    let shared = &session.sandbox.shared;
    let dialled = dial(&session.sandbox, rules, target)
        .await
        .map_err(|error| Refusal::dial(target, &error))?;
    session.set_current(target, dialled.address);
    let either = session.pool.is_some();
    let upstream = open(shared, dialled, target, scheme, rules.generation, either)
        .await
        .map_err(|error| Refusal::unreachable(target, &error.to_string()))?;
    if let Some(pool) = &session.pool {
        pool.offer(&upstream);
    }
    Ok(upstream)
}
