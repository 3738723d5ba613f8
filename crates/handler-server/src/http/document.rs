//! The body of a request: one JSON object of a known form, and nothing that merely resembles it.

use super::problem::ApiError;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use handler_types::ProblemCode;
use serde::de::DeserializeOwned;

/// A body read as `T`. Lists are refused: the reader would take one for an object whose fields are all left out.
#[derive(Debug)]
pub struct Document<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Document<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let invalid = |detail: String| ApiError::new(ProblemCode::Invalid, detail);
        let media = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        if !media.is_some_and(is_json) {
            return Err(invalid(
                "send the body with `Content-Type: application/json`".to_owned(),
            ));
        }
        let bytes =
            Bytes::from_request(request, state)
                .await
                .map_err(|rejection| match rejection.into_response().status() {
                    StatusCode::PAYLOAD_TOO_LARGE => {
                        ApiError::new(ProblemCode::TooLarge, "the body is larger than 17 MiB")
                    }
                    _ => invalid("the body broke off".to_owned()),
                })?;
        read(&bytes).map(Self).map_err(invalid)
    }
}

fn is_json(media: &str) -> bool {
    let media = media.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err("the body must be a JSON object".to_owned());
    }
    serde_json::from_slice(bytes).map_err(|error| format!("the body cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::sandbox::CreateSandbox;

    #[test]
    fn only_an_object_of_the_right_form_is_read() {
        let read = read::<CreateSandbox>;
        assert_eq!(read(b" {}\n"), Ok(CreateSandbox::default()));
        for wrong in [
            &b""[..],
            b"[]",
            b"null",
            b"{",
            b"{} {}",
            b"{\"nmae\":1}",
            b"\xff",
            b"[{}]",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert!(is_json("application/json; charset=utf-8") && is_json("Application/JSON"));
        assert!(!is_json("text/plain") && !is_json("application/jsonp"));
    }
}
