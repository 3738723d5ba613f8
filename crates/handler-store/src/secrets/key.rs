//! The key file: 64 hex digits, 0600, made on first use.

use super::SecretError;
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use zeroize::Zeroizing;

const BYTES: usize = 32;

/// Reads the key; none when there is no file.
pub(super) fn read(path: &Path) -> Result<Option<XChaCha20Poly1305>, SecretError> {
    let io = |source| SecretError::Io {
        path: path.to_owned(),
        source,
    };
    // Not waiting for a writer, should the name be a pipe's.
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let bad = |reason| SecretError::BadKey {
        key: path.to_owned(),
        reason,
    };
    check_private(&file.metadata().map_err(io)?).map_err(bad)?;
    let mut text = Zeroizing::new([0u8; 2 * BYTES]);
    file.read_exact(&mut text[..])
        .map_err(|_| bad("it is too short"))?;
    let mut rest = [0u8; 2];
    let more = file.read(&mut rest).map_err(io)?;
    if !matches!((more, rest), (0, _) | (1, [b'\n', _])) {
        return Err(bad("it is too long"));
    }
    let key = decode(&text).ok_or_else(|| bad("it is not 64 hex digits"))?;
    Ok(Some(XChaCha20Poly1305::new((&*key).into())))
}

/// Makes a key. Fails when the file is there: two programs never make two keys.
pub(super) fn create(path: &Path) -> Result<XChaCha20Poly1305, SecretError> {
    let key = Zeroizing::new(handler_base::random::bytes::<BYTES>());
    let mut text = Zeroizing::new(String::with_capacity(2 * BYTES + 1));
    for byte in key.iter() {
        text.push(hex_digit(byte >> 4));
        text.push(hex_digit(byte & 15));
    }
    text.push('\n');
    write_new(path, text.as_bytes()).map_err(|source| SecretError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(XChaCha20Poly1305::new((&*key).into()))
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key would lock the store for good.
        std::fs::remove_file(path).ok();
        return written;
    }
    // The name must be on the disk before anything is sealed with the key.
    path.parent()
        .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn check_private(meta: &std::fs::Metadata) -> Result<(), &'static str> {
    if !meta.is_file() {
        return Err("it is not a file");
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user");
    }
    if meta.mode() & 0o077 != 0 {
        return Err("others can read or change it: run chmod 600 on it");
    }
    Ok(())
}

fn decode(text: &[u8; 2 * BYTES]) -> Option<Zeroizing<[u8; BYTES]>> {
    let mut key = Zeroizing::new([0u8; BYTES]);
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |b: u8| {
            char::from(b)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(key)
}

fn hex_digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).expect("four bits are a hex digit")
}
