//! Phantom → value in the head of a request: header values, Basic credentials, the request target.
//!
//! In the target a phantom may be percent-encoded, in whole or in part; a character of the value that has
//! a meaning there is percent-encoded. Nothing is decoded twice: `%2573` is not an `s`.
//!
//! Invariant: either the whole head is swapped, or nothing of it goes out.

use crate::form::Form;
use crate::scan::{Leak, Needles, wiped};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use zeroize::Zeroizing;

/// Reads credentials with or without padding, as servers do.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a head cannot go out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// A phantom for another host: position of its secret, and where it was.
    Leak(usize, &'static str),
    /// With the value in it the request target is no longer one.
    Target,
}

/// Swaps in a request's headers and its path and query; gives the secrets that were found.
pub(crate) fn rewrite_head(
    headers: &mut HeaderMap,
    path: &PathAndQuery,
    needles: &Needles,
) -> Result<(PathAndQuery, Vec<usize>), HeadError> {
    let mut found = Vec::new();
    if needles.is_empty() {
        return Ok((path.clone(), found));
    }
    let place = |place| move |Leak(secret)| HeadError::Leak(secret, place);
    rewrite_basic(headers, needles, &mut found).map_err(place("credentials"))?;
    crate::headers::rewrite(headers, needles, &mut found).map_err(place("header"))?;
    let swapped = needles
        .clone()
        .in_form(Form::Percent)
        .rewrite(path.as_str().as_bytes(), &mut found)
        .map_err(place("target"))?;
    let path = match swapped {
        None => path.clone(),
        Some(bytes) => parse_path(wiped(bytes)).ok_or(HeadError::Target)?,
    };
    Ok((path, found))
}

/// The text as request target, if it survives being read as one unchanged.
fn parse_path(bytes: Bytes) -> Option<PathAndQuery> {
    let path = PathAndQuery::from_maybe_shared(bytes.clone()).ok()?;
    (path.as_str().as_bytes() == bytes).then_some(path)
}

/// Swaps inside the base64 of `Authorization: Basic`.
fn rewrite_basic(
    headers: &mut HeaderMap,
    needles: &Needles,
    found: &mut Vec<usize>,
) -> Result<(), Leak> {
    for (name, value) in headers.iter_mut() {
        if name != AUTHORIZATION {
            continue;
        }
        let Some(plain) = decode_basic(value) else {
            continue;
        };
        if let Some(swapped) = needles.rewrite(&plain, found)? {
            let mut text = Zeroizing::new("Basic ".to_owned());
            base64::engine::general_purpose::STANDARD.encode_string(&*swapped, &mut text);
            let text = Zeroizing::new(text.as_bytes().to_vec());
            if let Ok(swapped) = HeaderValue::from_maybe_shared(wiped(text)) {
                *value = swapped;
                value.set_sensitive(true);
            }
        }
    }
    Ok(())
}

fn decode_basic(value: &HeaderValue) -> Option<Vec<u8>> {
    let text = value.to_str().ok()?.trim();
    let (scheme, credentials) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    BASE64.decode(credentials.trim()).ok()
}

/// The path and query of a request target; `*` of OPTIONS stays.
pub(crate) fn path_of(uri: &Uri) -> PathAndQuery {
    uri.path_and_query()
        .cloned()
        .unwrap_or_else(|| PathAndQuery::from_static("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Rules, tests::settings};
    use crate::target::Target;
    use std::sync::Arc;

    const SECRETS: &[(&str, &str, &str, &str)] = &[
        ("mine", "phantom-1234", "the-value-99", "a.com:443"),
        ("other", "phantom-5678", "other-value!", "b.com:443"),
        ("odd", "phantom#5678", "odd<value>{}", "a.com:443"),
    ];

    fn needles() -> Needles {
        let rules = Arc::new(Rules::new(settings(SECRETS), 1).expect("settings").0);
        let target = Target::parse("a.com:443", None).expect("target");
        Needles::for_request(rules, &target, false)
    }

    fn rewrite(name: &'static str, value: &str, path: &str) -> Result<(String, String), HeadError> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("header"));
        let (path, _) = rewrite_head(&mut headers, &path.parse().expect("path"), &needles())?;
        let value = headers[name].to_str().expect("text").to_owned();
        Ok((value, path.to_string()))
    }

    #[test]
    fn a_phantom_becomes_the_value_in_headers_credentials_and_target() {
        let out = rewrite(
            "x-api-key",
            "phantom-1234",
            "/p/phantom-1234?k=phantom-1234&l=1",
        );
        assert_eq!(
            out,
            Ok((
                "the-value-99".to_owned(),
                "/p/the-value-99?k=the-value-99&l=1".to_owned()
            ))
        );
        let out = rewrite("authorization", "Bearer phantom-1234", "/");
        assert_eq!(out, Ok(("Bearer the-value-99".to_owned(), "/".to_owned())));
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        for given in [
            format!("Basic {}", encode("user:phantom-1234")),
            format!("bAsIc  {}", encode("user:phantom-1234")),
            format!(
                "basic {}",
                encode("user:phantom-1234").trim_end_matches('=')
            ),
        ] {
            let out = rewrite("authorization", &given, "/");
            let wanted = format!("Basic {}", encode("user:the-value-99"));
            assert_eq!(out, Ok((wanted, "/".to_owned())), "{given}");
        }
    }

    #[test]
    fn a_percent_encoded_phantom_in_the_target_becomes_the_value_and_stays_a_target() {
        for (given, wanted) in [
            ("/p%68antom-1234", "/t%68e-value-99"),
            (
                "/x?k=%70%68%61%6e%74%6F%6D-1234&l=1",
                "/x?k=%74%68%65%2D%76%61%6Cue-99&l=1",
            ),
        ] {
            let out = rewrite("x", "1", given);
            assert_eq!(out, Ok(("1".to_owned(), wanted.to_owned())));
        }
        let out = rewrite("x", "1", "/x?k=phantom%235678&l=1");
        let wanted = "/x?k=odd%3Cval%75e%3E%7B%7D&l=1";
        assert_eq!(out.expect("no leak").1, wanted);
    }

    #[test]
    fn what_holds_no_phantom_is_left_exactly_as_it_was() {
        for value in [
            "Basic not/base64!",
            "Basic dXNlcjpwYXNz",
            "bearer x",
            "basic",
        ] {
            let out = rewrite("authorization", value, "/a?b=%20c");
            assert_eq!(out, Ok((value.to_owned(), "/a?b=%20c".to_owned())));
        }
    }

    #[test]
    fn a_phantom_of_another_host_stops_the_request_even_next_to_a_right_one() {
        let encoded = base64::engine::general_purpose::STANDARD.encode("u:phantom-5678");
        for (name, value, path, place) in [
            ("x", "phantom-1234 phantom-5678", "/", "header"),
            ("x", "1", "/phantom-1234/phantom-5678", "target"),
            ("x", "1", "/?a=phantom%2D5678", "target"),
            ("x", "https://b.com/?a=phantom%2d5678", "/", "header"),
            (
                "authorization",
                &format!("Basic {encoded}"),
                "/",
                "credentials",
            ),
        ] {
            assert_eq!(rewrite(name, value, path), Err(HeadError::Leak(1, place)));
        }
    }
}
