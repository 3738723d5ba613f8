//! Paths on the wire: text that can name any path.
//!
//! Bytes that are not UTF-8 are written `\xNN`, a backslash `\\`; both are read back. Invariant: what
//! [`encode`] writes, [`decode_absolute`] reads as the same bytes.

use crate::fail;
use handler_types::guest::{GuestError, GuestErrorCode};
use std::fmt::Write as _;

/// Longest path taken, in bytes; what the system opens at once.
const MAX_PATH: usize = 4096;

/// Writes a path's bytes.
pub(crate) fn encode(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                text.push('\\');
            }
            text.push(character);
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Reads a path and checks that it is absolute. Doubled and trailing slashes and `.` parts are dropped.
pub(crate) fn decode_absolute(text: &str) -> Result<Vec<u8>, GuestError> {
    let invalid = |why: &str| fail(GuestErrorCode::Invalid, format!("path `{text}` {why}"));
    let raw = unescape(text)
        .ok_or_else(|| invalid(r"has a backslash that is neither `\\` nor `\xNN`"))?;
    if raw.first() != Some(&b'/') {
        return Err(invalid("is not absolute"));
    }
    if raw.contains(&0) {
        return Err(invalid("has a NUL byte"));
    }
    let mut path = Vec::with_capacity(raw.len());
    for part in raw.split(|byte| *byte == b'/') {
        if !part.is_empty() && part != b"." {
            path.push(b'/');
            path.extend_from_slice(part);
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    if path.len() >= MAX_PATH {
        return Err(fail(GuestErrorCode::Invalid, "path too long"));
    }
    Ok(path)
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [b'x', high, low, after @ ..] => {
                let digit = |byte: &u8| (*byte as char).to_digit(16);
                let value = digit(high)? * 16 + digit(low)?;
                bytes.push(u8::try_from(value).ok()?);
                rest = after;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// Splits a decoded path into its folder and last part. The root and a last part `..` have none.
pub(crate) fn split(path: &[u8]) -> Result<(&[u8], &[u8]), GuestError> {
    let none = || {
        let message = format!("path `{}` has no name of its own", encode(path));
        fail(GuestErrorCode::Invalid, message)
    };
    let slash = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .ok_or_else(none)?;
    let (folder, name) = (&path[..slash], &path[slash + 1..]);
    if name.is_empty() || name == b".." {
        return Err(none());
    }
    Ok((if folder.is_empty() { b"/" } else { folder }, name))
}

/// Puts a name below a folder.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_name_survives_the_wire(name in proptest::collection::vec(1u8..=255, 1..60)) {
            let name: Vec<u8> = name.into_iter().filter(|byte| *byte != b'/').collect();
            prop_assume!(!name.is_empty() && name != b".");
            let path = join(b"/", &name);
            prop_assert_eq!(decode_absolute(&encode(&path)).expect("encoded"), path);
        }

        #[test]
        fn any_text_is_a_path_or_an_error(text in ".{0,80}") {
            if let Ok(path) = decode_absolute(&text) {
                prop_assert_eq!(path[0], b'/');
                prop_assert_eq!(decode_absolute(&encode(&path)).expect("again"), path);
            }
        }
    }

    #[test]
    fn odd_paths_are_told_apart() {
        assert_eq!(decode_absolute("//a/./b//").expect("fine"), b"/a/b");
        assert_eq!(decode_absolute("/").expect("root"), b"/");
        assert_eq!(decode_absolute(r"/a\xff\\").expect("escaped"), b"/a\xff\\");
        assert_eq!(encode(b"/a\xff\\"), r"/a\xff\\");
        for bad in ["", "a", r"/\", r"/\x0", r"/\xzz", r"/\n", r"/\x00", "/a\0"] {
            assert!(decode_absolute(bad).is_err(), "{bad:?}");
        }
        assert!(split(b"/").is_err());
        assert!(split(b"/a/..").is_err());
        assert_eq!(
            split(b"/a").expect("below the root"),
            (&b"/"[..], &b"a"[..])
        );
    }
}
