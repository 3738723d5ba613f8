//! Buffers that tunnels share: taken when bytes are there, given back when they have gone on. Making and wiping one
//! for each read would cost more than the read.
//!
//! They hold what goes through tunnels that are not decrypted, where no value of a secret is.

use std::sync::{Mutex, PoisonError};

/// Bytes of one.
const SIZE: usize = 64 * 1024;
/// How many are kept when nobody uses them.
const KEPT: usize = 16;

static SHELF: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer on loan, empty when taken.
#[derive(Debug)]
pub(crate) struct Loan(pub(crate) Vec<u8>);

impl Loan {
    /// One that was kept, or a new one.
    pub(crate) fn take() -> Self {
        let kept = SHELF.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(kept.unwrap_or_else(|| Vec::with_capacity(SIZE)))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        let mut shelf = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
        if shelf.len() < KEPT {
            shelf.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_empty_when_taken_and_only_a_few_are_kept() {
        let mut many: Vec<Loan> = (0..KEPT + 5).map(|_| Loan::take()).collect();
        for loan in &mut many {
            assert!(loan.0.is_empty() && loan.0.capacity() >= SIZE);
            loan.0.extend_from_slice(b"bytes");
        }
        drop(many);
        assert!(SHELF.lock().expect("lock").len() <= KEPT);
        assert!(Loan::take().0.is_empty());
    }
}
