//! Random bytes from the system.

/// Fills an array with random bytes.
///
/// # Panics
/// When the system has no randomness, which leaves nothing safe to do.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    getrandom::fill(&mut out).expect("the system provides randomness");
    out
}

/// `n` random bytes as lower-case hex.
///
/// # Panics
/// As [`bytes`].
#[must_use]
pub fn hex(n: usize) -> String {
    let mut out = vec![0; n];
    getrandom::fill(&mut out).expect("the system provides randomness");
    out.iter().map(|b| format!("{b:02x}")).collect()
}
