//! Parts of files by the `Range` header: one range of bytes. Several at once, and other units, are answered with the
//! whole, as the standard allows.

use super::problem::ApiError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use handler_types::ProblemCode;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// From a byte to another, or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

/// A part that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u64,
    /// Bytes, not 0.
    pub(super) length: u64,
}

/// Reads the header; none when the whole is to be sent.
pub(super) fn parse(text: &str) -> Option<Wanted> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>();
    if first.trim().is_empty() {
        return Some(Wanted::Last(number(last).ok()?));
    }
    let first = number(first).ok()?;
    if last.trim().is_empty() {
        return Some(Wanted::From(first, None));
    }
    let last = number(last).ok()?;
    (first <= last).then_some(Wanted::From(first, Some(last)))
}

impl Wanted {
    /// What of it is in a file of `size` bytes; none: nothing.
    pub(super) fn within(self, size: u64) -> Option<Part> {
        let (start, end) = match self {
            Self::From(first, last) => (first, last.map_or(size, |last| last.saturating_add(1))),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        let length = end
            .min(size)
            .checked_sub(start)
            .filter(|length| *length > 0)?;
        Some(Part { start, length })
    }
}

impl Part {
    /// The `Content-Range` header.
    pub(super) fn header(self, size: u64) -> HeaderValue {
        let last = self.start + self.length - 1;
        let text = format!("bytes {}-{last}/{size}", self.start);
        text.parse().expect("digits and blanks are a header value")
    }
}

/// The answer when nothing of it is there.
pub(super) fn unsatisfiable(size: u64) -> Response {
    let mut problem = ApiError::new(
        ProblemCode::Invalid,
        format!("the range lies outside the file, which has {size} bytes"),
    );
    problem.0.status = StatusCode::RANGE_NOT_SATISFIABLE.as_u16();
    let mut response = problem.into_response();
    if let Ok(value) = format!("bytes */{size}").parse() {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file_and_odd_ones_mean_the_whole() {
        let part = |text: &str, size| parse(text).expect("a range").within(size);
        let found = |start, length| Some(Part { start, length });
        assert_eq!(part("bytes=0-0", 10), found(0, 1));
        assert_eq!(part("bytes=3-", 10), found(3, 7));
        assert_eq!(part("bytes=3-99", 10), found(3, 7));
        assert_eq!(part("bytes=-4", 10), found(6, 4));
        assert_eq!(part("bytes=-40", 10), found(0, 10));
        assert_eq!(part("bytes=0-18446744073709551615", 10), found(0, 10));
        for none in ["bytes=10-", "bytes=-0", "bytes=11-20"] {
            assert_eq!(part(none, 10), None, "{none}");
        }
        assert_eq!(part("bytes=-5", 0), None);
        for odd in [
            "",
            "bytes=",
            "bytes=a-b",
            "bytes=5-3",
            "lines=1-2",
            "bytes=0-1,3-4",
            "bytes=--1",
        ] {
            assert_eq!(parse(odd), None, "{odd}");
        }
        assert_eq!(
            Part {
                start: 3,
                length: 7
            }
            .header(10),
            "bytes 3-9/10"
        );
    }
}
