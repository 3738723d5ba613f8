//! Bytes to lines, with the stream offset after each line.
//!
//! A line longer than the cap is skipped to its end and reported, so a broken agent can neither exhaust
//! memory nor put the decoder out of step.

/// What the decoder found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEvent {
    /// One line without its end.
    Line(Vec<u8>),
    /// A line above the cap was skipped.
    TooLong,
}

/// Splits a byte stream at `\n`.
#[derive(Debug)]
pub struct LineDecoder {
    partial: Vec<u8>,
    is_skipping: bool,
    cap: usize,
}

impl LineDecoder {
    /// A decoder for lines of up to `cap` bytes.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self::resume(cap, Vec::new(), false)
    }

    /// A decoder that has already seen the beginning of a line.
    #[must_use]
    pub fn resume(cap: usize, partial: Vec<u8>, is_skipping: bool) -> Self {
        Self {
            partial,
            is_skipping,
            cap,
        }
    }

    /// The beginning of the line under way.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        &self.partial
    }

    /// Whether the line under way is above the cap and thrown away.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    /// Takes a piece that ends at stream offset `end`; gives each completed line and the offset after it.
    pub fn push(&mut self, end: u64, bytes: &[u8]) -> Vec<(u64, LineEvent)> {
        let start = end.saturating_sub(bytes.len() as u64);
        let mut out = Vec::new();
        let mut from = 0;
        for newline in memchr::memchr_iter(b'\n', bytes) {
            let event = self.finish(&bytes[from..newline]);
            from = newline + 1;
            out.push((start + from as u64, event));
        }
        self.keep(&bytes[from..]);
        out
    }

    fn finish(&mut self, rest: &[u8]) -> LineEvent {
        self.keep(rest);
        if std::mem::take(&mut self.is_skipping) {
            return LineEvent::TooLong;
        }
        let mut line = std::mem::take(&mut self.partial);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        LineEvent::Line(line)
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.is_skipping {
            return;
        }
        if self.partial.len() + bytes.len() > self.cap {
            self.partial = Vec::new();
            self.is_skipping = true;
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_above_the_cap_is_skipped_and_the_next_one_is_whole() {
        let mut decoder = LineDecoder::new(4);
        assert_eq!(decoder.push(3, b"abc"), vec![]);
        assert_eq!(decoder.push(6, b"def"), vec![]);
        assert!(decoder.partial().is_empty() && decoder.is_skipping());
        assert_eq!(
            decoder.push(10, b"g\nx\n"),
            vec![
                (8, LineEvent::TooLong),
                (10, LineEvent::Line(b"x".to_vec()))
            ]
        );
    }

    #[test]
    fn a_carriage_return_before_the_end_is_not_part_of_the_line() {
        let mut decoder = LineDecoder::new(10);
        assert_eq!(
            decoder.push(4, b"a\r\n\n"),
            vec![
                (3, LineEvent::Line(b"a".to_vec())),
                (4, LineEvent::Line(vec![])),
            ]
        );
    }

    proptest! {
        /// However the stream is cut, the lines and their offsets are those of the whole stream.
        #[test]
        fn cuts_do_not_matter(
            stream in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..12),
            cap in 0usize..20,
            resume_at in any::<prop::sample::Index>(),
        ) {
            let mut whole = LineDecoder::new(cap);
            let expected = whole.push(stream.len() as u64, &stream);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(stream.len())).collect();
            cuts.push(stream.len());
            cuts.sort_unstable();
            let resume_at = resume_at.index(cuts.len());
            let (mut decoder, mut from, mut found) = (LineDecoder::new(cap), 0, Vec::new());
            for (i, cut) in cuts.into_iter().enumerate() {
                if i == resume_at {
                    decoder = LineDecoder::resume(cap, decoder.partial().to_vec(), decoder.is_skipping());
                }
                found.extend(decoder.push(cut as u64, &stream[from..cut]));
                prop_assert!(decoder.partial().len() <= cap);
                from = cut;
            }
            prop_assert_eq!(found, expected);
        }
    }
}
