//! Standard input of one process: what the host sent and the process has not taken yet.
//!
//! Owns the offsets of input. Invariant: at most [`INPUT_WINDOW`] bytes are held; bytes already here
//! are ignored and gaps are refused, so sending again after a lost link neither doubles nor loses.

use crate::fail;
use handler_types::guest::{GuestError, GuestErrorCode, INPUT_WINDOW};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Bytes the process has taken.
    taken: u64,
    /// Bytes it has not.
    waiting: VecDeque<u8>,
    /// Where the input ends, once the host said so.
    close_at: Option<u64>,
    /// Nobody reads any more: input is counted and thrown away, as a shell does with a closed pipe.
    gone: bool,
}

impl Input {
    /// Bytes the process has taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    fn end(&self) -> u64 {
        self.taken + self.waiting.len() as u64
    }

    /// Takes a frame from the host.
    pub(crate) fn accept(&mut self, offset: u64, data: &[u8]) -> Result<(), GuestError> {
        let end = self.end();
        let invalid = |text: String| Err(fail(GuestErrorCode::Invalid, text));
        if offset > end {
            return invalid(format!("input at {offset} leaves a gap after {end}"));
        }
        let Some(data_end) = offset.checked_add(data.len() as u64) else {
            return invalid("input offset out of range".to_owned());
        };
        if data_end <= end {
            return Ok(());
        }
        if self.close_at.is_some_and(|close| data_end > close) {
            return invalid(format!("input up to {data_end} after it was closed"));
        }
        if data_end - self.taken > INPUT_WINDOW {
            let message = format!(
                "input up to {data_end} is more than {INPUT_WINDOW} bytes ahead of {}",
                self.taken
            );
            return Err(fail(GuestErrorCode::Limit, message));
        }
        if self.gone {
            self.taken = data_end;
            return Ok(());
        }
        let skip = usize::try_from(end - offset).unwrap_or(usize::MAX);
        self.waiting.extend(data.get(skip..).unwrap_or_default());
        Ok(())
    }

    /// Notes where the input ends.
    pub(crate) fn close_at(&mut self, at: u64) -> Result<(), GuestError> {
        let end = self.end();
        if at < end || self.close_at.is_some_and(|close| close != at) {
            let message = format!("input cannot end at {at}: {end} bytes are here already");
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        self.close_at = Some(at);
        Ok(())
    }

    /// What to write next; empty when nothing waits.
    pub(crate) fn next(&self) -> &[u8] {
        self.waiting.as_slices().0
    }

    /// Notes that the process took `count` bytes of [`Self::next`].
    pub(crate) fn advance(&mut self, count: usize) {
        let count = count.min(self.waiting.len());
        self.waiting.drain(..count);
        self.taken += count as u64;
        if self.waiting.is_empty() {
            self.waiting.shrink_to(4096);
        }
    }

    /// Whether all input was taken and no more will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.gone || self.close_at == Some(self.taken)
    }

    /// Nobody reads any more.
    pub(crate) fn abandon(&mut self) {
        self.taken = self.end();
        self.waiting = VecDeque::new();
        self.gone = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sent_again_are_ignored_and_gaps_refused() {
        let mut input = Input::default();
        input.accept(0, b"hello").expect("first");
        input.accept(3, b"lo world").expect("overlap");
        input.accept(0, b"hello").expect("again");
        assert_eq!(input.next(), b"hello world");
        assert!(input.accept(12, b"x").is_err());
        input.advance(6);
        assert_eq!(input.taken(), 6);
        input.accept(0, b"hello world!").expect("from the start");
        assert_eq!(input.waiting.iter().copied().collect::<Vec<_>>(), b"world!");
    }

    #[test]
    fn the_window_is_kept_whatever_the_host_does() {
        let mut input = Input::default();
        let window = INPUT_WINDOW as usize;
        input.accept(0, &vec![1; window]).expect("a full window");
        let error = input.accept(window as u64, b"x").expect_err("one more");
        assert_eq!(error.code, GuestErrorCode::Limit);
        input.advance(1);
        input.accept(window as u64, b"x").expect("room again");
        assert!(input.accept(u64::MAX, b"xx").is_err());
    }

    #[test]
    fn the_end_comes_after_all_was_taken() {
        let mut input = Input::default();
        input.close_at(3).expect("ahead of the bytes");
        assert!(!input.is_finished());
        input.accept(0, b"abc").expect("up to the end");
        assert!(input.accept(3, b"d").is_err());
        assert!(input.close_at(2).is_err());
        input.close_at(3).expect("said again");
        input.advance(3);
        assert!(input.is_finished());
    }

    #[test]
    fn input_for_nobody_is_counted_and_thrown_away() {
        let mut input = Input::default();
        input.accept(0, b"abc").expect("held");
        input.abandon();
        assert_eq!(input.taken(), 3);
        input.accept(3, b"def").expect("thrown away");
        assert_eq!(input.taken(), 6);
        assert!(input.next().is_empty());
    }
}
