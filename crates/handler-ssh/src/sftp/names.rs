//! Paths as clients write them and as the guest writes them.
//!
//! The guest writes bytes that are not UTF-8 as `\xNN` and a backslash as `\\`; a client sees them so too, and may
//! send them so. (A name that really contains such a sequence, backslash included, cannot be named by a client.)

/// A client's path made absolute, without `.`, `..` and doubled slashes, links left as they are.
pub(crate) fn absolute(path: &str, workdir: &str, home: &str) -> String {
    let whole = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{workdir}/{path}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// For the guest.
pub(crate) fn to_guest(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for (at, c) in path.char_indices() {
        text.push(c);
        if c == '\\' && !is_escape(&path[at..]) {
            text.push('\\');
        }
    }
    text
}

fn is_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 4
        && bytes[1] == b'x'
        && matches!(bytes[2], b'8' | b'9' | b'a'..=b'f')
        && matches!(bytes[3], b'0'..=b'9' | b'a'..=b'f')
}

/// For the client.
pub(crate) fn from_guest(path: &str) -> String {
    path.replace("\\\\", "\\")
}

/// What follows the last slash.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// What comes before the last slash, `/` for the top.
pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_stay_below_the_top() {
        let of = |path| absolute(path, "/work/a", "/home/agent");
        assert_eq!(of("."), "/work/a");
        assert_eq!(of(""), "/work/a");
        assert_eq!(of("b//c/./d/../e"), "/work/a/b/c/e");
        assert_eq!(of("/x/../../../etc"), "/etc");
        assert_eq!(of("~"), "/home/agent");
        assert_eq!(of("~/f"), "/home/agent/f");
        assert_eq!(of("~other"), "/work/a/~other");
        assert_eq!((parent("/a"), last("/a")), ("/", "a"));
        assert_eq!((parent("/a/b"), last("/a/b")), ("/a", "b"));
    }

    #[test]
    fn backslashes_are_escaped_for_the_guest_and_odd_bytes_kept() {
        assert_eq!(to_guest(r"/a\b"), r"/a\\b");
        assert_eq!(to_guest(r"/a\xff\x41"), r"/a\xff\\x41");
        assert_eq!(from_guest(r"/a\\b"), r"/a\b");
        assert_eq!(from_guest(r"/a\xff"), r"/a\xff");
        assert_eq!(to_guest("/ü\\"), "/ü\\\\");
    }
}
