//! The first message of a TLS client, read out of its records as they come. Pure.
//!
//! Invariant: what is not exactly one well-formed `ClientHello` is [`Malformed`]; a byte is looked at
//! a fixed number of times however the bytes were split; at most [`LONGEST_HELLO`] are kept.

use std::cmp::Ordering;

/// Longest message that is put together, bytes.
const LONGEST_HELLO: usize = 64 * 1024;
/// Longest fragment a record may hold, bytes.
const LONGEST_FRAGMENT: usize = 1 << 14;
const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;
const TYPE_HANDSHAKE: u8 = 22;
const TYPE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_IS_HOST: u8 = 0;

/// What a greeting says, as far as it concerns us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientHello {
    /// The server name, lower case. With Encrypted Client Hello it is the outer one.
    pub(crate) server_name: Option<String>,
}

/// Bytes that begin like TLS and are no greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A greeting that is being read.
#[derive(Debug, Default)]
pub(crate) struct HelloReader {
    head: Vec<u8>,
    /// Bytes of the current record that are still to come.
    left: usize,
    message: Vec<u8>,
}

impl HelloReader {
    /// Takes bytes as they come from the wire; gives the greeting once it is whole.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<Option<ClientHello>, Malformed> {
        while let Some(first) = bytes.first() {
            if self.left == 0 {
                self.head.push(*first);
                bytes = &bytes[1..];
                self.open_record()?;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            self.left -= now.len();
            bytes = later;
            self.message.extend_from_slice(now);
            if let Some(hello) = self.finished()? {
                return Ok(Some(hello));
            }
        }
        Ok(None)
    }

    /// Judges what is there of a record's head. Other records have no business before a greeting:
    /// some servers skip them, and would then read a greeting that nobody has looked at.
    fn open_record(&mut self) -> Result<(), Malformed> {
        let wrong = match *self.head.as_slice() {
            [kind] => kind != TYPE_HANDSHAKE,
            [_, major] => major != 3,
            [_, _, _, high, low] => {
                self.left = usize::from(u16::from_be_bytes([high, low]));
                !(1..=LONGEST_FRAGMENT).contains(&self.left)
            }
            _ => false,
        };
        if wrong {
            return Err(Malformed);
        }
        if self.head.len() == RECORD_HEAD {
            self.head.clear();
        }
        Ok(())
    }

    fn finished(&self) -> Result<Option<ClientHello>, Malformed> {
        if self.message[0] != TYPE_CLIENT_HELLO {
            return Err(Malformed);
        }
        let Some((head, body)) = self.message.split_at_checked(MESSAGE_HEAD) else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([0, head[1], head[2], head[3]]))
            .map_err(|_| Malformed)?;
        if length > LONGEST_HELLO {
            return Err(Malformed);
        }
        match body.len().cmp(&length) {
            Ordering::Less => Ok(None),
            // A greeting ends its record; nothing else is in there with it.
            Ordering::Equal if self.left == 0 => parse(body).ok_or(Malformed).map(Some),
            _ => Err(Malformed),
        }
    }
}

/// Bytes taken from the front, or nothing at all.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A vector with a length of one byte in front.
    fn vector8(&mut self) -> Option<Reader<'a>> {
        let length = self.byte()?;
        self.take(length.into()).map(Reader)
    }

    /// A vector with a length of two bytes in front.
    fn vector16(&mut self) -> Option<Reader<'a>> {
        let length = self.short()?;
        self.take(length.into()).map(Reader)
    }
}

fn parse(body: &[u8]) -> Option<ClientHello> {
    let mut body = Reader(body);
    let [3, _] = body.take(2)? else { return None };
    body.take(32)?;
    let session = body.vector8()?;
    let suites = body.vector16()?;
    let compressions = body.vector8()?;
    let formed = session.0.len() <= 32
        && !suites.0.is_empty()
        && suites.0.len().is_multiple_of(2)
        && !compressions.0.is_empty();
    if !formed {
        return None;
    }
    if body.0.is_empty() {
        // A client from before extensions.
        return Some(ClientHello { server_name: None });
    }
    let extensions = body.vector16()?;
    if !body.0.is_empty() {
        return None;
    }
    find_name(extensions)
}

fn find_name(mut extensions: Reader<'_>) -> Option<ClientHello> {
    let mut server_name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.short()?;
        let content = extensions.vector16()?;
        if kind != EXTENSION_SERVER_NAME {
            continue;
        }
        if server_name.is_some() {
            // Of two names each reader might believe another one.
            return None;
        }
        server_name = Some(parse_name(content)?);
    }
    Some(ClientHello { server_name })
}

/// The one name of the extension. A list of several, or of a kind that nobody has defined, is refused.
fn parse_name(mut content: Reader<'_>) -> Option<String> {
    let mut list = content.vector16()?;
    if !content.0.is_empty() || list.byte()? != NAME_IS_HOST {
        return None;
    }
    let name = list.vector16()?;
    let plain = !name.0.is_empty() && name.0.iter().all(u8::is_ascii_graphic);
    if !list.0.is_empty() || !plain {
        return None;
    }
    let text = std::str::from_utf8(name.0).ok()?;
    Some(text.to_ascii_lowercase())
}

#[cfg(test)]
pub(crate) mod tests;
