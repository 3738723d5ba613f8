//! What a client says first in a blind tunnel: TLS, an HTTP/1 request, or something else. Pure.
//!
//! A tunnel may carry any protocol, also one in which the server speaks first, so bytes are kept back
//! only while they begin like TLS or like a request of a known method. What comes behind a greeting is not
//! looked at; behind a request it is HTTP, and each request of it is judged by itself.

use crate::accept::{LONGEST_HEAD, MOST_HEADERS};
use crate::hello::HelloReader;
use memchr::{memchr, memmem};

/// The registered methods. Any word could be one, but a protocol whose client says a word and waits
/// would hang if every word were kept back.
const METHODS: &str = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK \
    LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI \
    PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE \
    UPDATEREDIRECTREF VERSION-CONTROL";
/// How HTTP/2 without TLS begins (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const LONGEST_METHOD: usize = 17;
/// How a request's target begins; of other texts behind a first word nobody makes a request.
const TARGETS: [&[u8]; 4] = [b"/", b"*", b"http://", b"https://"];

/// What the first bytes turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opened {
    /// Nothing that names a host.
    Opaque,
    /// TLS, with this server name.
    Tls(Option<String>),
    /// An HTTP/1 request, with every host it names.
    Http(Vec<String>),
    /// The same, for a tunnel within the tunnel.
    Connect(Vec<String>),
    /// HTTP/2 without TLS; what it asks for is packed.
    Http2,
    /// It begins like TLS or HTTP and then is neither.
    Malformed,
}

/// The first bytes of a client, until it is clear what they are.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    bytes: Vec<u8>,
    hello: HelloReader,
    /// So many bytes the reader of greetings has had.
    given: usize,
    /// Length of the first line, if it has ended.
    line: usize,
}

impl Opening {
    /// Takes more bytes; says what they are as soon as that is clear.
    pub(crate) fn push(&mut self, more: &[u8]) -> Option<Opened> {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(more);
        match self.bytes.as_slice() {
            [] | [0x14..=0x17] => None,
            [0x14..=0x17, 3, ..] => self.greeting(),
            _ => self.request(before),
        }
    }

    /// What it is when the client sends nothing more.
    pub(crate) fn end(&self) -> Opened {
        match self.bytes.as_slice() {
            [0x14..=0x17, 3, ..] => Opened::Malformed,
            _ if self.line > 0 => Opened::Malformed,
            _ => Opened::Opaque,
        }
    }

    /// All bytes that came.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn greeting(&mut self) -> Option<Opened> {
        let new = &self.bytes[self.given..];
        self.given = self.bytes.len();
        match self.hello.push(new) {
            Ok(hello) => hello.map(|hello| Opened::Tls(hello.server_name)),
            Err(_) => Some(Opened::Malformed),
        }
    }

    fn request(&mut self, before: usize) -> Option<Opened> {
        if !begins_request(&self.bytes)? {
            return Some(Opened::Opaque);
        }
        if self.line == 0 {
            self.line = memchr(b'\n', &self.bytes[before..]).map_or(0, |at| before + at + 1);
        }
        if self.line == 0 {
            return self.too_long();
        }
        if let Some(preface) = is_preface(&self.bytes) {
            return preface;
        }
        if !names_http(&self.bytes[..self.line]) {
            return Some(Opened::Opaque);
        }
        // An end can lie across the border to what was searched before.
        let from = before.saturating_sub(3).max(self.line - 1);
        let rest = &self.bytes[from..];
        if memmem::find(rest, b"\n\r\n").is_none() && memmem::find(rest, b"\n\n").is_none() {
            return self.too_long();
        }
        Some(read_request(&self.bytes).unwrap_or(Opened::Malformed))
    }

    fn too_long(&self) -> Option<Opened> {
        (self.bytes.len() > LONGEST_HEAD).then_some(Opened::Malformed)
    }
}

/// Whether a text begins with a method and a request target; `None` while more bytes could tell.
fn begins_request(text: &[u8]) -> Option<bool> {
    let Some(space) = memchr(b' ', &text[..text.len().min(LONGEST_METHOD + 1)]) else {
        let possible = methods().any(|method| method.starts_with(text));
        return if possible { None } else { Some(false) };
    };
    let (method, target) = (&text[..space], &text[space + 1..]);
    if !methods().any(|known| known == method) {
        return Some(false);
    }
    if method == b"CONNECT" {
        return Some(true);
    }
    let begins = |wanted: &[u8]| {
        let length = wanted.len().min(target.len());
        target[..length].eq_ignore_ascii_case(&wanted[..length])
    };
    match TARGETS.iter().find(|wanted| begins(wanted)) {
        Some(wanted) if target.len() < wanted.len() => None,
        found => Some(found.is_some()),
    }
}

fn methods() -> impl Iterator<Item = &'static [u8]> {
    METHODS.split(' ').map(str::as_bytes)
}

/// Whether whole first lines are those of HTTP/2; `None` if they are of something else.
#[expect(clippy::option_option, reason = "of something else, or not clear yet")]
fn is_preface(bytes: &[u8]) -> Option<Option<Opened>> {
    let length = bytes.len().min(PREFACE.len());
    if !bytes.starts_with(b"PRI * HTTP/2.0\r\n") {
        return None;
    }
    Some(
        match (
            bytes[..length] == PREFACE[..length],
            length == PREFACE.len(),
        ) {
            (false, _) => Some(Opened::Malformed),
            (true, true) => Some(Opened::Http2),
            (true, false) => None,
        },
    )
}

/// Whether a first line ends in a version of HTTP that is written as text.
fn names_http(line: &[u8]) -> bool {
    let last = line.trim_ascii_end().rsplit(u8::is_ascii_whitespace).next();
    last.and_then(|last| last.get(..5))
        .is_some_and(|front| front.eq_ignore_ascii_case(b"HTTP/"))
}

/// Reads a head more strictly than servers do: what is not clear is no request.
fn read_request(bytes: &[u8]) -> Option<Opened> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(_)) = request.parse(bytes) else {
        return None;
    };
    let mut hosts = Vec::new();
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("host") {
            hosts.push(std::str::from_utf8(header.value).ok()?.to_owned());
        }
    }
    // HTTP/1.0 may leave the host out, and then names none.
    let fits = matches!((request.version?, hosts.len()), (_, 1) | (0, 0));
    let path = request.path?;
    let connect = request.method? == "CONNECT";
    match path.as_bytes()[0] {
        _ if connect => hosts.push(path.to_owned()),
        b'/' | b'*' => {}
        _ => hosts.push(path.parse::<http::Uri>().ok()?.authority()?.to_string()),
    }
    fits.then_some(match connect {
        true => Opened::Connect(hosts),
        false => Opened::Http(hosts),
    })
}

#[cfg(test)]
mod tests;
