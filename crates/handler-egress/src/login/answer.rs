//! An answer to a request that a refresh token was given to, on its way in.

use super::read::{TokenAnswer, is_free_of, read};
use crate::accept::Session;
use crate::body::ResponseBody;
use crate::form::Form;
use crate::mask::mask_head;
use crate::refuse::Refusal;
use crate::report::RequestReport;
use crate::scan::{Needles, wiped};
use crate::settings::Rules;
use crate::target::Target;
use bytes::Bytes;
use handler_types::egress::Renews;
use http::Response;
use http::header::{CONTENT_LENGTH, ETAG, HeaderValue, TRANSFER_ENCODING};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// Longest answer, bytes, its content coding undone.
const LONGEST: usize = 256 * 1024;
/// How long its body may take.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// Passes an answer on, masked already under `rules`. One that may hold new tokens waits until the daemon keeps
/// them and the sandbox has stand-ins for them.
pub(crate) async fn answer(
    session: &Session,
    response: Response<ResponseBody>,
    rules: &Arc<Rules>,
    target: &Target,
    watch: &RequestReport,
) -> Result<Response<ResponseBody>, Refusal> {
    let renewed = watch.renews();
    if renewed.is_empty() || !response.status().is_success() {
        return Ok(response);
    }
    let [renews] = renewed.as_slice() else {
        return Err(Refusal::login_unread(
            target,
            "the request renewed several logins at once",
        ));
    };
    let (mut parts, body) = response.into_parts();
    let text = whole(body, target).await?;
    if text.is_empty() {
        // As after a revocation: nothing is in it.
        return Ok(Response::from_parts(parts, Either::Left(Full::default())));
    }
    let unread = |why: &str| Refusal::login_unread(target, why);
    let answer = read(&text, rules).map_err(|error| unread(&error.to_string()))?;
    if !answer.tokens.is_empty() {
        hand_in(session, &answer, renews, target).await?;
    }
    let rules = session.sandbox.rules();
    let knows = |value: &str| {
        let mut secrets = rules.secrets.iter();
        secrets.any(|secret| *secret.value == value && secret.is_for(target))
    };
    if !answer.tokens.iter().all(|token| knows(&token.value)) {
        return Err(unread("the sandbox has no stand-in for a token in it"));
    }
    let needles = Needles::for_response(rules.clone(), target);
    mask_head(&mut parts, &needles);
    let needles = needles.in_form(Form::Json);
    // Masking finds nothing that leaks.
    let swapped = needles.rewrite(&answer.text, &mut Vec::new());
    let swapped = swapped.map_err(|_| unread("it cannot be masked"))?;
    let text = swapped.unwrap_or(answer.text);
    if !is_free_of(&text, &answer.tokens) {
        return Err(unread("a token is left in it"));
    }
    for name in [TRANSFER_ENCODING, ETAG] {
        parts.headers.remove(name);
    }
    parts
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Ok(Response::from_parts(
        parts,
        Either::Left(Full::new(wiped(text))),
    ))
}

/// Gives the tokens to the daemon and waits for it.
async fn hand_in(
    session: &Session,
    answer: &TokenAnswer,
    renews: &Renews,
    target: &Target,
) -> Result<(), Refusal> {
    let sandbox = &session.sandbox;
    let desk = &sandbox.shared.logins;
    let (tokens, expires) = (answer.tokens.clone(), answer.expires_in);
    let waits = || Refusal::login_waits(target, &renews.login);
    let seq = desk
        .hand_in(&sandbox.id, renews.clone(), tokens, expires)
        .map_err(|_| waits())?;
    tracing::info!(sandbox = %sandbox.id, login = renews.login, seq, "a login was renewed");
    match desk.kept(seq, sandbox.shared.limits.login).await {
        true => Ok(()),
        false => Err(waits()),
    }
}

/// The body, whole.
async fn whole(body: ResponseBody, target: &Target) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let broken = |why: &str| Refusal::login_unread(target, why);
    let collected = Limited::new(body, LONGEST).collect();
    match tokio::time::timeout(BODY_LIMIT, collected).await {
        Ok(Ok(whole)) => {
            let bytes: Bytes = whole.to_bytes();
            Ok(Zeroizing::new(bytes.to_vec()))
        }
        Ok(Err(_)) => Err(broken("it broke off, or is longer than 256 KiB")),
        Err(_) => Err(broken("it took more than 60 s")),
    }
}
