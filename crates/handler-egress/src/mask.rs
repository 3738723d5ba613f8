//! Value → phantom in responses: the sandbox never receives what it does not hold.

use crate::body::{ResponseBody, Rewritten};
use crate::scan::{Needles, Scanner};
use http::Response;
use http_body_util::Either;
use hyper::body::Incoming;

/// Masks a response's headers at once and its body as it streams. A body that the server compresses
/// although it was asked not to is looked through as it is: a value inside the compression is not seen.
pub(crate) fn mask(response: Response<Incoming>, needles: Needles) -> Response<ResponseBody> {
    let (mut parts, body) = response.into_parts();
    let mut found = Vec::new();
    if crate::headers::rewrite(&mut parts.headers, &needles, &mut found).is_err() {
        // Masking needles never leak; a value that cannot be masked must not go in.
        parts.headers.clear();
    }
    let body = Rewritten::new(body, Scanner::new(needles), None);
    Response::from_parts(parts, Either::Right(body))
}
