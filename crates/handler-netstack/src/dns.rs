//! Questions for names and their answers, as far as a stack needs them (RFC 1035).
//!
//! | asked | name is listed | name is not | the filter is away |
//! |---|---|---|---|
//! | A | the made-up address | NXDOMAIN | SERVFAIL |
//! | any other type | no records | NXDOMAIN | SERVFAIL |
//!
//! What is no plain question (class IN, one question, a plain host name) gets FORMERR, NOTIMP or NXDOMAIN
//! without the filter being asked.

use std::net::Ipv4Addr;

/// Longest message that is read, bytes.
pub const MAX_MESSAGE: usize = 4096;
/// Seconds a made-up address may be remembered. Its name keeps it for much longer.
pub const TTL: u32 = 5;

const HEADER: usize = 12;
const CLASS_IN: u16 = 1;
const TYPE_A: u16 = 1;
const LONGEST_NAME: usize = 253;

/// How a question ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The name has this address.
    Address(Ipv4Addr),
    /// The name exists; nothing of the type asked for does.
    Nothing,
    /// There is no such name.
    NoName,
    /// It cannot be said now.
    Failure,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    id: u16,
    /// "Recursion desired", given back as it came.
    recursion: bool,
    /// The name, type and class as they came.
    raw: Vec<u8>,
    kind: u16,
    /// The name in lower case without a dot at the end; none: no host name that the filter could know.
    pub name: Option<String>,
}

impl Question {
    /// Whether an address is asked for.
    #[must_use]
    pub fn wants_address(&self) -> bool {
        self.kind == TYPE_A
    }

    /// The message with the answer.
    #[must_use]
    pub fn answered(&self, answer: Answer) -> Vec<u8> {
        let (code, address) = match answer {
            Answer::Address(address) => (0, Some(address)),
            Answer::Nothing => (0, None),
            Answer::NoName => (3, None),
            Answer::Failure => (2, None),
        };
        let mut message = header(
            self.id,
            self.recursion,
            code,
            1,
            u16::from(address.is_some()),
        );
        message.extend(&self.raw);
        if let Some(address) = address {
            // The question's name, by its place.
            message.extend([0xc0, 12]);
            message.extend(TYPE_A.to_be_bytes());
            message.extend(CLASS_IN.to_be_bytes());
            message.extend(TTL.to_be_bytes());
            message.extend(4u16.to_be_bytes());
            message.extend(address.octets());
        }
        message
    }
}

/// Reads a message. The error is what to answer, if anything can be.
///
/// # Errors
/// When it is no question that can be asked further.
pub fn read(message: &[u8]) -> Result<Question, Option<Vec<u8>>> {
    let header_bytes = message.get(..HEADER).ok_or(None)?;
    let word = |at: usize| u16::from_be_bytes([header_bytes[at], header_bytes[at + 1]]);
    let (id, flags, questions) = (word(0), word(2), word(4));
    if flags & 0x8000 != 0 {
        // An answer; answering it could go round for ever.
        return Err(None);
    }
    let recursion = flags & 0x0100 != 0;
    let refuse = |code| Err(Some(header(id, recursion, code, 0, 0)));
    if flags & 0x7800 != 0 {
        return refuse(4);
    }
    if questions != 1 || message.len() > MAX_MESSAGE {
        return refuse(1);
    }
    let rest = &message[HEADER..];
    let Some((labels, used)) = labels(rest) else {
        return refuse(1);
    };
    let Some(&[a, b, c, d]) = rest.get(used..used + 4) else {
        return refuse(1);
    };
    if u16::from_be_bytes([c, d]) != CLASS_IN {
        return refuse(4);
    }
    Ok(Question {
        id,
        recursion,
        raw: rest[..used + 4].to_vec(),
        kind: u16::from_be_bytes([a, b]),
        name: host_name(&labels),
    })
}

/// Labels of the name at the start, and the bytes it takes. A first name has nothing to point to.
fn labels(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        match length {
            0 => return Some((found, at)),
            1..=63 => found.push(bytes.get(at..at + length)?),
            _ => return None,
        }
        at += length;
        if at > LONGEST_NAME + 1 {
            return None;
        }
    }
}

fn host_name(labels: &[&[u8]]) -> Option<String> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if labels.is_empty() || !labels.iter().all(|label| label.iter().all(is_plain)) {
        return None;
    }
    let name = String::from_utf8(labels.join(&b'.')).ok()?;
    Some(name.to_ascii_lowercase())
}

/// The head of an answer: no authority, recursion available, no further sections.
fn header(id: u16, recursion: bool, code: u16, questions: u16, answers: u16) -> Vec<u8> {
    let flags = 0x8080 | (u16::from(recursion) << 8) | code;
    let words = [id, flags, questions, answers, 0, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A question as programs send it, with an extension record behind it.
    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            message.push(u8::try_from(label.len()).expect("short"));
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
        message
    }

    #[test]
    fn an_address_is_asked_for_and_given() {
        let asked = read(&question("Api.Example.COM", 1)).expect("a question");
        assert_eq!(asked.name.as_deref(), Some("api.example.com"));
        assert!(asked.wants_address());
        let answer = asked.answered(Answer::Address(Ipv4Addr::new(198, 18, 1, 0)));
        assert_eq!(
            answer[..12],
            [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]
        );
        assert_eq!(answer[12..29], *b"\x03Api\x07Example\x03COM\0");
        assert_eq!(
            answer[33..],
            [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 198, 18, 1, 0]
        );
    }

    #[test]
    fn other_types_and_unlisted_names_have_no_records() {
        let asked = read(&question("a.example", 28)).expect("a question");
        assert!(!asked.wants_address());
        assert_eq!(asked.answered(Answer::Nothing)[3..8], [0x80, 0, 1, 0, 0]);
        assert_eq!(asked.answered(Answer::NoName)[3], 0x83);
        assert_eq!(asked.answered(Answer::Failure)[3], 0x82);
    }

    #[test]
    fn odd_messages_are_refused_and_answers_are_not_answered() {
        let mut answer = question("a.example", 1);
        answer[2] |= 0x80;
        assert_eq!(read(&answer), Err(None));
        assert_eq!(read(&[0; 11]), Err(None));
        let mut two = question("a.example", 1);
        two[5] = 2;
        assert_eq!(read(&two).expect_err("two").expect("told")[3], 0x81);
        let mut pointer = question("a.example", 1);
        pointer[12] = 0xc0;
        assert_eq!(read(&pointer).expect_err("pointer").expect("told")[3], 0x81);
        let mut notify = question("a.example", 1);
        notify[2] = 0x20;
        assert_eq!(read(&notify).expect_err("notify").expect("told")[3], 0x84);
    }

    #[test]
    fn what_is_no_host_name_is_not_asked_further() {
        for name in ["", "a b.example", "caf\u{e9}.example", "a/b.example"] {
            assert_eq!(
                read(&question(name, 1)).expect("a question").name,
                None,
                "{name}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(message in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(asked) = read(&message) {
                let answer = asked.answered(Answer::Address(Ipv4Addr::LOCALHOST));
                prop_assert!(answer.len() <= 512);
                prop_assert!(asked.name.is_none_or(|name| name.len() <= 253));
            }
        }

        #[test]
        fn a_plain_name_is_read_as_it_is(name in "[a-z0-9_-]{1,20}(\\.[a-z0-9_-]{1,20}){0,6}") {
            prop_assert_eq!(read(&question(&name, 1)).expect("a question").name, Some(name));
        }
    }
}
