//! A login with new tokens: its file, and what its stand-ins stand for. Pure but for randomness, which is given.
//!
//! Invariant: a stand-in of a refresh token stands for the newest one, as long as their lengths allow it, in
//! every sandbox: servers end the one before. Stand-ins of other tokens keep standing for theirs until they
//! are forgotten. Every token that was known is known on, so that it is masked.

use handler_engine::make_login_phantom;
use handler_store::logins::{Login, StandIn};
use handler_types::egress::LoginRenewal;
use handler_types::login::{LoginFile, is_refresh, renewed};

/// Most stand-ins of one login in one sandbox; the oldest are forgotten first.
const MOST: usize = 48;
/// So many of one field are kept before refresh tokens are forgotten.
const ENOUGH: usize = 8;

/// A token that cannot have a stand-in. Never shows it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token at `{0}` cannot be kept out of the sandbox")]
pub(super) struct NoStandIn(String);

/// A random byte.
pub(super) fn random() -> u8 {
    handler_base::random::bytes::<1>()[0]
}

/// A stand-in for a token.
pub(super) fn stand_in(
    field: &str,
    value: &str,
    random: impl FnMut() -> u8,
) -> Result<StandIn, NoStandIn> {
    let phantom = make_login_phantom(value, random);
    Ok(StandIn {
        field: field.to_owned(),
        phantom: phantom.ok_or_else(|| NoStandIn(field.to_owned()))?,
        value: value.to_owned().into(),
    })
}

/// Puts another file in its place: all stand-ins stand for its tokens, where lengths allow it.
pub(super) fn replace(
    login: &mut Login,
    file: String,
    random: impl FnMut() -> u8 + Copy,
) -> Result<(), NoStandIn> {
    if let Ok(read) = LoginFile::parse(&file) {
        let tokens = read.tokens();
        let new: Vec<(&str, &str)> = tokens.iter().map(|t| (&*t.field, &**t.value)).collect();
        for known in login.grants.values_mut() {
            take_in(known, &new, |_| true, false, random)?;
        }
    }
    login.file = file.into();
    Ok(())
}

/// Takes in what a server gave. `own` is the grant of the sandbox that asked: it gets stand-ins of its own for all.
/// Doing it once more changes nothing.
pub(super) fn renew(
    login: &mut Login,
    own: Option<&str>,
    renewal: &LoginRenewal,
    now_ms: i64,
    random: impl FnMut() -> u8 + Copy,
) -> Result<(), NoStandIn> {
    let refresh = &renewal.renews.field;
    let Ok(mut file) = LoginFile::parse(&login.file) else {
        return Ok(());
    };
    let names: Vec<&str> = renewal.tokens.iter().map(|token| &*token.name).collect();
    let fields = renewed(&file, refresh, &names);
    let new: Vec<(&str, &str)> = fields
        .iter()
        .map(|one| (&*one.field, &*renewal.tokens[one.at].value))
        .collect();
    for (grant, known) in &mut login.grants {
        take_in(known, &new, is_refresh, own == Some(grant.as_str()), random)?;
    }
    for (field, value) in new {
        file.set(field, value);
    }
    let now = handler_base::clock::rfc3339(now_ms);
    file.set_times(refresh, now_ms, &now, renewal.expires_in);
    login.file = file.text();
    login.renewed_ms = Some(now_ms);
    Ok(())
}

/// One sandbox's stand-ins with new tokens. Those of fields that `moves` says stand for the new one from now on.
fn take_in(
    known: &mut Vec<StandIn>,
    new: &[(&str, &str)],
    moves: impl Fn(&str) -> bool,
    is_own: bool,
    mut random: impl FnMut() -> u8 + Copy,
) -> Result<(), NoStandIn> {
    for (field, value) in new {
        if known
            .iter()
            .any(|one| one.field == *field && *one.value == *value)
        {
            continue;
        }
        let mut moved = false;
        let mut before: Vec<String> = Vec::new();
        let alike = |one: &&mut StandIn| one.field == *field && one.value.len() == value.len();
        for one in known.iter_mut().filter(alike).filter(|_| moves(field)) {
            let old = std::mem::replace(&mut one.value, (*value).to_owned().into());
            if !before.contains(&old) {
                before.push(old.to_string());
            }
            moved = true;
        }
        for old in before {
            // Known on, under a name that no program has.
            known.insert(0, stand_in("", &old, &mut random)?);
        }
        if is_own || !moved {
            known.push(stand_in(field, value, &mut random)?);
        }
    }
    forget(known);
    Ok(())
}

/// Forgets the oldest.
fn forget(known: &mut Vec<StandIn>) {
    while known.len() > MOST {
        known.remove(oldest(known));
    }
}

/// Which one is forgotten next: one that is only known, then one of a field that has enough of them, then the refresh
/// token of longest ago; never the newest of a field, as far as there is another.
fn oldest(known: &[StandIn]) -> usize {
    let count = |field: &str| known.iter().filter(|one| one.field == field).count();
    if count("") > ENOUGH {
        // The newest of these come first.
        return known
            .iter()
            .rposition(|one| one.field.is_empty())
            .unwrap_or(0);
    }
    let many = |one: &StandIn| !is_refresh(&one.field) && count(&one.field) > ENOUGH;
    let again = |one: &StandIn| is_refresh(&one.field) && count(&one.field) > 1;
    let mut each = known.iter();
    let place = each.position(many);
    place
        .or_else(|| known.iter().position(again))
        .unwrap_or(known.len() - 1)
}

#[cfg(test)]
mod tests;
