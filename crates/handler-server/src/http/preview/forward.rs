//! One request to an app and its answer, both streamed.

use super::connect::NotConnected;
use super::{headers, upgrade};
use crate::app::previews::Preview;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, Version, header};
use axum::response::Response;
use handler_types::ProblemCode;
use hyper::upgrade::OnUpgrade;
use std::error::Error;
use std::sync::Arc;

/// Sends a request to the app and gives its answer.
pub(super) async fn send(
    app: &Arc<App>,
    preview: Preview,
    request: Request,
) -> ApiResult<Response> {
    let (mut head, body) = request.into_parts();
    let browser = head.extensions.remove::<OnUpgrade>();
    let protocol = headers::take_hop_by_hop(&mut head.headers);
    headers::for_app(&mut head.headers, app.token(), app.port());
    if let Some(protocol) = &protocol {
        put_upgrade(&mut head.headers, protocol);
    }
    head.extensions.clear();
    head.version = Version::HTTP_11;
    head.uri = address(&preview, &head.uri)?;
    let client = app.preview_connections.client(app);
    let sent = client.request(Request::from_parts(head, body)).await;
    let mut answer = sent.map_err(|e| failed(&e, preview.port))?;
    let is_switch = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    let agreed = headers::take_hop_by_hop(answer.headers_mut());
    headers::for_browser(answer.headers_mut());
    // Whatever the app speaks, this connection stays what it is.
    *answer.version_mut() = Version::HTTP_11;
    if !is_switch {
        return Ok(answer.map(Body::new));
    }
    let (Some(browser), Some(agreed), Some(_)) = (browser, agreed, protocol) else {
        return Err(broken("switched to another protocol unasked"));
    };
    let inside = hyper::upgrade::on(&mut answer);
    upgrade::carry(app.shutdown.clone(), browser, inside);
    put_upgrade(answer.headers_mut(), &agreed);
    Ok(answer.map(|_| Body::empty()))
}

fn put_upgrade(headers: &mut axum::http::HeaderMap, protocol: &HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol.clone());
}

/// Where the client finds the app; the app sees the path only.
fn address(preview: &Preview, uri: &Uri) -> ApiResult<Uri> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Uri::builder()
        .scheme("http")
        .authority(format!("{}:{}", preview.sandbox, preview.port))
        .path_and_query(path)
        .build()
        .map_err(|_| ApiError::new(ProblemCode::Invalid, "this address cannot be asked for"))
}

fn broken(what: &str) -> ApiError {
    let text = format!("The app inside broke off: it {what}.");
    ApiError::new(ProblemCode::BackendFailed, text)
}

/// The client's error in words: why there is no connection, or what the app did.
fn failed(error: &hyper_util::client::legacy::Error, port: u16) -> ApiError {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(NotConnected(problem)) = cause.downcast_ref() {
            return ApiError(problem.clone());
        }
        next = cause.source();
    }
    let why = crate::http::problem::chain(error);
    tracing::debug!(port, why, "a preview got no answer");
    broken(&format!("did not answer on port {port} as HTTP ({why})"))
}
