//! TLS: the authorities that are trusted, by registry.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
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
    let provider = Arc::new(ring::default_provider());
    let invalid = |error| Error::Invalid(format!("certificate of an authority: {error}"));
    let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(invalid)?;
    let verifier = Listed { webpki, certificates: authorities.to_vec() };
    with(RootCertStore::empty(), Some(Arc::new(verifier)))
}

/// Returns a configuration that trusts those of the system's authorities that can be used.
pub(crate) fn trusting_system(authorities: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    let _ = roots.add_parsable_certificates(authorities);
    with(roots, None)
}

/// With its own provider, so that none has to be installed in the process.
fn with(roots: RootCertStore, verifier: Option<Arc<Listed>>) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Invalid(format!("TLS: {error}")))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if let Some(verifier) = verifier {
        config.dangerous().set_certificate_verifier(verifier);
    }
    Ok(Arc::new(config))
}

/// Verifies as rustls does, and accepts a listed certificate itself although it is one of an authority (CA:TRUE), as
/// `openssl req -x509` makes them. curl, docker and containerd do too.
#[derive(Debug)]
struct Listed {
    webpki: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

/// How rustls says that everything up to this rule was right: the form of the certificate and its period of validity.
const OF_AN_AUTHORITY: &str = "CaUsedAsEndEntity";

impl ServerCertVerifier for Listed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match &verified {
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(why)))
                if why.0.to_string() == OF_AN_AUTHORITY && self.certificates.contains(end_entity) =>
            {
                // The certificate is known byte for byte, so no chain leads to it. Its key signs the handshake.
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Returns the advice that belongs to an error of TLS.
pub(crate) fn advice(error: &str) -> &'static str {
    if error.contains(OF_AN_AUTHORITY) {
        "; the server presents the certificate of an authority (CA:TRUE): list exactly this certificate as the \
         registry's own authority, or have the server present one with CA:FALSE"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A certificate of `registry.test`, with CA:TRUE, valid from 2020 to 2120.
    const SELF_SIGNED: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
    MIIBbTCCAROgAwIBAgIBATAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA1yZWdpc3Ry\n\
    eS50ZXN0MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAYMRYwFAYD\n\
    VQQDDA1yZWdpc3RyeS50ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEkRWB\n\
    EnFrihxB6iG7wWOuzaCpU1T3/576Xn/4QTEPm1ce6Mr5130Z19M9xFokaJQcqjxk\n\
    lExXE21QrlF7+A+sFKNMMEowHQYDVR0OBBYEFHn8Lhn6gp/Mu2RSJ9KBNixA2dP2\n\
    MA8GA1UdEwEB/wQFMAMBAf8wGAYDVR0RBBEwD4INcmVnaXN0cnkudGVzdDAKBggq\n\
    hkjOPQQDAgNIADBFAiEAnVBt4jDhyllwSxEwkBsznOEhxhX0KhkC4Xwy3U8SjAYC\n\
    IE3a3wpSzZ4BMVqznhp3UWDHgAXR7YViANCdUn9qgbPg\n\
    -----END CERTIFICATE-----\n";

    #[test]
    fn a_listed_certificate_of_an_authority_is_valid_in_its_period_only() {
        let listed = authorities(SELF_SIGNED).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(listed[0].clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let verifier = Listed { webpki, certificates: listed.clone() };
        let at = |year: u64| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_556_952));
            let name = ServerName::try_from("registry.test").unwrap();
            verifier.verify_server_cert(&listed[0], &[], &name, &[], now)
        };
        assert!(at(2070).is_ok());
        assert!(matches!(
            at(2019),
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { .. }))
        ));
        assert!(matches!(at(2121), Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { .. }))));
    }
}
