//! TLS for the server: its own certificate, made by `openssl`, for 127.0.0.1 and one day.
//!
//! Only HTTP/1.1 is offered, to all clients; an API server would offer HTTP/2 too.

use std::{fs, net::TcpStream, path::PathBuf, process::Command, sync::Arc};

use anyhow::Context;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// The certificate is not an authority, because verifiers refuse a server with one.
const REQUEST: &str = "[req]\nprompt=no\ndistinguished_name=name\nx509_extensions=extensions\n\
    [name]\nCN=podium-bench\n[extensions]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n";

pub(super) struct Tls {
    config: Arc<ServerConfig>,
    /// The certificate that clients have to trust, as PEM.
    pub(super) certificate: PathBuf,
}

impl Tls {
    /// Creates a certificate. `folder` contains the certificate and, briefly, its key.
    pub(super) fn new(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let [request, key, certificate] = ["request.cnf", "key.pem", "certificate.pem"].map(|name| folder.join(name));
        fs::write(&request, REQUEST)?;
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "1", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .arg("-config")
            .arg(&request)
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .context("cannot run openssl, which makes the certificate; leave --tls out")?;
        anyhow::ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        let chain = vec![CertificateDer::from_pem_file(&certificate)?];
        let private = PrivateKeyDer::from_pem_file(&key)?;
        fs::remove_file(&key)?;
        fs::remove_file(&request)?;
        // There is only one provider; an error means that it is installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), certificate })
    }

    pub(super) fn accept(&self, stream: TcpStream) -> Result<StreamOwned<ServerConnection, TcpStream>, rustls::Error> {
        Ok(StreamOwned::new(ServerConnection::new(Arc::clone(&self.config))?, stream))
    }
}
