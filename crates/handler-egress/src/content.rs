//! Which form the text of a body has, by its content type.

use crate::form::Form;
use http::header::{CONTENT_TYPE, HeaderMap};

/// JSON texts and streams of them, besides `…+json`.
const JSON: &[&str] = &[
    "application/json",
    "application/jsonl",
    "application/json-lines",
    "application/ndjson",
    "application/x-ndjson",
    "text/json",
];

/// The form of a message's body. What has no type, or one of another kind, may hold any escape.
pub(crate) fn form_of(headers: &HeaderMap) -> Form {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else {
        return Form::Loose;
    };
    let text = first.to_str().unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    if kind == "application/x-www-form-urlencoded" {
        Form::Percent
    } else if kind.ends_with("+json") || JSON.contains(&kind.as_str()) {
        Form::Json
    } else {
        Form::Loose
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_html_forms_are_known_by_their_type() {
        for (kind, form) in [
            ("application/json", Form::Json),
            (" Application/JSON ; charset=utf-8", Form::Json),
            ("application/vnd.api+json", Form::Json),
            ("application/x-ndjson", Form::Json),
            ("application/x-www-form-urlencoded", Form::Percent),
            ("text/event-stream", Form::Loose),
            ("application/jsonish", Form::Loose),
            ("", Form::Loose),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().expect("header"));
            assert_eq!(form_of(&headers), form, "{kind}");
        }
        let mut two = HeaderMap::new();
        two.append(CONTENT_TYPE, "application/json".parse().expect("header"));
        two.append(CONTENT_TYPE, "text/plain".parse().expect("header"));
        assert_eq!(form_of(&two), Form::Loose);
        assert_eq!(form_of(&HeaderMap::new()), Form::Loose);
    }
}
