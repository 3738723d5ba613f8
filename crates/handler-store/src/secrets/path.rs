//! The form of a secret's path: `providers/openrouter/apiKey`.

use super::SecretError;

/// Longest path, in characters.
const MAX_LENGTH: usize = 200;
/// Most segments.
const MAX_SEGMENTS: usize = 8;

/// Checks a path: 1 to 8 segments of letters, digits, `_`, `.` and `-`, none starting with a dot, at
/// most 200 characters.
///
/// # Errors
/// [`SecretError::InvalidPath`] says which rule is broken.
pub fn check_path(path: &str) -> Result<(), SecretError> {
    let wrong = |rule| Err(SecretError::InvalidPath { rule });
    if path.len() > MAX_LENGTH {
        return wrong("it is longer than 200 characters");
    }
    if path.split('/').count() > MAX_SEGMENTS {
        return wrong("it has more than 8 segments");
    }
    for segment in path.split('/') {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if segment.is_empty() {
            return wrong("it has an empty segment");
        }
        if segment.starts_with('.') {
            return wrong("a segment starts with a dot");
        }
        if !segment.bytes().all(is_plain) {
            return wrong("a segment may hold letters, digits, `_`, `.` and `-` only");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_rules() {
        let long = "a".repeat(200);
        for good in [
            "a",
            "providers/openrouter/apiKey",
            "A.b-c_9",
            "1/2/3/4/5/6/7/8",
            &long,
        ] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        let longer = "a".repeat(201);
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            ".",
            "..",
            "a/../b",
            ".a",
            "a/.b",
            "a b",
            "ä",
            "a\0",
            "a\n",
            "a\\b",
            "1/2/3/4/5/6/7/8/9",
            &longer,
        ] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
    }
}
