//! Greetings of TLS clients, against what a TLS server reads.

use super::cut;
use crate::hello::{ClientHello, HelloReader, Malformed};
use rustls::server::Acceptor;
use rustls_pki_types::ServerName;

/// However the bytes are cut the greeting is the same; and where a server reads a greeting, it reads the same name.
pub fn client_hello(data: &[u8]) {
    let (bytes, pieces) = cut(data);
    let whole = read([bytes].into_iter());
    assert_eq!(read(pieces), whole);
    let (Ok(Some(ours)), Some(theirs)) = (whole, as_a_server_reads(bytes)) else {
        return;
    };
    match (ours.server_name, theirs) {
        // A server takes a dot at the end for nothing; no destination has one, so ours fits none then.
        (ours, Some(theirs)) => {
            let ours = ours
                .as_deref()
                .map(|name| name.strip_suffix('.').unwrap_or(name));
            assert_eq!(ours, Some(&*theirs.to_ascii_lowercase()));
        }
        // What is no name to the server is none of a host that could be meant.
        (Some(ours), None) => {
            let is_name = matches!(
                ServerName::try_from(ours.as_str()),
                Ok(ServerName::DnsName(_))
            );
            assert!(!is_name, "{ours} is a name, and the server has not read it");
        }
        (None, None) => {}
    }
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Option<ClientHello>, Malformed> {
    let mut reader = HelloReader::default();
    for piece in pieces {
        if let Some(hello) = reader.push(piece)? {
            return Ok(Some(hello));
        }
    }
    Ok(None)
}

/// The server name of a greeting that a server accepts; none if it does not.
fn as_a_server_reads(mut bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    loop {
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return Some(hello.server_name().map(str::to_owned));
            }
            Ok(None) if !bytes.is_empty() => {
                acceptor
                    .read_tls(&mut bytes)
                    .ok()
                    .filter(|read| *read > 0)?;
            }
            Ok(None) | Err(_) => return None,
        }
    }
}
