//! Digests: `sha256:` and 64 lower-case hex digits, and nothing else.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io::{self, Read, Write};

/// A content address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Digest(String);

impl Digest {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::from_hash(Sha256::digest(bytes).as_slice())
    }

    fn from_hash(hash: &[u8]) -> Self {
        Self(hash.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// From its 64 hex digits.
    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == 64 && hex.bytes().all(digit)).then(|| Self(hex.to_owned()))
    }

    /// Its hex digits: safe as a file name.
    pub(crate) fn hex(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.strip_prefix("sha256:")
            .and_then(Self::from_hex)
            .ok_or_else(|| format!("{text:?} is no sha256 digest"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// Takes the digest of everything that is read or written through it.
pub(crate) struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::from_hash(self.hash.clone().finalize().as_slice())
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.hash.update(&into[..read]);
        Ok(read)
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_sha256_digests_are_taken() {
        let good = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(
            Digest::try_from(good.clone()).map(|d| d.to_string()),
            Ok(good)
        );
        for bad in [
            "",
            "sha256:",
            "sha256:../x",
            &"a".repeat(64),
            &format!("sha256:{}", "0A".repeat(32)),
            "sha512:00",
        ] {
            assert!(Digest::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
