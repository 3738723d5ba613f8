//! A secret value in memory: never shown, never serialised.

use std::fmt;

/// A secret. It has no `Display`, its `Debug` prints `***`, and it cannot be serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// Takes the text in.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The value, for the one place that hands it on.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for SecretValue {
    fn drop(&mut self) {
        // Best effort without unsafe code: the buffer is overwritten before it is given back.
        let len = self.0.len();
        self.0.clear();
        self.0.extend(std::iter::repeat_n('\0', len));
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(
            format!("{:?}", SecretValue::new("sk-very-secret".into())),
            "***"
        );
    }
}
