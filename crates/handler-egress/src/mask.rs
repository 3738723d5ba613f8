//! Value → phantom in responses: the sandbox never receives what it does not hold.

use crate::body::{ResponseBody, Rewritten};
use crate::coding::{UnknownCoding, coding_of};
use crate::content::form_of;
use crate::scan::{Needles, Scanner};
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use http_body::Body as _;
use http_body_util::Either;
use hyper::body::Incoming;

/// Masks a response's headers at once and its body as it streams. A body that the server compresses
/// although it was asked not to goes on plain; one that cannot be read does not go on.
pub(crate) fn mask(
    response: Response<Incoming>,
    needles: Needles,
) -> Result<Response<ResponseBody>, UnknownCoding> {
    let (mut parts, body) = response.into_parts();
    if needles.is_empty() {
        let body = Rewritten::new(body, Scanner::new(needles), None);
        return Ok(Response::from_parts(parts, Either::Right(body)));
    }
    mask_headers(&mut parts.headers, &needles);
    let empty = body.is_end_stream();
    let form = form_of(&parts.headers);
    let mut body = Rewritten::new(body, Scanner::new(needles.in_form(form)), None);
    if !empty && let Some(coding) = coding_of(&parts.headers)? {
        body.decode(coding, false);
        parts.headers.remove(CONTENT_ENCODING);
    }
    if !empty && body.size_hint().exact().is_none() {
        parts.headers.remove(CONTENT_LENGTH);
    }
    Ok(Response::from_parts(parts, Either::Right(body)))
}

/// Masks headers.
pub(crate) fn mask_headers(headers: &mut HeaderMap, needles: &Needles) {
    if crate::headers::rewrite(headers, needles, &mut Vec::new()).is_err() {
        // Masking needles never leak; a value that cannot be masked must not go in.
        headers.clear();
    }
}
