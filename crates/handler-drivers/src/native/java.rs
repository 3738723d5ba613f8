//! What Java programs are told: they read neither the usual variables for proxies nor files of PEM certificates.
//!
//! `JAVA_TOOL_OPTIONS` is read by every JVM, whoever starts it, and each then says so in a line on standard
//! error. Properties: the JDK's "Networking Properties" and "JSSE Reference Guide".

use super::system::EGRESS_PORT;
use handler_types::launch::JAVA_TRUST_STORE;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha1::{Digest as _, Sha1};

/// The variable that every JVM reads.
pub(crate) const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// What Java must not send to the filter; as [`super::system::NO_PROXY`], in Java's way of saying it.
const NO_PROXY: &str = "localhost|127.*|[::1]";

/// The password everybody knows. It keeps nobody out: a store of certificates has no secrets, and a JVM that
/// is told of no password opens it without.
const PASSWORD: &str = "changeit";

/// Options of the image's own, then ours, then those that were asked for: of two that set the same, the later
/// counts.
pub(crate) fn options(of_image: Option<&str>, is_filtered: bool, asked: Option<&str>) -> String {
    let mut ours =
        format!("-Djavax.net.ssl.trustStore={JAVA_TRUST_STORE} -Djavax.net.ssl.trustStoreType=JKS");
    if is_filtered {
        for scheme in ["http", "https"] {
            ours.push_str(&format!(
                " -D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={EGRESS_PORT}"
            ));
        }
        ours.push_str(&format!(" -Dhttp.nonProxyHosts={NO_PROXY}"));
    }
    let parts = [
        of_image.unwrap_or_default(),
        &ours,
        asked.unwrap_or_default(),
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// The certificates of a PEM file as a Java key store, version 2; what is no certificate is left out.
///
/// Form: the JDK's `sun.security.provider.JavaKeyStore`. Numbers are big-endian; at the end a SHA-1 over the
/// password, a phrase and the rest.
pub(crate) fn trust_store(pem: &[u8]) -> Vec<u8> {
    const MAGIC: u32 = 0xfeed_feed;
    const VERSION: u32 = 2;
    let certificates: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(pem).flatten().collect();
    let mut store = Vec::with_capacity(pem.len());
    let count = u32::try_from(certificates.len()).unwrap_or(u32::MAX);
    for number in [MAGIC, VERSION, count] {
        store.extend_from_slice(&number.to_be_bytes());
    }
    for (number, certificate) in certificates.iter().enumerate() {
        entry(&mut store, number, certificate);
    }
    let mut hash = Sha1::new();
    for unit in PASSWORD.encode_utf16() {
        hash.update(unit.to_be_bytes());
    }
    hash.update("Mighty Aphrodite");
    hash.update(&store);
    store.extend_from_slice(&hash.finalize());
    store
}

/// A certificate that is trusted: what kind, a name of its own, when it was put in (not told), itself.
fn entry(store: &mut Vec<u8>, number: usize, certificate: &[u8]) {
    const TRUSTED: u32 = 2;
    store.extend_from_slice(&TRUSTED.to_be_bytes());
    text(store, &format!("authority-{number}"));
    store.extend_from_slice(&0u64.to_be_bytes());
    text(store, "X.509");
    let length = u32::try_from(certificate.len()).unwrap_or(u32::MAX);
    store.extend_from_slice(&length.to_be_bytes());
    store.extend_from_slice(certificate);
}

/// A short text of plain letters, its length before it.
fn text(store: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    store.extend_from_slice(&length.to_be_bytes());
    store.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_image_and_a_person_say_stands_around_what_we_say() {
        let all = options(Some("-Xmx64m"), true, Some("-Dhttps.proxyPort=1"));
        let words: Vec<&str> = all.split(' ').collect();
        assert_eq!(words.first(), Some(&"-Xmx64m"));
        assert_eq!(words.last(), Some(&"-Dhttps.proxyPort=1"));
        assert!(words.contains(&"-Dhttps.proxyPort=3128"));
        assert!(words.contains(&"-Dhttp.nonProxyHosts=localhost|127.*|[::1]"));
        let without = options(None, false, None);
        assert!(without.starts_with("-Djavax.net.ssl.trustStore=/run/handler/"));
        assert!(!without.contains("proxy"), "{without}");
    }

    #[test]
    fn a_store_holds_every_certificate_and_nothing_else() {
        // Two "certificates" of three and one bytes; a key between them.
        let pem = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n\
                   -----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n\
                   -----BEGIN CERTIFICATE-----\n/w==\n-----END CERTIFICATE-----\n";
        let store = trust_store(pem.as_bytes());
        let mut wanted = b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\x02".to_vec();
        for (name, certificate) in [("authority-0", &[1, 2, 3][..]), ("authority-1", &[255])] {
            wanted.extend_from_slice(b"\0\0\0\x02\0\x0b");
            wanted.extend_from_slice(name.as_bytes());
            wanted.extend_from_slice(&[0; 8]);
            wanted.extend_from_slice(b"\0\x05X.509\0\0\0");
            wanted.push(certificate.len() as u8);
            wanted.extend_from_slice(certificate);
        }
        assert_eq!(&store[..wanted.len()], wanted);
        assert_eq!(store.len(), wanted.len() + 20);
    }
}
