//! TLS: the authorities that are trusted, by registry.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::Error;

/// Reads the certificates of authorities in PEM.
///
/// # Errors
/// Returns an error if there is none, or a malformed one.
pub fn authorities(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::Invalid(format!("has a malformed certificate: {error}")))?;
    if all.is_empty() {
        return Err(Error::Invalid("has no certificate in PEM".to_owned()));
    }
    Ok(all)
}

/// Returns a configuration that trusts exactly these authorities.
///
/// # Errors
/// Returns an error if one of them cannot be used: to leave it out in silence would be another trust than configured.
pub(crate) fn trusting(authorities: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone())
            .map_err(|error| Error::Invalid(format!("certificate of an authority: {error}")))?;
    }
    with(roots)
}

/// Returns a configuration that trusts those of the system's authorities that can be used.
pub(crate) fn trusting_system(authorities: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    let _ = roots.add_parsable_certificates(authorities);
    with(roots)
}

/// With its own provider, so that none has to be installed in the process.
fn with(roots: RootCertStore) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Invalid(format!("TLS: {error}")))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
