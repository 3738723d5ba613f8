//! Names of images as people type them, checked before they are put into an address or an argument list.

/// Longest reference, bytes.
const MAX: usize = 400;

/// Whether a text can be the name of an image: `[registry/]path[:tag]`, lower case as registries want it.
#[must_use]
pub fn is_image_name(text: &str) -> bool {
    let (path, tag) = split_tag(text);
    let good_tag = tag.is_none_or(|tag| {
        (1..=128).contains(&tag.len())
            && tag
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
            && !tag.starts_with(['.', '-'])
    });
    text.len() <= MAX && good_tag && is_path(path)
}

/// Whether a text can name an image that exists: a name, a name with digest, an id or the start of one.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    match text.split_once('@') {
        Some((name, digest)) => is_image_name(name) && is_digest(digest),
        None if text.starts_with("sha256:") => is_digest(text),
        None => is_image_name(text),
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        (8..=64).contains(&hex.len()) && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

fn is_path(path: &str) -> bool {
    let mut parts = path.split('/');
    let first = parts.next().unwrap_or_default();
    // Only the registry may have a port or capitals.
    let host = first.split_once(':').map_or(first, |(host, port)| {
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            ""
        } else {
            host
        }
    });
    let is_part = |part: &str, capitals: bool| {
        !part.is_empty()
            && part.bytes().all(|b| {
                b.is_ascii_lowercase()
                    || b.is_ascii_digit()
                    || b"._-".contains(&b)
                    || (capitals && b.is_ascii_uppercase())
            })
            && !part.starts_with(['.', '-', '_'])
            && !part.ends_with(['.', '-', '_'])
    };
    let rest: Vec<&str> = parts.collect();
    is_part(host, !rest.is_empty()) && rest.iter().all(|part| is_part(part, false))
}

/// A name without and its tag.
pub(super) fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    }
}

/// The name with a tag: `latest` when it has none.
pub(super) fn with_tag(name: &str) -> String {
    match split_tag(name).1 {
        Some(_) => name.to_owned(),
        None => format!("{name}:latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_other_texts() {
        for good in [
            "debian",
            "debian:13",
            "localhost/handler/pi:latest",
            "registry.example:5000/a/b_c.d:v1.0",
            "Registry.example/a",
        ] {
            assert!(is_image_name(good), "{good}");
            assert!(is_reference(good), "{good}");
        }
        for bad in [
            "", "-v", "--force", "a b", "a/../b", "A", "a:", "a:-x", "/a", "a/", "a//b", "a?b=c",
            "a%2f", "a#b", "a\nb", "host:x/a", ".a",
        ] {
            assert!(!is_image_name(bad), "{bad}");
            assert!(!is_reference(bad), "{bad}");
        }
        assert!(is_reference("sha256:0123abcd"));
        assert!(is_reference("a/b@sha256:0123abcd"));
        assert!(!is_reference("sha256:xyz00000"));
        assert!(!is_reference(&"a".repeat(500)));
    }

    #[test]
    fn a_port_is_no_tag() {
        assert_eq!(with_tag("h:5000/a"), "h:5000/a:latest");
        assert_eq!(with_tag("h:5000/a:1"), "h:5000/a:1");
        assert_eq!(with_tag("a"), "a:latest");
    }
}
