//! Value → phantom in responses: the sandbox never receives what it does not hold.

use crate::body::{ResponseBody, Rewritten};
use crate::coding::{UnknownCoding, coding_of, has_coded_messages};
use crate::content::form_of;
use crate::refuse::Refusal;
use crate::sandbox::Sandbox;
use crate::scan::{Needles, Scanner};
use crate::target::Target;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::response::Parts;
use http_body::Body as _;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;

/// Masks a response's headers at once and its body as it streams. A body that the server compresses
/// although it was asked not to goes on plain; one that cannot be read does not go on.
pub(crate) fn mask(
    response: Response<Incoming>,
    needles: Needles,
    target: &Target,
    sandbox: &Sandbox,
) -> Result<Response<ResponseBody>, Refusal> {
    let (mut parts, body) = response.into_parts();
    if needles.is_empty() {
        let body = Rewritten::new(body, Scanner::new(needles), None);
        return Ok(Response::from_parts(parts, Either::Right(body)));
    }
    mask_head(&mut parts, &needles);
    let empty = body.is_end_stream();
    let form = form_of(&parts.headers);
    let mut body = Rewritten::new(body, Scanner::new(needles.in_form(form)), None);
    if !empty {
        let unread = |UnknownCoding| Refusal::coded_answer(target);
        if has_coded_messages(&parts.headers) {
            return Err(unread(UnknownCoding));
        }
        if let Some(coding) = coding_of(&parts.headers).map_err(unread)? {
            let room = sandbox.room_for(coding);
            body.decode(
                coding,
                false,
                room.map_err(|busy| Refusal::busy(target, busy))?,
            );
            parts.headers.remove(CONTENT_ENCODING);
        }
    }
    if !empty && body.size_hint().exact().is_none() {
        parts.headers.remove(CONTENT_LENGTH);
    }
    Ok(Response::from_parts(parts, Either::Right(body)))
}

/// Masks headers. The words beside the status say nothing that counts, and go.
pub(crate) fn mask_head(parts: &mut Parts, needles: &Needles) {
    if needles.is_empty() {
        return;
    }
    parts.extensions.remove::<ReasonPhrase>();
    if crate::headers::rewrite(&mut parts.headers, needles, &mut Vec::new()).is_err() {
        // Masking needles never leak; a value that cannot be masked must not go in.
        parts.headers.clear();
    }
}
