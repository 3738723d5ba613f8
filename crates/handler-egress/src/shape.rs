//! The same request as HTTP/1.1 and as HTTP/2 write it. Pure. A request can be turned from one into
//! the other and back: a connection that is made anew may speak another version.

use crate::inject::path_of;
use crate::upstream::Scheme;
use http::header::{CONNECTION, COOKIE, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Uri};
use http::{HeaderMap, Request, Version};
use http_body::Body;

/// The request holds no host that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request's host cannot be written")]
pub(crate) struct NoHost;

/// Makes it one of HTTP/1.1: host in `Host`, the rest of the target in the first line.
pub(crate) fn for_http1<B: Body>(request: &mut Request<B>) -> Result<(), NoHost> {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::try_from(authority.as_str()).map_err(|_| NoHost)?;
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = Uri::from(path_of(request.uri()));
    *request.version_mut() = Version::HTTP_11;
    join_cookies(request.headers_mut());
    let exact = request.body().size_hint().exact();
    let headers = request.headers_mut();
    if exact.is_none() {
        // Said outright, or the body of a GET would be left out.
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Ok(())
}

/// HTTP/2 may send one field for each cookie; HTTP/1.1 has one field.
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if crumbs.len() < 2 {
        return;
    }
    // Values joined by printable text are a value.
    if let Ok(mut cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        cookie.set_sensitive(true);
        headers.insert(COOKIE, cookie);
    }
}

/// Makes it one of HTTP/2: the whole target in pseudo-fields, nothing that concerns one hop.
pub(crate) fn for_http2<B>(request: &mut Request<B>, scheme: Scheme) -> Result<(), NoHost> {
    let authority = match (request.uri().authority(), request.headers().get(HOST)) {
        (Some(authority), _) => authority.clone(),
        (None, Some(host)) => Authority::try_from(host.as_bytes()).map_err(|_| NoHost)?,
        (None, None) => return Err(NoHost),
    };
    let scheme = match scheme {
        Scheme::Plain => "http",
        Scheme::Tls => "https",
    };
    *request.uri_mut() = Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(path_of(request.uri()))
        .build()
        .map_err(|_| NoHost)?;
    *request.version_mut() = Version::HTTP_2;
    for name in [HOST, CONNECTION, UPGRADE, TRANSFER_ENCODING] {
        request.headers_mut().remove(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full, StreamBody};

    fn streamed() -> impl Body {
        let frames = futures::stream::empty::<Result<http_body::Frame<Bytes>, std::io::Error>>();
        StreamBody::new(frames).boxed_unsync()
    }

    #[test]
    fn a_request_survives_the_way_to_http_2_and_back() {
        let mut request = Request::builder()
            .method("POST")
            .uri("/a?b=c")
            .header("host", "a.com:8443")
            .header("te", "trailers")
            .body(streamed())
            .expect("request");
        for_http1(&mut request).expect("HTTP/1.1");
        assert_eq!(request.headers()["transfer-encoding"], "chunked");
        for_http2(&mut request, Scheme::Tls).expect("HTTP/2");
        assert_eq!(request.uri(), "https://a.com:8443/a?b=c");
        assert_eq!(request.version(), Version::HTTP_2);
        assert!(request.headers().keys().eq(["te"]));
        for_http1(&mut request).expect("HTTP/1.1");
        assert_eq!(request.uri(), "/a?b=c");
        assert_eq!(request.headers()["host"], "a.com:8443");
        assert_eq!(request.headers()["transfer-encoding"], "chunked");
    }

    #[test]
    fn cookies_in_pieces_become_one_field_and_a_known_length_is_not_chunked() {
        let mut request = Request::builder()
            .uri("https://a.com/*")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(Full::new(Bytes::from("body")))
            .expect("request");
        for_http1(&mut request).expect("HTTP/1.1");
        let cookies: Vec<_> = request.headers().get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2"]);
        assert!(!request.headers().contains_key("transfer-encoding"));
    }

    #[test]
    fn without_a_host_there_is_no_http_2_request() {
        let mut request = Request::new(Full::new(Bytes::new()));
        assert_eq!(for_http2(&mut request, Scheme::Plain), Err(NoHost));
        let odd = HeaderValue::from_static("a b");
        request.headers_mut().insert(HOST, odd);
        assert_eq!(for_http2(&mut request, Scheme::Plain), Err(NoHost));
    }
}
