//! A client of the one registry that a command names, and the credentials for it.

use std::{io::Read, path::Path, time::Duration};

use anyhow::{Context, bail};
use podium_registry::{Allowed, Client, Credentials, Error, Hops, Limits, Reference, Registry, SystemResolver};
use rustls::pki_types::CertificateDer;

use super::{MAX_BYTES, docker};
use crate::{args::RegistryAccess, cluster::proxies, ui};

/// The variable with the password of `--username`: a flag would be in the list of processes.
const PASSWORD: &str = "PODIUM_REGISTRY_PASSWORD";

/// A registry, and how it is used.
pub(super) struct Access {
    pub(super) client: Client,
    pub(super) reference: Reference,
    pub(super) credentials: Vec<Credentials>,
    pub(super) limits: Limits,
    plain_http: bool,
}

impl Access {
    /// Reads the flags and the user's files for the registry of a reference.
    pub(super) fn new(reference: &str, arguments: &RegistryAccess) -> anyhow::Result<Self> {
        let reference: Reference = reference.parse()?;
        let registry = Registry {
            plain_http: arguments.plain_http,
            // The user names the registry, which may be on this machine.
            private_addresses: true,
            certificates: arguments.ca_file.as_deref().map(authorities).transpose()?.unwrap_or_default(),
            hops: Hops::Public,
            ..Registry::new(reference.host().clone())
        };
        let system = rustls_native_certs::load_native_certs().certs;
        Ok(Self {
            client: Client::new(Allowed::new(vec![registry], system)?, SystemResolver).through(proxies()?),
            credentials: credentials(&reference, arguments)?,
            reference,
            limits: Limits { component: MAX_BYTES, time: Duration::from_secs(arguments.timeout) },
            plain_http: arguments.plain_http,
        })
    }

    /// Adds advice to an error.
    pub(super) fn explain(&self, error: Error) -> anyhow::Error {
        let host = self.reference.host();
        let advice = match &error {
            Error::Denied(_) if self.credentials.is_empty() => {
                format!("there are no credentials for {host}; run docker login {host}, or use --username")
            }
            Error::Denied(_) => format!("the credentials for {host} were refused"),
            Error::Unavailable(message) if !self.plain_http && message.contains("InvalidContentType") => {
                format!("{host} does not speak TLS; if that is intended, use --plain-http")
            }
            _ => return error.into(),
        };
        anyhow::Error::from(error).context(advice)
    }
}

fn authorities(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = file.display();
    let pem = std::fs::read(file).with_context(|| format!("--ca-file {shown}"))?;
    podium_registry::authorities(&pem).with_context(|| format!("--ca-file {shown}"))
}

fn credentials(reference: &Reference, arguments: &RegistryAccess) -> anyhow::Result<Vec<Credentials>> {
    let Some(username) = &arguments.username else {
        let (credentials, warnings) = docker::credentials(reference)?;
        warnings.iter().for_each(|warning| ui::report(&format!("warning: {warning}")));
        return Ok(credentials);
    };
    let password = if arguments.password_stdin {
        let mut password = String::new();
        std::io::stdin().read_to_string(&mut password).context("--password-stdin")?;
        password.trim_end_matches(['\r', '\n']).to_owned()
    } else {
        std::env::var(PASSWORD).unwrap_or_default()
    };
    if password.is_empty() {
        bail!("--username {username}: the password is missing; set {PASSWORD}, or use --password-stdin");
    }
    Ok(vec![Credentials::new(username, password)])
}
