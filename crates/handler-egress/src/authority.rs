//! A sandbox's own certificate authority and the leaf certificates it issues. Its key is made here,
//! stays in memory and is never written or sent.

use crate::target::{Target, TargetHost};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an authority is valid: longer than a filter lives.
const AUTHORITY_DAYS: u32 = 3650;
const LEAF_DAYS: u32 = 90;
/// A leaf this old is issued anew.
const LEAF_RENEWED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Leaf certificates kept.
const MOST_LEAVES: usize = 64;

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
    config: Arc<ServerConfig>,
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
    /// Makes a new one.
    pub(crate) fn new(sandbox: &str) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&format!("Handler egress of sandbox {sandbox}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, AUTHORITY_DAYS);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            leaf_key: KeyPair::generate()?,
            leaves: Mutex::default(),
        })
    }

    /// Its certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// What to be towards a client that wants to speak TLS with this destination.
    pub(crate) fn server_config(
        &self,
        target: &Target,
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
            let config = leaf.config.clone();
            leaves.push_back(leaf);
            return Ok(config);
        }
        let config = Arc::new(self.issue(target)?);
        if leaves.len() >= MOST_LEAVES {
            leaves.pop_front();
        }
        leaves.push_back(Leaf {
            host: target.host.clone(),
            made: now,
            config: config.clone(),
        });
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
        // HTTP/1.1 only so far; a client that insists on HTTP/2 is told so by TLS.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    // A common name holds at most 64 characters.
    names.push(
        DnType::CommonName,
        name.chars().take(64).collect::<String>(),
    );
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
        let first = authority.server_config(&target("a.com:443")).expect("leaf");
        let again = authority
            .server_config(&target("a.com:8443"))
            .expect("leaf");
        assert!(Arc::ptr_eq(&first, &again));
        for index in 0..MOST_LEAVES {
            authority
                .server_config(&target(&format!("h{index}.com:443")))
                .expect("leaf");
        }
        assert_eq!(authority.leaves.lock().expect("lock").len(), MOST_LEAVES);
        let anew = authority.server_config(&target("a.com:443")).expect("leaf");
        assert!(!Arc::ptr_eq(&first, &anew));
    }

    #[test]
    fn an_address_gets_a_leaf_and_two_sandboxes_have_two_authorities() {
        let one = Authority::new("s1").expect("authority");
        let two = Authority::new(&"long".repeat(40)).expect("authority");
        one.server_config(&target("[::1]:443")).expect("leaf");
        assert_ne!(one.pem(), two.pem());
        assert!(!one.pem().contains("PRIVATE"));
    }
}
