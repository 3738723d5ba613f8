//! The form of the sealed file and what seals it. Pure, but for random nonces.
//!
//! Each value is sealed on its own, bound to its path, so that two cannot be exchanged. A seal over the whole
//! (paths, sealed values, descriptions, times) notices an entry that was taken out or changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use handler_types::SecretValue;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use zeroize::Zeroize as _;

/// Form of the file.
pub(super) const FORMAT: &str = "handler.secrets/v1";
const NONCE: usize = 24;

/// The sealed file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SealedFile {
    pub(super) format: String,
    pub(super) entries: BTreeMap<String, Entry>,
    /// Seals the rest.
    seal: String,
}

/// One secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Entry {
    /// Base64 of nonce and sealed value.
    value: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    pub(super) created_ms: i64,
    pub(super) updated_ms: i64,
}

/// A seal does not fit: the file was changed, or the key is another.
#[derive(Debug)]
pub(super) struct BrokenSeal;

impl Entry {
    pub(super) fn seal(cipher: &XChaCha20Poly1305, path: &str, value: &SecretValue) -> Self {
        let now = handler_base::clock::now_ms();
        Self {
            value: seal(cipher, &value_label(path), value.expose().as_bytes()),
            description: None,
            created_ms: now,
            updated_ms: now,
        }
    }

    pub(super) fn open(
        &self,
        cipher: &XChaCha20Poly1305,
        path: &str,
    ) -> Result<SecretValue, BrokenSeal> {
        let plain = open(cipher, &value_label(path), &self.value)?;
        match String::from_utf8(plain) {
            Ok(text) => Ok(SecretValue::new(text)),
            Err(error) => {
                error.into_bytes().zeroize();
                Err(BrokenSeal)
            }
        }
    }
}

impl SealedFile {
    /// Seals entries as a file.
    pub(super) fn new(cipher: &XChaCha20Poly1305, entries: BTreeMap<String, Entry>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            seal: seal(cipher, &whole_label(&entries), &[]),
            entries,
        }
    }

    /// Checks that the entries are those that were sealed.
    pub(super) fn check(&self, cipher: &XChaCha20Poly1305) -> Result<(), BrokenSeal> {
        open(cipher, &whole_label(&self.entries), &self.seal).map(|_| ())
    }
}

fn value_label(path: &str) -> Vec<u8> {
    format!("{FORMAT} value {path}").into_bytes()
}

/// Stands for all entries. Each part goes in with its length, so that no two lists look alike.
fn whole_label(entries: &BTreeMap<String, Entry>) -> Vec<u8> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (path, entry) in entries {
        part(path.as_bytes());
        part(entry.value.as_bytes());
        match &entry.description {
            None => part(b"-"),
            Some(text) => {
                part(b"+");
                part(text.as_bytes());
            }
        }
        part(&entry.created_ms.to_le_bytes());
        part(&entry.updated_ms.to_le_bytes());
    }
    let mut label = format!("{FORMAT} whole ").into_bytes();
    label.extend_from_slice(&hash.finalize());
    label
}

fn seal(cipher: &XChaCha20Poly1305, aad: &[u8], msg: &[u8]) -> String {
    let nonce: [u8; NONCE] = handler_base::random::bytes();
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg, aad })
        .expect("a value of 64 KiB is far below the cipher's limit");
    let mut out = nonce.to_vec();
    out.extend_from_slice(&sealed);
    STANDARD.encode(out)
}

fn open(cipher: &XChaCha20Poly1305, aad: &[u8], text: &str) -> Result<Vec<u8>, BrokenSeal> {
    let bytes = STANDARD.decode(text).map_err(|_| BrokenSeal)?;
    let (nonce, msg) = bytes.split_first_chunk::<NONCE>().ok_or(BrokenSeal)?;
    cipher
        .decrypt(&XNonce::from(*nonce), Payload { msg, aad })
        .map_err(|_| BrokenSeal)
}
