//! Where the four protocols put the caller's key, and whether it is the expected one.

/// Every key the request offers, in no particular protocol's favour.
pub(crate) fn offered(headers: &[(String, String)], query: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in headers {
        match name.as_str() {
            "authorization" => found.extend(bearer(value)),
            "x-api-key" | "x-goog-api-key" => found.push(value.trim().to_owned()),
            _ => {}
        }
    }
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    found.extend(
        pairs
            .filter(|(name, _)| *name == "key")
            .map(|(_, value)| unescape(value)),
    );
    found.retain(|key| !key.is_empty());
    found
}

/// Whether one of the offered keys is the expected one; always true when none is expected.
pub(crate) fn accepted(expected: Option<&str>, headers: &[(String, String)], query: &str) -> bool {
    expected.is_none_or(|key| offered(headers, query).iter().any(|offer| offer == key))
}

fn bearer(value: &str) -> Option<String> {
    let (scheme, key) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| key.trim().to_owned())
}

/// Undoes percent escapes; what is not a valid escape stays as it is.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn the_key_is_found_wherever_a_protocol_puts_it() {
        for (name, value) in [
            ("authorization", "bearer K"),
            ("x-api-key", "K"),
            ("x-goog-api-key", " K "),
        ] {
            assert_eq!(offered(&header(name, value), ""), ["K"], "{name}");
        }
        assert_eq!(offered(&[], "alt=sse&key=a%2Fb%zz"), ["a/b%zz"]);
    }

    #[test]
    fn a_wrong_missing_or_differently_placed_key_is_refused() {
        assert!(accepted(None, &[], ""));
        assert!(!accepted(Some("K"), &[], ""));
        assert!(!accepted(
            Some("K"),
            &header("authorization", "Basic K"),
            ""
        ));
        assert!(!accepted(Some("K"), &header("x-api-key", "K2"), "key="));
        assert!(accepted(Some("K"), &header("x-api-key", "other"), "key=K"));
    }
}
