//! Plain `http://` requests in absolute form, each judged on its own, also on a connection that is kept.

use crate::accept::Session;
use crate::body::ResponseBody;
use crate::exchange::exchange;
use crate::names;
use crate::refuse::Refusal;
use crate::target::Target;
use crate::upstream::Scheme;
use http::header::{HOST, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use std::sync::Arc;

/// Answers a request to be forwarded.
pub(crate) async fn answer(
    session: &Arc<Session>,
    mut request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    let uri = request.uri();
    let Some(authority) = uri.authority().cloned() else {
        return Err(Refusal::bad_target(
            uri.path(),
            "this is a proxy: the request line must hold a whole http:// URL",
        ));
    };
    if uri.scheme_str() != Some("http") {
        return Err(Refusal::bad_target(
            authority.as_str(),
            "only http:// is forwarded; for anything else ask for a tunnel with CONNECT",
        ));
    }
    let text = authority.as_str();
    let target = Target::parse(text, Some(80)).map_err(|error| Refusal::unreadable(text, error))?;
    if names::is_asked(&target) {
        return names::answer(session, &request);
    }
    // The URL counts, whatever `Host` says.
    let host = match target.port {
        80 => target.to_string().trim_end_matches(":80").to_owned(),
        _ => target.to_string(),
    };
    let host = HeaderValue::try_from(host)
        .map_err(|_| Refusal::bad_target(text, "the host cannot be written as a header"))?;
    request.headers_mut().insert(HOST, host);
    exchange(session, request, &target, Scheme::Plain, true).await
}
