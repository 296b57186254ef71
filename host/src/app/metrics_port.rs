//! [`MetricsPort`]: the flags that decide how the port of metrics authenticates its clients.

use std::{path::PathBuf, sync::Arc};

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::certificate::{Certificate, CertificateFiles};
use crate::admin::ListenAddress;

/// When clients of the port need a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Authentication {
    /// On, except on an address of the loopback interface.
    Auto,
    /// HTTPS, and a token whose user the API server permits to read the path.
    On,
    /// HTTP without credentials.
    Off,
}

/// The flags of the port of metrics besides its address.
#[derive(Debug, Clone, Args)]
pub(super) struct MetricsPort {
    /// Whether clients of /metrics need HTTPS and a bearer token whose user may get /metrics by the RBAC of the
    /// cluster. auto: on, except on a loopback address
    #[arg(
        id = "metrics_authentication",
        long = "metrics-authentication",
        env = "PODIUM_METRICS_AUTHENTICATION",
        value_name = "auto|on|off",
        hide_possible_values = true,
        default_value = "auto"
    )]
    authentication: Authentication,
    /// Certificate of the HTTPS port of /metrics in PEM, with intermediate ones; read again when it changes. Without it
    /// the host makes one at each start, which clients cannot verify
    #[arg(
        id = "metrics_tls_cert_file",
        long = "metrics-tls-cert-file",
        env = "PODIUM_METRICS_TLS_CERT_FILE",
        value_name = "FILE",
        requires = "metrics_tls_private_key_file"
    )]
    certificate: Option<PathBuf>,
    /// Private key of --metrics-tls-cert-file in PEM
    #[arg(
        id = "metrics_tls_private_key_file",
        long = "metrics-tls-private-key-file",
        env = "PODIUM_METRICS_TLS_PRIVATE_KEY_FILE",
        value_name = "FILE",
        requires = "metrics_tls_cert_file"
    )]
    key: Option<PathBuf>,
}

impl MetricsPort {
    /// Returns the certificate of the port at this address; `None` if its clients need no credentials. Blocks.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be used.
    pub(super) fn certificate(self, address: &ListenAddress) -> anyhow::Result<Option<Arc<Certificate>>> {
        let on = match self.authentication {
            Authentication::Auto => !address.is_loopback(),
            Authentication::On => true,
            Authentication::Off => false,
        };
        let files = self.certificate.zip(self.key).map(|(certificate, key)| CertificateFiles { certificate, key });
        if *address == ListenAddress::Off {
            return Ok(None);
        }
        if !on {
            if files.is_some() {
                bail!("--metrics-tls-cert-file has no effect at {address} without --metrics-authentication=on");
            }
            if !address.is_loopback() {
                tracing::warn!(%address, "metrics are served without credentials to every client that can connect");
            }
            return Ok(None);
        }
        let certificate = match files {
            Some(files) => Certificate::read(files)?,
            None => Certificate::self_signed()?,
        };
        Ok(Some(Arc::new(certificate)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        port: MetricsPort,
    }

    fn certificate(address: &str, flags: &[&str]) -> anyhow::Result<bool> {
        let all = ["podium-host"].iter().chain(flags);
        let certificate = Flags::try_parse_from(all)?.port.certificate(&address.parse().unwrap())?;
        Ok(certificate.is_some())
    }

    #[test]
    fn every_address_except_loopback_ones_has_tls_and_authentication() {
        for address in [":8443", "0.0.0.0:8443", "10.0.0.7:8443", "[::]:8443"] {
            assert!(certificate(address, &[]).unwrap(), "{address}");
        }
        for address in ["127.0.0.1:8080", "[::1]:8080", "0"] {
            assert!(!certificate(address, &[]).unwrap(), "{address}");
        }
        assert!(certificate("127.0.0.1:8080", &["--metrics-authentication", "on"]).unwrap());
        assert!(!certificate(":8080", &["--metrics-authentication", "off"]).unwrap());
    }

    #[test]
    fn a_certificate_has_two_files_and_is_not_ignored() {
        assert!(certificate(":8443", &["--metrics-tls-cert-file", "a"]).is_err());
        assert!(certificate(":8443", &["--metrics-tls-private-key-file", "a"]).is_err());
        let both = ["--metrics-tls-cert-file", "none.crt", "--metrics-tls-private-key-file", "none.key"];
        let error = certificate(":8443", &both).unwrap_err().to_string();
        assert!(error.contains("none.crt"), "{error}");
        let error = certificate("127.0.0.1:8080", &both).unwrap_err().to_string();
        assert!(error.contains("--metrics-authentication=on"), "{error}");
    }
}
