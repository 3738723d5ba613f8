//! The head of a WebSocket frame (RFC 6455, 5.2).

use super::Broken;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    /// More of a message.
    Continuation,
    /// A message of text.
    Text,
    /// A message of bytes.
    Binary,
    /// The end.
    Close,
    /// A question whether the other is there.
    Ping,
    /// The answer.
    Pong,
}

impl Opcode {
    fn read(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn code(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    /// Whether it may stand between the fragments of a message.
    pub(crate) fn is_control(self) -> bool {
        self.code() >= 8
    }
}

/// A head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Whether its message ends with it.
    pub(crate) last: bool,
    /// What it is.
    pub(crate) opcode: Opcode,
    /// What its payload is masked with.
    pub(crate) key: Option<[u8; 4]>,
    /// Length of its payload.
    pub(crate) length: u64,
}

impl Head {
    /// Moves bytes from `data` to `bytes` until a head is there.
    pub(crate) fn read(bytes: &mut Vec<u8>, data: &mut &[u8]) -> Result<Option<Self>, Broken> {
        loop {
            if bytes.len() >= 2 && bytes.len() == wanted(bytes) {
                return Self::parse(bytes).map(Some);
            }
            let Some((byte, rest)) = data.split_first() else {
                return Ok(None);
            };
            bytes.push(*byte);
            *data = rest;
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, Broken> {
        let (first, second) = (bytes[0], bytes[1]);
        // Reserved bits belong to extensions, and none was agreed on.
        if first & 0x70 != 0 {
            return Err(Broken::Malformed);
        }
        let opcode = Opcode::read(first & 0x0f).ok_or(Broken::Malformed)?;
        let behind = match second & 0x80 {
            0 => bytes.len(),
            _ => bytes.len() - 4,
        };
        let wide = bytes[2..behind]
            .iter()
            .fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let (length, least) = match second & 0x7f {
            126 => (wide, 126),
            127 => (wide, 1 << 16),
            short => (u64::from(short), 0),
        };
        if length < least || length > i64::MAX as u64 {
            return Err(Broken::Malformed);
        }
        Ok(Self {
            last: first & 0x80 != 0,
            opcode,
            key: bytes[behind..].try_into().ok(),
            length,
        })
    }

    /// Writes it, with the length in its shortest form.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.last) << 7 | self.opcode.code());
        let masked = u8::from(self.key.is_some()) << 7;
        match (u8::try_from(self.length), u16::try_from(self.length)) {
            (Ok(short @ ..126), _) => out.push(masked | short),
            (_, Ok(wide)) => {
                out.push(masked | 126);
                out.extend_from_slice(&wide.to_be_bytes());
            }
            _ => {
                out.push(masked | 127);
                out.extend_from_slice(&self.length.to_be_bytes());
            }
        }
        out.extend(self.key.into_iter().flatten());
    }

    /// A piece of the payload that begins at `from`, masked or unmasked.
    pub(crate) fn masked(&self, piece: &[u8], from: u64) -> Vec<u8> {
        let mut copy = piece.to_vec();
        if let Some(mut key) = self.key {
            key.rotate_left((from % 4) as usize);
            for (byte, key) in copy.iter_mut().zip(key.iter().cycle()) {
                *byte ^= key;
            }
        }
        copy
    }
}

/// How long a head is that begins with these two bytes or more.
fn wanted(bytes: &[u8]) -> usize {
    let length = match bytes[1] & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let key = if bytes[1] & 0x80 == 0 { 0 } else { 4 };
    2 + length + key
}
