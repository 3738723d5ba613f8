//! The place in a list where a page ended: creation time and id of its last row.

use super::error::StoreError;

/// Rows asked for when the caller does not say.
const DEFAULT_LIMIT: u32 = 50;
/// Most rows of one page.
const MAX_LIMIT: u32 = 500;
/// Longest id.
const MAX_ID: usize = 64;

/// A cursor; its text is opaque to callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) created_ms: i64,
    pub(crate) id: String,
}

impl Cursor {
    /// Reads the text a page gave.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let (time, id) = text.split_once('.').ok_or(StoreError::BadCursor)?;
        let is_id = !id.is_empty()
            && id.len() <= MAX_ID
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let created_ms = i64::from_str_radix(time, 16).map_err(|_| StoreError::BadCursor)?;
        if !is_id {
            return Err(StoreError::BadCursor);
        }
        Ok(Self {
            created_ms,
            id: id.to_owned(),
        })
    }

    /// The text to give out.
    pub(crate) fn to_text(&self) -> String {
        // `{:x}` of a negative number would print its bits; times before 1970 have no place here.
        format!("{:x}.{}", self.created_ms.max(0), self.id)
    }
}

/// Brings a wanted page size into 1..=500; absent means 50.
pub(crate) fn page_limit(wanted: Option<u32>) -> u32 {
    wanted.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_others_are_refused() {
        let cursor = Cursor {
            created_ms: 1_796_000_000_123,
            id: "sb0102030405060708".to_owned(),
        };
        assert_eq!(Cursor::parse(&cursor.to_text()).expect("own text"), cursor);
        for text in [
            "",
            ".",
            "12",
            "xyz.sb01",
            "1.",
            "1.a'b",
            "fffffffffffffffff.a",
        ] {
            assert!(Cursor::parse(text).is_err(), "{text}");
        }
    }
}
