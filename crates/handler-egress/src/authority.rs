//! A sandbox's own certificate authority and the leaf certificates it issues. Its key is made here and never sent;
//! it is kept only where the next filter finds it (`keep`).

use crate::keep::Keep;
use crate::target::{Target, TargetHost};
use crate::trust::{HTTP1, HTTP2};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an authority is valid: longer than a filter lives.
const AUTHORITY_DAYS: u32 = 3650;
const LEAF_DAYS: u32 = 90;
/// A leaf this old is issued anew.
const LEAF_RENEWED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Leaf certificates kept.
const MOST_LEAVES: usize = 64;
/// How a certificate in text ends.
const PEM_END: &str = "-----END CERTIFICATE-----";

/// A certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    /// By the certificate library.
    #[error("a certificate could not be made: {0}")]
    Issue(#[from] rcgen::Error),
    /// By the TLS library.
    #[error("a certificate could not be used: {0}")]
    Use(#[from] rustls::Error),
}

struct Leaf {
    host: TargetHost,
    made: SystemTime,
    http1: Arc<ServerConfig>,
    either: Arc<ServerConfig>,
}

impl Leaf {
    fn config(&self, either: bool) -> Arc<ServerConfig> {
        if either { &self.either } else { &self.http1 }.clone()
    }
}

/// The authority of one sandbox.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    /// One key for all leaves: they are all shown to the same sandbox.
    leaf_key: KeyPair,
    /// Most recently used last.
    leaves: Mutex<VecDeque<Leaf>>,
}

impl Authority {
    /// The one a sandbox had with the filter before this, or a new one.
    pub(crate) fn of(sandbox: &str, keep: &Keep) -> Result<Self, AuthorityError> {
        match keep.read(sandbox) {
            Ok(Some(kept)) => match Self::kept(sandbox, &kept) {
                Some(authority) => return Ok(authority),
                None => tracing::warn!(sandbox, "the authority that was kept cannot be used"),
            },
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(sandbox, %error, "the authority that was kept is not read");
            }
        }
        let authority = Self::new(sandbox)?;
        if let Err(error) = keep.write(sandbox, &authority.to_kept()) {
            tracing::warn!(sandbox, %error, "the authority is not kept: it ends with this filter");
        }
        Ok(authority)
    }

    /// Makes a new one.
    fn new(sandbox: &str) -> Result<Self, AuthorityError> {
        let params = params(sandbox);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let der = certificate.der().clone();
        Self::with(params, key, certificate.pem(), der)
    }

    fn with(
        params: CertificateParams,
        key: KeyPair,
        pem: String,
        certificate: CertificateDer<'static>,
    ) -> Result<Self, AuthorityError> {
        Ok(Self {
            pem,
            certificate,
            issuer: Issuer::new(params, key),
            leaf_key: KeyPair::generate()?,
            leaves: Mutex::default(),
        })
    }

    /// Certificate and key, for [`Keep`].
    fn to_kept(&self) -> Zeroizing<Vec<u8>> {
        let key = Zeroizing::new(self.issuer.key().serialize_pem());
        Zeroizing::new([self.pem.as_bytes(), key.as_bytes()].concat())
    }

    /// What was kept; none if it is not whole, or not this sandbox's.
    fn kept(sandbox: &str, content: &[u8]) -> Option<Self> {
        let certificate = CertificateDer::from_pem_slice(content).ok()?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(content).ok()?;
        let key = KeyPair::try_from(&key).ok()?;
        // The certificate is one of this key and name, as only the filter makes them.
        let is_own = |part: &[u8]| memchr::memmem::find(&certificate, part).is_some();
        let is_fit = is_own(key.public_key_raw()) && is_own(&name_in_der(sandbox));
        let text = std::str::from_utf8(content).ok()?;
        let end = text.find(PEM_END)? + PEM_END.len();
        let pem = format!("{}\n", text.get(..end)?.trim());
        is_fit
            .then(|| Self::with(params(sandbox), key, pem, certificate).ok())
            .flatten()
    }

    /// Its certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// What to be towards a client that wants to speak TLS with this destination: offering HTTP/1.1, or
    /// either version.
    pub(crate) fn server_config(
        &self,
        target: &Target,
        either: bool,
    ) -> Result<Arc<ServerConfig>, AuthorityError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        let fresh = |leaf: &Leaf| {
            now.duration_since(leaf.made)
                .is_ok_and(|age| age < LEAF_RENEWED)
        };
        if let Some(position) = leaves.iter().position(|leaf| leaf.host == target.host)
            && let Some(leaf) = leaves.remove(position)
            && fresh(&leaf)
        {
            let config = leaf.config(either);
            leaves.push_back(leaf);
            return Ok(config);
        }
        let made_for_either = self.issue(target)?;
        let mut http1 = made_for_either.clone();
        http1.alpn_protocols = vec![HTTP1.to_vec()];
        if leaves.len() >= MOST_LEAVES {
            leaves.pop_front();
        }
        let leaf = Leaf {
            host: target.host.clone(),
            made: now,
            http1: Arc::new(http1),
            either: Arc::new(made_for_either),
        };
        let config = leaf.config(either);
        leaves.push_back(leaf);
        Ok(config)
    }

    fn issue(&self, target: &Target) -> Result<ServerConfig, AuthorityError> {
        let mut params = CertificateParams::new(vec![target.host_text()])?;
        params.distinguished_name = named("Handler egress");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_validity(&mut params, LEAF_DAYS);
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?;
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Ok(config)
    }
}

fn params(sandbox: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&common_name(sandbox));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, AUTHORITY_DAYS);
    params
}

/// A common name holds at most 64 characters.
fn common_name(sandbox: &str) -> String {
    let name = format!("Handler egress of sandbox {sandbox}");
    name.chars().take(64).collect()
}

/// The common name as it is written in a certificate: a text of UTF-8 (tag 12) and its length.
fn name_in_der(sandbox: &str) -> Vec<u8> {
    let name = common_name(sandbox);
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    [&[12, length], name.as_bytes()].concat()
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Valid from yesterday: clocks differ.
fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * days).into();
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::parse(text, None).expect(text)
    }

    #[test]
    fn leaves_are_kept_and_their_number_is_bounded() {
        let authority = Authority::new("s1").expect("authority");
        let first = authority
            .server_config(&target("a.com:443"), false)
            .expect("leaf");
        let again = authority
            .server_config(&target("a.com:8443"), false)
            .expect("leaf");
        assert!(Arc::ptr_eq(&first, &again));
        for index in 0..MOST_LEAVES {
            authority
                .server_config(&target(&format!("h{index}.com:443")), false)
                .expect("leaf");
        }
        assert_eq!(authority.leaves.lock().expect("lock").len(), MOST_LEAVES);
        let anew = authority
            .server_config(&target("a.com:443"), false)
            .expect("leaf");
        assert!(!Arc::ptr_eq(&first, &anew));
    }

    #[test]
    fn an_address_gets_a_leaf_and_two_sandboxes_have_two_authorities() {
        let one = Authority::new("s1").expect("authority");
        let two = Authority::new(&"long".repeat(40)).expect("authority");
        one.server_config(&target("[::1]:443"), false)
            .expect("leaf");
        assert_ne!(one.pem(), two.pem());
        assert!(!one.pem().contains("PRIVATE"));
    }

    #[test]
    fn an_authority_that_was_kept_is_the_same_and_another_sandboxs_is_not_taken() {
        let folder = tempfile::tempdir().expect("folder");
        let keep = Keep::beside(&folder.path().join("control.sock"));
        let first = Authority::of("s1", &keep).expect("authority");
        let again = Authority::of("s1", &keep).expect("authority");
        assert_eq!(first.pem(), again.pem());
        assert_eq!(
            first.issuer.key().serialize_der(),
            again.issuer.key().serialize_der()
        );
        for wrong in [
            &first.to_kept()[..],
            b"",
            b"no certificate",
            &first.to_kept()[..700],
        ] {
            keep.write("s2", wrong).expect("write");
            let other = Authority::of("s2", &keep).expect("authority");
            assert_ne!(other.pem(), first.pem());
        }
    }
}
