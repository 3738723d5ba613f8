//! Greetings of a real client, whole, cut at every byte, in records, and broken.

use super::*;
use proptest::prelude::*;
use rustls_pki_types::ServerName;
use std::sync::Arc;

/// What a real client says first to this host.
pub(crate) fn greeting(host: &str, alpn: &[&str], server_name: bool) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.enable_sni = server_name;
    let name = ServerName::try_from(host.to_owned()).expect(host);
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("greeting");
    bytes
}

/// The same message in records of at most `size` bytes.
pub(crate) fn in_records(greeting: &[u8], size: usize) -> Vec<u8> {
    let mut message = Vec::new();
    let mut rest = greeting;
    while !rest.is_empty() {
        let length = usize::from(u16::from_be_bytes([rest[3], rest[4]]));
        message.extend_from_slice(&rest[RECORD_HEAD..RECORD_HEAD + length]);
        rest = &rest[RECORD_HEAD + length..];
    }
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).expect("length").to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    };
    message.chunks(size).flat_map(record).collect()
}

fn read(bytes: &[u8], step: usize) -> Result<Option<ClientHello>, Malformed> {
    let mut reader = HelloReader::default();
    for part in bytes.chunks(step) {
        if let Some(hello) = reader.push(part)? {
            return Ok(Some(hello));
        }
    }
    Ok(None)
}

/// A greeting made by hand, with these extensions.
fn made(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let short = |length: usize| u16::try_from(length).expect("length").to_be_bytes();
    let mut list = Vec::new();
    for (kind, content) in extensions {
        list.extend_from_slice(&kind.to_be_bytes());
        list.extend_from_slice(&short(content.len()));
        list.extend_from_slice(content);
    }
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend_from_slice(&short(list.len()));
    body.extend_from_slice(&list);
    let mut message = vec![1, 0];
    message.extend_from_slice(&short(body.len()));
    message.extend_from_slice(&body);
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(&short(message.len()));
    record.extend_from_slice(&message);
    record
}

fn name_list(names: &[(u8, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, name) in names {
        list.push(*kind);
        list.extend_from_slice(&u16::try_from(name.len()).expect("length").to_be_bytes());
        list.extend_from_slice(name);
    }
    let mut out = u16::try_from(list.len())
        .expect("length")
        .to_be_bytes()
        .to_vec();
    out.extend_from_slice(&list);
    out
}

#[test]
fn a_real_greeting_gives_its_name_and_one_without_a_name_none() {
    for (host, sni, wanted) in [
        ("api.example.test", true, Some("api.example.test")),
        ("API.Example.test", true, Some("api.example.test")),
        ("api.example.test", false, None),
        ("127.0.0.1", true, None),
        ("::1", true, None),
    ] {
        let hello = read(&greeting(host, &["h2", "http/1.1"], sni), usize::MAX);
        let server_name = wanted.map(str::to_owned);
        assert_eq!(hello, Ok(Some(ClientHello { server_name })), "{host}");
    }
}

#[test]
fn greetings_that_could_be_read_in_two_ways_are_malformed() {
    let a: &[u8] = b"a.com";
    let named = |names: &[(u8, &[u8])]| vec![(0, name_list(names))];
    let twice = [named(&[(0, a)]), named(&[(0, b"b.com")])].concat();
    let mut trailing = named(&[(0, a)]);
    trailing[0].1.push(0);
    for (what, extensions) in [
        ("two names in the list", named(&[(0, a), (0, b"b.com")])),
        ("the extension twice", twice),
        ("an unknown kind of name", named(&[(1, a)])),
        ("an empty name", named(&[(0, b"")])),
        ("an empty list", named(&[])),
        ("a zero in the name", named(&[(0, b"a.com\0.b.com")])),
        (
            "a name that is not ASCII",
            named(&[(0, "ä.com".as_bytes())]),
        ),
        ("bytes behind the list", trailing),
    ] {
        assert_eq!(read(&made(&extensions), 7), Err(Malformed), "{what}");
    }
    let fine = read(&made(&named(&[(0, a)])), 7);
    let server_name = Some("a.com".to_owned());
    assert_eq!(fine, Ok(Some(ClientHello { server_name })));
}

#[test]
fn with_encrypted_client_hello_the_outer_name_counts() {
    let extensions = [(0xfe0d, vec![9; 200]), (0, name_list(&[(0, b"outer.com")]))];
    let hello = read(&made(&extensions), usize::MAX);
    let server_name = Some("outer.com".to_owned());
    assert_eq!(hello, Ok(Some(ClientHello { server_name })));
}

#[test]
fn records_that_hide_a_greeting_are_malformed() {
    let hello = greeting("a.com", &[], true);
    let alert = [21, 3, 1, 0, 2, 1, 90];
    let change = [20, 3, 3, 0, 1, 1];
    let empty = [22, 3, 1, 0, 0];
    for front in [&alert[..], &change, &empty, &[23, 3, 3, 0, 1, 0]] {
        assert_eq!(read(&[front, &hello].concat(), 3), Err(Malformed));
    }
    let mut other_message = hello.clone();
    other_message[5] = 2;
    let mut old_version = hello.clone();
    old_version[1] = 2;
    let mut too_long = hello.clone();
    too_long[6] = 2;
    for bytes in [other_message, old_version, too_long] {
        assert_eq!(read(&bytes, 11), Err(Malformed));
    }
    assert_eq!(read(&[22, 3, 1, 0x40, 1], 9), Err(Malformed));
}

proptest! {
    #[test]
    fn a_greeting_is_read_the_same_however_it_is_cut(
        size in 1usize..600,
        step in 1usize..600,
        label in "[a-z]{1,40}",
    ) {
        let host = format!("{label}.example.test");
        let bytes = in_records(&greeting(&host, &["h2"], true), size);
        let server_name = Some(host);
        prop_assert_eq!(read(&bytes, step), Ok(Some(ClientHello { server_name })));
        // Nothing is said before the last byte is there.
        prop_assert_eq!(read(&bytes[..bytes.len() - 1], step), Ok(None));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_alike_in_any_pieces(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        step in 1usize..50,
    ) {
        prop_assert_eq!(read(&bytes, step), read(&bytes, usize::MAX));
    }

    #[test]
    fn a_damaged_greeting_is_read_alike_in_any_pieces_and_never_as_longer_than_it_is(
        at in 0usize..400,
        flip in 1u8..=255,
        step in 1usize..50,
    ) {
        let mut bytes = greeting("a.example.test", &["h2"], true);
        let at = at % bytes.len();
        bytes[at] ^= flip;
        prop_assert_eq!(read(&bytes, step), read(&bytes, usize::MAX));
    }
}
