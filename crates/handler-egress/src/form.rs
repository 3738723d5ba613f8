//! How the characters of a needle can stand in a text: as they are, as JSON escapes, percent-encoded. Pure.
//!
//! What replaces a needle is written character by character in the manner of what stood there, so a text
//! that was well-formed stays so, whatever surrounds the needle.

/// The bytes with which escapes begin.
pub(crate) const MARKS: (u8, u8) = (b'\\', b'%');
/// Most bytes in which one character can stand: `\u0041`.
pub(crate) const WIDEST: usize = 6;

/// What a text is. Both escapes are read in any, for JSON holds URLs and HTML forms hold JSON; the form
/// tells how a character is written that cannot stand as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A JSON text: characters that end or escape a string are written as `\u0022`.
    Json,
    /// A request target or an HTML form: characters with a meaning there are written as `%26`.
    Percent,
    /// Anything else: every character is written as the one in its place was, so the length never
    /// changes.
    Loose,
}

/// What stands at the beginning of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// No escape of a printable character.
    Not,
    /// What could be one, once more bytes are there.
    Cut,
    /// This character, in so many bytes.
    Is(u8, usize),
}

/// Whether a needle stands at the beginning of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// It does not.
    No,
    /// So far, yes; more bytes decide.
    Cut,
    /// It does: in so many bytes, read with escapes or without.
    Whole(usize, bool),
}

/// Whether the text holds an escape that `matters`, or ends in what could be one.
pub(crate) fn has_escapes(text: &[u8], matters: impl Fn(u8) -> bool) -> bool {
    memchr::memchr2_iter(MARKS.0, MARKS.1, text).any(|at| match escape(&text[at..]) {
        Escape::Not => false,
        Escape::Cut => true,
        Escape::Is(byte, _) => matters(byte),
    })
}

fn escape(text: &[u8]) -> Escape {
    match text.first() {
        Some(b'%') => hex(text, 1),
        Some(b'\\') => match text.get(1) {
            None => Escape::Cut,
            Some(byte) if has_short_escape(*byte) => Escape::Is(*byte, 2),
            Some(b'u') => match b"00".iter().zip(&text[2..]).all(|(a, b)| a == b) {
                true if text.len() < 4 => Escape::Cut,
                true => hex(text, 4),
                false => Escape::Not,
            },
            Some(_) => Escape::Not,
        },
        _ => Escape::Not,
    }
}

impl Form {
    /// Whether `needle` stands at the beginning of `text`, where `replacement` would be put. With `last`
    /// no more bytes come.
    pub(crate) fn matches(
        self,
        text: &[u8],
        needle: &[u8],
        replacement: Option<&[u8]>,
        last: bool,
    ) -> Match {
        match self.matches_escaped(text, needle, replacement, last) {
            Match::No if text.starts_with(needle) => Match::Whole(needle.len(), false),
            Match::No if !last && text.len() < needle.len() && needle.starts_with(text) => {
                Match::Cut
            }
            decided => decided,
        }
    }

    fn matches_escaped(
        self,
        text: &[u8],
        needle: &[u8],
        replacement: Option<&[u8]>,
        last: bool,
    ) -> Match {
        let mut at = 0;
        for (place, wanted) in needle.iter().enumerate() {
            let rest = &text[at..];
            let put = replacement.map(|replacement| replacement[place]);
            at += match escape(rest) {
                Escape::Is(byte, length) if byte == *wanted && self.can_hold(length, byte, put) => {
                    length
                }
                Escape::Cut if !last => return Match::Cut,
                _ => match rest.first() {
                    Some(byte) if byte == wanted => 1,
                    None if !last => return Match::Cut,
                    _ => return Match::No,
                },
            };
        }
        Match::Whole(at, true)
    }

    /// Whether `put` can stand where `byte` stood in so many bytes.
    fn can_hold(self, length: usize, byte: u8, put: Option<u8>) -> bool {
        self != Self::Loose
            || length != 2
            || put.is_none_or(|put| put == byte || has_short_escape(put))
    }

    /// Writes the replacement of a needle that was found as `text`.
    pub(crate) fn replace(
        self,
        text: &[u8],
        escaped: bool,
        needle: &[u8],
        replacement: &[u8],
        out: &mut Vec<u8>,
    ) {
        let mut at = 0;
        for (was, put) in needle.iter().zip(replacement) {
            let length = match escape(&text[at..]) {
                Escape::Is(byte, length)
                    if escaped && byte == *was && self.can_hold(length, byte, Some(*put)) =>
                {
                    length
                }
                _ => 1,
            };
            if was == put {
                out.extend_from_slice(&text[at..at + length]);
            } else {
                self.write(*put, length, out);
            }
            at += length;
        }
    }

    /// Writes a character in the manner of one that stood in so many bytes.
    fn write(self, byte: u8, length: usize, out: &mut Vec<u8>) {
        match length {
            1 if self.holds_plain(byte) => out.push(byte),
            2 if has_short_escape(byte) => out.extend_from_slice(&[b'\\', byte]),
            3 => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            1 if self == Self::Percent => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            _ => out.extend_from_slice(format!("\\u00{byte:02x}").as_bytes()),
        }
    }

    /// Whether a character can stand unescaped.
    fn holds_plain(self, byte: u8) -> bool {
        match self {
            Self::Json => !matches!(byte, b'"' | b'\\'),
            Self::Percent => byte.is_ascii_alphanumeric() || b"-._~!*'(),:@$".contains(&byte),
            Self::Loose => true,
        }
    }

    /// Whether `replacement` has in every manner the length of `needle`.
    pub(crate) fn keeps_length(self, needle: &[u8], replacement: &[u8]) -> bool {
        needle.iter().zip(replacement).all(|(was, put)| {
            was == put || self == Self::Loose || (self.holds_plain(*put) && !has_short_escape(*was))
        })
    }
}

/// Whether JSON has an escape of two bytes for this printable character.
fn has_short_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'/')
}

/// Two hexadecimal digits from `from` on, the end of an escape.
fn hex(text: &[u8], from: usize) -> Escape {
    let digit = |at: usize| text.get(at).map(|byte| char::from(*byte).to_digit(16));
    match (digit(from), digit(from + 1)) {
        (Some(Some(high)), Some(Some(low))) => match u8::try_from(high * 16 + low) {
            Ok(byte) => Escape::Is(byte, from + 2),
            Err(_) => Escape::Not,
        },
        (None, _) | (Some(Some(_)), None) => Escape::Cut,
        _ => Escape::Not,
    }
}
