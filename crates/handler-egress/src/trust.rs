//! Whom the filter believes outside: the system's roots (or those `SSL_CERT_FILE` names) and the
//! extra ones it was started with. Read once, when the first intercepted host needs them.

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// HTTP/1.1 in the language of TLS.
pub(crate) const HTTP1: &[u8] = b"http/1.1";
/// HTTP/2 in the language of TLS.
pub(crate) const HTTP2: &[u8] = b"h2";

/// Roots, read when first needed.
#[derive(Debug)]
pub(crate) struct Trust {
    extra_pem: Option<String>,
    made: OnceCell<Made>,
}

/// How to be a TLS client, by what is spoken then.
#[derive(Debug, Clone)]
struct Made {
    http1: Arc<ClientConfig>,
    either: Arc<ClientConfig>,
}

/// There is nobody to believe.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// No roots at all.
    #[error("this machine has no certificate authorities to check servers with")]
    NoRoots,
    /// The TLS library refused.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The reading task ended.
    #[error("the certificate authorities could not be read")]
    Unread,
}

impl Trust {
    /// With these roots besides the system's.
    pub(crate) fn new(extra_pem: Option<String>) -> Self {
        Self {
            extra_pem,
            made: OnceCell::new(),
        }
    }

    /// How to be a TLS client that speaks HTTP/1.1, or the version that the server prefers.
    pub(crate) async fn client(&self, either: bool) -> Result<Arc<ClientConfig>, TrustError> {
        let made = self.made.get_or_try_init(|| async {
            let extra = self.extra_pem.clone();
            tokio::task::spawn_blocking(move || build(extra.as_deref()))
                .await
                .map_err(|_| TrustError::Unread)?
        });
        let made = made.await?;
        Ok(if either { &made.either } else { &made.http1 }.clone())
    }
}

fn build(extra_pem: Option<&str>) -> Result<Made, TrustError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "some certificate authorities cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    if let Some(pem) = extra_pem {
        let extra = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
        let (added, _) = roots.add_parsable_certificates(extra);
        tracing::info!(added, "extra certificate authorities");
    }
    if roots.is_empty() {
        return Err(TrustError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    let mut http1 = config.clone();
    http1.alpn_protocols = vec![HTTP1.to_vec()];
    Ok(Made {
        http1: Arc::new(http1),
        either: Arc::new(config),
    })
}
