//! The HTTP surface: one handler that records, checks the key, finds the protocol and answers.
//!
//! Invariant: every request is recorded exactly once, refused ones included.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use crate::answer::{self, Answer, Reply};
use crate::body;
use crate::keys;
use crate::protocol::{Outgoing, Protocol, anthropic, gemini};
use crate::record::{RecordedRequest, Recorder, now_ms};
use crate::sse;

/// What the handler needs from the server's configuration.
pub(crate) struct Shared {
    pub(crate) expect_key: Option<String>,
    pub(crate) word_delay: Duration,
    pub(crate) recorder: Recorder,
}

/// Everything is one fallback: base paths differ by harness, so paths are matched by hand.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(handle).with_state(shared)
}

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    Root,
    Models(Protocol),
    Count(Protocol),
    Generate(Protocol),
    /// Gemini names the model and the streaming in the path.
    Gemini {
        model: String,
        stream: bool,
    },
    Unknown,
}

impl Route {
    /// `/v1`, `/v1beta` and no version at all are equally good, as base URLs come with and
    /// without; anything more is a misconfiguration worth a 404.
    fn of(method: &Method, path: &str) -> Self {
        let (gemini_version, rest) = unversioned(path);
        let get = method == Method::GET || method == Method::HEAD;
        let protocol = if gemini_version {
            Protocol::Gemini
        } else {
            Protocol::Chat
        };
        match rest {
            "" | "/" if get => Self::Root,
            "/models" if get => Self::Models(protocol),
            _ if get && rest.starts_with("/models/") => Self::Models(protocol),
            _ if method != Method::POST => Self::Unknown,
            "/messages" => Self::Generate(Protocol::Anthropic),
            "/messages/count_tokens" => Self::Count(Protocol::Anthropic),
            "/chat/completions" => Self::Generate(Protocol::Chat),
            "/responses" => Self::Generate(Protocol::Responses),
            _ => Self::gemini(rest),
        }
    }

    fn gemini(rest: &str) -> Self {
        let Some((model, verb)) = rest
            .strip_prefix("/models/")
            .and_then(|name| name.split_once(':'))
        else {
            return Self::Unknown;
        };
        let model: String = model.chars().take(200).collect();
        match verb {
            "generateContent" => Self::Gemini {
                model,
                stream: false,
            },
            "streamGenerateContent" => Self::Gemini {
                model,
                stream: true,
            },
            "countTokens" => Self::Count(Protocol::Gemini),
            _ => Self::Unknown,
        }
    }

    /// Whose error shape to use.
    fn protocol(&self, path: &str) -> Protocol {
        match self {
            Self::Models(protocol) | Self::Count(protocol) | Self::Generate(protocol) => *protocol,
            Self::Gemini { .. } => Protocol::Gemini,
            Self::Root | Self::Unknown if path.contains("/messages") => Protocol::Anthropic,
            Self::Root | Self::Unknown if unversioned(path).0 => Protocol::Gemini,
            Self::Root | Self::Unknown => Protocol::Chat,
        }
    }
}

/// The path without its version, and whether the version is one of Gemini's.
fn unversioned(path: &str) -> (bool, &str) {
    for (prefix, gemini) in [("/v1beta", true), ("/v1alpha", true), ("/v1", false)] {
        if let Some(rest) = path.strip_prefix(prefix)
            && rest.starts_with('/')
        {
            return (gemini, rest);
        }
    }
    (false, path)
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut record = RecordedRequest {
        at_ms: now_ms(),
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: pairs(&parts.headers),
        body: Value::Null,
        status: 0,
    };
    let route = Route::of(&parts.method, &record.path);
    let protocol = route.protocol(&record.path);
    let encoding = parts
        .headers
        .get(CONTENT_ENCODING)
        .and_then(|value| value.to_str().ok());
    let read = body::read(body, encoding).await;
    let (json, valid) = match &read {
        Ok(bytes) => parse(bytes),
        Err(_) => (Value::Null, false),
    };
    record.body = json;
    let known = keys::accepted(shared.expect_key.as_deref(), &record.headers, &record.query);
    let response = match (&read, &route) {
        _ if !known && route != Route::Root => fail(protocol, 401, "the key is missing or wrong"),
        (Err(error), _) => fail(protocol, error.status(), &error.to_string()),
        (Ok(_), Route::Root) => plain(200, &json!({"name": "scripted model"})),
        (Ok(_), Route::Models(protocol)) => models(*protocol, &record.path),
        (Ok(_), Route::Unknown) => fail(protocol, 404, "there is nothing at this path"),
        (Ok(_), _) if !valid => fail(protocol, 400, "the body is not valid JSON"),
        (Ok(bytes), route) => {
            generate(route, protocol, &record, bytes.len(), shared.word_delay).await
        }
    };
    record.status = response.status().as_u16();
    shared.recorder.add(record);
    response
}

fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let pair = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (
            name.as_str().to_owned(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    };
    headers.iter().map(pair).collect()
}

/// The body for the record, and whether it is JSON.
fn parse(bytes: &[u8]) -> (Value, bool) {
    if bytes.is_empty() {
        return (Value::Null, false);
    }
    match serde_json::from_slice(bytes) {
        Ok(value) => (value, true),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned().into(), false),
    }
}

async fn generate(
    route: &Route,
    protocol: Protocol,
    request: &RecordedRequest,
    length: usize,
    word_delay: Duration,
) -> Response {
    let input_tokens = length / 4 + 1;
    let mut talk = match protocol.read(&request.body) {
        Ok(talk) => talk,
        Err(error) => return fail(protocol, 400, &error.to_string()),
    };
    match route {
        Route::Count(Protocol::Gemini) => return plain(200, &gemini::count(input_tokens)),
        Route::Count(_) => return plain(200, &anthropic::count(input_tokens)),
        Route::Gemini { model, stream } => (talk.model, talk.stream) = (model.clone(), *stream),
        _ => {}
    }
    let answer = match answer::reply_to(&talk) {
        Reply::Failure(status) => return fail(protocol, status, "the plan asked for this failure"),
        Reply::Answer(answer) => answer,
    };
    let Ok(id) = random_id() else {
        return fail(protocol, 500, "no random numbers to be had");
    };
    let out = Outgoing {
        talk: &talk,
        answer: &answer,
        id: &id,
        created: request.at_ms / 1000,
        input_tokens,
    };
    let events = protocol != Protocol::Gemini || request.query.contains("alt=sse");
    if talk.stream && events {
        return streamed(sse::body(protocol.frames(&out), word_delay));
    }
    let whole = whole(protocol, &out);
    wait_for_words(&answer, word_delay).await;
    plain(200, &whole)
}

/// Gemini streams without `alt=sse` are one JSON list.
fn whole(protocol: Protocol, out: &Outgoing<'_>) -> Value {
    if protocol == Protocol::Gemini && out.talk.stream {
        return gemini::chunks(out)
            .into_iter()
            .map(|(chunk, _)| chunk)
            .collect();
    }
    protocol.whole(out)
}

async fn wait_for_words(answer: &Answer, word_delay: Duration) {
    if answer.slow {
        let words = u32::try_from(answer.words().count()).unwrap_or(u32::MAX);
        tokio::time::sleep(word_delay.saturating_mul(words)).await;
    }
}

fn random_id() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 12];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Model lists in a form that both OpenAI's and Anthropic's clients read, or Gemini's.
fn models(protocol: Protocol, path: &str) -> Response {
    let (_, rest) = unversioned(path);
    let one = rest
        .strip_prefix("/models/")
        .map(|name| name.chars().take(200).collect::<String>());
    let id = one.as_deref().unwrap_or("scripted");
    let model = match protocol {
        Protocol::Gemini => json!({"name": format!("models/{id}"), "displayName": "Scripted",
            "inputTokenLimit": 200_000, "outputTokenLimit": 8192,
            "supportedGenerationMethods": ["generateContent", "countTokens"]}),
        _ => json!({"id": id, "object": "model", "type": "model", "display_name": "Scripted",
            "created": 0, "created_at": "1970-01-01T00:00:00Z", "owned_by": "scripted"}),
    };
    match (&one, protocol) {
        (Some(_), _) => plain(200, &model),
        (None, Protocol::Gemini) => plain(200, &json!({"models": [model]})),
        (None, _) => plain(
            200,
            &json!({"object": "list", "data": [model], "has_more": false,
            "first_id": id, "last_id": id}),
        ),
    }
}

fn fail(protocol: Protocol, status: u16, message: &str) -> Response {
    plain(status, &protocol.error(status, message))
}

fn plain(status: u16, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn streamed(body: Body) -> Response {
    let mut response = Response::new(body);
    let events = http::HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, events);
    let fresh = http::HeaderValue::from_static("no-cache");
    response
        .headers_mut()
        .insert(http::header::CACHE_CONTROL, fresh);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_known_with_and_without_a_version() {
        let post = |path| Route::of(&Method::POST, path);
        assert_eq!(post("/v1/messages"), Route::Generate(Protocol::Anthropic));
        assert_eq!(post("/chat/completions"), Route::Generate(Protocol::Chat));
        assert_eq!(post("/v1/responses"), Route::Generate(Protocol::Responses));
        let gemini = Route::Gemini {
            model: "g".into(),
            stream: true,
        };
        assert_eq!(post("/v1beta/models/g:streamGenerateContent"), gemini);
        for wrong in [
            "/v1/v1/messages",
            "/v1messages",
            "/v1/models",
            "/v1beta/models/g:x",
            "/",
        ] {
            assert_eq!(post(wrong), Route::Unknown, "{wrong}");
        }
        assert_eq!(Route::of(&Method::GET, "/v1/messages"), Route::Unknown);
        assert_eq!(Route::of(&Method::HEAD, "/"), Route::Root);
        assert_eq!(
            Route::of(&Method::GET, "/v1beta/models/x"),
            Route::Models(Protocol::Gemini)
        );
    }
}
