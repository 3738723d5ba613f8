//! The keys that let go of a terminal: found in what is typed, never passed on.

use crate::exit::Failure;

/// The usual keys: Ctrl-] and then d.
pub(super) const DEFAULT: &str = "ctrl-],d";

/// Watches for them.
#[derive(Debug)]
pub(super) struct DetachKeys {
    keys: Vec<u8>,
    /// How many of them were typed just now.
    seen: usize,
}

impl DetachKeys {
    /// Reads them as written: keys separated by commas, each one character or `ctrl-` and one; `none`: no keys.
    ///
    /// # Errors
    /// Anything else.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let keys = if text == "none" {
            Vec::new()
        } else {
            let keys = text.split(',').map(key).collect::<Option<Vec<u8>>>();
            keys.ok_or_else(|| {
                Failure::Usage(format!(
                    "--detach-keys {text}: write keys like `ctrl-],d` or `ctrl-p,ctrl-q`, or `none`"
                ))
            })?
        };
        Ok(Self { keys, seen: 0 })
    }

    /// What to pass on of what was typed, and whether the keys were among it.
    pub(super) fn take(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        if self.keys.is_empty() {
            return (typed.to_vec(), false);
        }
        let mut passed = Vec::with_capacity(typed.len());
        for &byte in typed {
            if byte == self.keys[self.seen] {
                self.seen += 1;
                if self.seen == self.keys.len() {
                    self.seen = 0;
                    return (passed, true);
                }
                continue;
            }
            // Typing the first key twice passes one of it on; anything else passes on all that was held.
            let held = std::mem::take(&mut self.seen);
            passed.extend_from_slice(&self.keys[..held]);
            if held > 0 && byte == self.keys[0] {
                continue;
            }
            if byte == self.keys[0] {
                self.seen = 1;
            } else {
                passed.push(byte);
            }
        }
        (passed, false)
    }
}

fn key(text: &str) -> Option<u8> {
    let name = text.trim().to_ascii_lowercase();
    if let Some(letter) = name.strip_prefix("ctrl-") {
        return match letter.as_bytes() {
            [c @ b'a'..=b'z'] => Some(c - b'a' + 1),
            [c @ b'@'..=b'_'] => Some(c - b'@'),
            _ => None,
        };
    }
    match text.trim().as_bytes() {
        [c @ 0x21..=0x7e] => Some(*c),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_however_they_come_and_others_pass() {
        let mut keys = DetachKeys::parse(DEFAULT).expect("keys");
        assert_eq!(keys.take(b"abc"), (b"abc".to_vec(), false));
        assert_eq!(keys.take(b"x\x1d"), (b"x".to_vec(), false));
        assert_eq!(keys.take(b"y"), (b"\x1dy".to_vec(), false));
        assert_eq!(keys.take(b"\x1d\x1dz"), (b"\x1dz".to_vec(), false));
        assert_eq!(keys.take(b"q\x1dd after"), (b"q".to_vec(), true));
        assert_eq!(keys.take(b"\x1d"), (Vec::new(), false));
        assert_eq!(keys.take(b"d"), (Vec::new(), true));
        let mut none = DetachKeys::parse("none").expect("none");
        assert_eq!(none.take(b"\x1dd"), (b"\x1dd".to_vec(), false));
        assert_eq!(
            DetachKeys::parse("ctrl-p,ctrl-q").expect("keys").keys,
            [16, 17]
        );
        assert!(DetachKeys::parse("ctrl-").is_err());
        assert!(DetachKeys::parse("").is_err());
    }
}
