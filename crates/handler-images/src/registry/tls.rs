//! Whom registries may be signed by: the system's authorities and one more file.

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::path::Path;
use std::sync::Arc;

/// Longest file of authorities, bytes.
const MAX_FILE: u64 = 16 << 20;

/// How to be a TLS client. `may_be_empty`: nothing is going to be encrypted anyway.
pub(super) fn config(extra: Option<&Path>, may_be_empty: bool) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if !may_be_empty {
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        if let Some(path) = extra {
            roots.add_parsable_certificates(read(path)?);
        }
        if roots.is_empty() {
            return Err("this machine has no certificate authorities".to_owned());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    use std::io::Read as _;
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut pem = Vec::new();
    let file = std::fs::File::open(path).map_err(named)?;
    file.take(MAX_FILE).read_to_end(&mut pem).map_err(named)?;
    Ok(CertificateDer::pem_slice_iter(&pem)
        .filter_map(Result::ok)
        .collect())
}
