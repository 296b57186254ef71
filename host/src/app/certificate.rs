//! [`Certificate`]: the certificate that the port of metrics presents, so that tokens of its clients do not cross the
//! network as text. It is read from two files and again when they change, or made at the start and signed by itself.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use parking_lot::Mutex;
use podium_engine::intervals::Intervals;
use podium_vocabulary::text;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
};
use tokio::time::{Instant, sleep};

use crate::telemetry::CertificateFigures;

/// The interval at which the files are read again. The kubelet updates the files of a Secret within about a minute.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// The most bytes of a file: chains of certificates have a few KiB.
const MAX_BYTES: u64 = 1 << 20;
/// The names in a certificate that is signed by itself. Its clients cannot verify it; names are for their logs.
const NAMES: [&str; 2] = ["podium-host", "localhost"];

/// The two files of a certificate, in PEM.
#[derive(Debug, Clone)]
pub(super) struct CertificateFiles {
    /// The certificate and the certificates between it and its authority.
    pub(super) certificate: PathBuf,
    /// Its private key.
    pub(super) key: PathBuf,
}

/// The certificate for new connections.
#[derive(Debug)]
pub struct Certificate {
    files: Option<CertificateFiles>,
    current: Mutex<Current>,
    /// How often the files were read, and how often they could not be used.
    reads: AtomicU64,
    errors: AtomicU64,
}

#[derive(Debug)]
struct Current {
    /// The contents of the files.
    pem: [Vec<u8>; 2],
    config: Arc<ServerConfig>,
}

/// A file of a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", text::path(.file))]
pub(super) struct CertificateError {
    pub(super) file: PathBuf,
    pub(super) message: String,
}

impl Certificate {
    /// Makes a key, and a certificate that it signs.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers.
    pub(super) fn self_signed() -> anyhow::Result<Self> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(NAMES.map(str::to_owned))?.self_signed(&key)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = config(vec![certificate.into()], key)?;
        Ok(Self::new(None, Current { pem: [Vec::new(), Vec::new()], config }))
    }

    /// Reads the files. Blocks.
    pub(super) fn read(files: CertificateFiles) -> Result<Self, CertificateError> {
        let current = Current::read(&files)?;
        Ok(Self::new(Some(files), current))
    }

    fn new(files: Option<CertificateFiles>, current: Current) -> Self {
        let reads = u64::from(files.is_some()).into();
        Self { files, current: Mutex::new(current), reads, errors: AtomicU64::new(0) }
    }

    /// Returns how often the files were read; `None` without files.
    pub(super) fn figures(&self) -> Option<CertificateFigures> {
        let figures = CertificateFigures { reads: self.reads.load(Relaxed), errors: self.errors.load(Relaxed) };
        self.files.is_some().then_some(figures)
    }

    /// Returns the certificate for the next connection.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.current.lock().config.clone()
    }

    /// Reads the files again and again. A pair that cannot be used, such as a half of two, has no effect.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut failures = Intervals::new();
        loop {
            sleep(READ_AGAIN).await;
            let certificate = self.clone();
            match tokio::task::spawn_blocking(move || certificate.read_again()).await {
                Ok(Ok(changed)) => {
                    failures.end();
                    if changed {
                        tracing::info!("the certificate of the port of metrics was replaced");
                    }
                }
                Ok(Err(CertificateError { file, message })) => {
                    if let Some(count) = failures.occurred(Instant::now()) {
                        let file = text::path(&file);
                        let error = text::line(&message);
                        tracing::warn!(%file, error, count, "new certificate of the port of metrics not used");
                    }
                }
                // The runtime is shutting down.
                Err(_) => return,
            }
        }
    }

    /// Returns true if the files have another certificate or key than before. Blocks.
    fn read_again(&self) -> Result<bool, CertificateError> {
        let Some(files) = &self.files else { return Ok(false) };
        self.reads.fetch_add(1, Relaxed);
        let read = Current::read(files).inspect_err(|_| {
            self.errors.fetch_add(1, Relaxed);
        })?;
        let mut current = self.current.lock();
        let changed = read.pem != current.pem;
        if changed {
            *current = read;
        }
        Ok(changed)
    }
}

impl Current {
    fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let CertificateFiles { certificate, key } = files;
        let contents = |file: &PathBuf| {
            let length = fs::metadata(file).map(|metadata| metadata.len());
            let read = match length {
                Ok(length) if length > MAX_BYTES => Err(format!("has {length} bytes; at most {MAX_BYTES} are read")),
                Ok(_) => fs::read(file).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            read.map_err(|message| CertificateError { file: file.clone(), message })
        };
        let pem = [contents(certificate)?, contents(key)?];
        let of = |file: &PathBuf, message: String| CertificateError { file: file.clone(), message };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem[0]).collect();
        let chain = chain.map_err(|error| of(certificate, format!("is not PEM: {error}")))?;
        if chain.is_empty() {
            return Err(of(certificate, "has no CERTIFICATE in PEM".to_owned()));
        }
        let private = PrivateKeyDer::from_pem_slice(&pem[1])
            .map_err(|error| of(key, format!("has no PRIVATE KEY in PEM: {error}")))?;
        // The two may be of different pairs, which is no mistake in one of them.
        let config = config(chain, private).map_err(|error| of(key, format!("{error:#}")))?;
        Ok(Self { pem, config })
    }
}

fn config(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> anyhow::Result<Arc<ServerConfig>> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    let mut config = builder
        .with_single_cert(chain, key)
        .context("the key cannot be used with the certificate; both must be of one pair")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Writes a certificate and its key into the directory.
    fn write(directory: &Path) -> CertificateFiles {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        let files = CertificateFiles { certificate: directory.join("tls.crt"), key: directory.join("tls.key") };
        let pem = |label: &str, der: &[u8]| {
            use base64::{Engine, prelude::BASE64_STANDARD};
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
        };
        fs::write(&files.certificate, pem("CERTIFICATE", certificate.der())).unwrap();
        fs::write(&files.key, pem("PRIVATE KEY", key.serialized_der())).unwrap();
        files
    }

    #[test]
    fn changed_files_are_used_and_half_of_a_pair_is_not() {
        let place = tempfile::tempdir().unwrap();
        let certificate = Certificate::read(write(place.path())).unwrap();
        let first = certificate.config();
        assert!(!certificate.read_again().unwrap());
        assert!(Arc::ptr_eq(&first, &certificate.config()));

        let other = tempfile::tempdir().unwrap();
        let renewed = write(other.path());
        fs::copy(&renewed.certificate, place.path().join("tls.crt")).unwrap();
        let error = certificate.read_again().unwrap_err().to_string();
        assert!(error.contains("tls.key") && error.contains("of one pair"), "{error}");
        assert!(Arc::ptr_eq(&first, &certificate.config()), "the pair before is used");

        fs::copy(&renewed.key, place.path().join("tls.key")).unwrap();
        assert!(certificate.read_again().unwrap());
        assert!(!Arc::ptr_eq(&first, &certificate.config()));
        assert_eq!(certificate.figures(), Some(CertificateFigures { reads: 4, errors: 1 }));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let files = write(place.path());
        let refused = |name: &str, contents: Option<&str>| {
            let file = place.path().join(name);
            let before = fs::read(&file).unwrap();
            match contents {
                Some(contents) => fs::write(&file, contents).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            let error = Certificate::read(files.clone()).unwrap_err().to_string();
            fs::write(&file, before).unwrap();
            assert!(error.contains(name), "{error}");
            error
        };
        assert!(refused("tls.crt", None).contains("No such file"));
        assert!(refused("tls.crt", Some("no certificate")).contains("no CERTIFICATE"));
        assert!(refused("tls.key", Some("")).contains("no PRIVATE KEY"));
        assert!(refused("tls.key", Some(&" ".repeat(2 << 20))).contains("at most"));
        assert!(Certificate::read(files).is_ok());
    }

    #[test]
    fn a_certificate_can_be_signed_by_itself() {
        let certificate = Certificate::self_signed().unwrap();
        assert_eq!(certificate.config().alpn_protocols, [b"http/1.1"]);
        assert_eq!(certificate.figures(), None);
    }
}
