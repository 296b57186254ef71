//! Reads the files that a start needs: the kubeconfig with its certificates, and the state directory. All calls
//! block.

use std::{
    io::ErrorKind::NotFound,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::FutureExt;
use kube::{client::AuthError, config::Kubeconfig};
use podium_api::{self, Clients, Connection};
use podium_engine::journal;
use podium_registry::{Allowed, Proxies, Registry};
use podium_runtime::Cache;
use podium_vocabulary::text;
use tokio::runtime::Handle;

use super::compile;
use crate::{
    config::{ConfigError, Policy},
    images::Store,
};

/// Why no client of the API server could be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoClient {
    /// There is no kubeconfig, or it cannot be used.
    #[error("{0}")]
    Misconfigured(String),
    #[error(transparent)]
    Failed(kube::Error),
}

/// Returns three connections to one API server: one for all requests except those of the others, one for the watch, and
/// one for the Lease; and its host and port. When it refuses their credentials, the files are read again. Must be
/// called within a runtime, to which the clients belong.
pub(super) fn connections(
    kubeconfig: Option<PathBuf>,
    proxies: Proxies,
) -> Result<([Connection; 3], String), NoClient> {
    let (made, server) = clients(kubeconfig.as_deref(), &proxies)?;
    let runtime = Handle::current();
    let make = move || {
        let kubeconfig = kubeconfig.clone();
        let proxies = proxies.clone();
        let making = runtime.spawn_blocking(move || clients(kubeconfig.as_deref(), &proxies));
        let made = async {
            let made = making.await.map_err(|error| error.to_string())?;
            made.map(|(clients, _)| clients).map_err(|error| error.to_string())
        };
        made.boxed()
    };
    Ok((Connection::renewed_by(made, Box::new(make)), server))
}

/// Returns the clients of these connections, and the host and port of the server.
fn clients(kubeconfig: Option<&Path>, proxies: &Proxies) -> Result<(Clients, String), NoClient> {
    let config = kube_config(kubeconfig, proxies).map_err(NoClient::Misconfigured)?;
    if config.accept_invalid_certs {
        tracing::warn!(
            "the API server's certificate is not verified, because the kubeconfig sets insecure-skip-tls-verify: \
            anyone on the network path can read and change all traffic"
        );
    }
    // This reads the client certificate and runs the exec plugin.
    let client = |config: kube::Config| {
        let exec = config.auth_info.exec.clone();
        podium_api::client(config).map_err(|error| match (*error, exec) {
            (kube::Error::Auth(AuthError::AuthExecStart(error)), Some(exec)) if error.kind() == NotFound => {
                NoClient::Misconfigured(format!(
                    "the exec plugin {:?} of the kubeconfig does not start: {error}; install it, or name its path{}",
                    exec.command.unwrap_or_default(),
                    exec.install_hint.map_or(String::new(), |hint| format!(". {}", text::line(&hint)))
                ))
            }
            (error, _) => NoClient::Failed(error),
        })
    };
    let server = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    Ok(([client(config.clone())?, client(config.clone())?, client(config)?], server))
}

/// The state directory, opened. Everything is `None` without a directory.
#[derive(Default)]
pub(super) struct State {
    pub(super) journal: Option<journal::Opened>,
    pub(super) code: Option<Arc<Cache>>,
    pub(super) components: Option<Store>,
}

/// Opens the journal, the cache of compiled code and the store of components of the directory, if there is one.
pub(super) fn state(directory: Option<&Path>, now_millis: u64) -> Result<State, journal::Error> {
    // The journal's lock keeps other hosts out of the directory.
    let journal = journal(directory, now_millis)?;
    let code = directory.and_then(|directory| compile::cache(directory, now_millis));
    let components = directory.and_then(components);
    Ok(State { journal, code, components })
}

/// Opens the store of components in a state directory. Logs a failure; the host then fetches all components at each
/// start.
fn components(state: &Path) -> Option<Store> {
    let opened = Store::open(state);
    opened
        .inspect_err(|error| {
            let directory = text::path(state);
            let message = "components are not stored; each start fetches all of them, and runs what the objects say";
            tracing::warn!(directory, %error, "{message}");
        })
        .ok()
}

/// Returns the registries of a policy, with the authorities of the system for those that have none of their own.
///
/// # Errors
/// A mistake in the list.
pub(super) fn registries(
    policy: &Policy,
    registries: Vec<Registry>,
    proxies: &Proxies,
) -> Result<Option<Allowed>, Vec<ConfigError>> {
    if registries.is_empty() {
        return Ok(None);
    }
    let proxied = registries.iter().filter_map(|registry| Some((&registry.host, registry.proxy(proxies)?)));
    for (registry, proxy) in proxied {
        tracing::warn!(
            %registry,
            %proxy,
            "registry is reached through a proxy, which resolves its name: its addresses are not compared with \
             privateAddresses, and the proxy has to refuse metadata services and private networks"
        );
    }
    let found = rustls_native_certs::load_native_certs();
    if !found.errors.is_empty() && registries.iter().any(|registry| registry.certificates.is_empty()) {
        let error = found.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let error = text::line(&error);
        tracing::warn!(error, "not all of the system's certificate authorities can be read; registries may be refused");
    }
    let allowed = Allowed::new(registries, found.certs);
    allowed.map(Some).map_err(|error| vec![policy.error("spec.registries", error.to_string())])
}

/// Opens the directory's journal, if a directory is configured.
fn journal(directory: Option<&Path>, now_millis: u64) -> Result<Option<journal::Opened>, journal::Error> {
    let Some(directory) = directory else {
        tracing::info!(
            "no --state-dir: deletions of pods while the host is down are not delivered, unless a finalizer holds the \
            pod"
        );
        return Ok(None);
    };
    let opened = journal::open(directory, now_millis)?;
    let journal::Figures { entries, bytes, .. } = opened.journal.figures();
    tracing::info!(directory = %directory.display(), entries, bytes, "journal opened");
    Ok(Some(opened))
}

/// Reads the kubeconfig, or else the Pod's ServiceAccount or the user's kubeconfig. The messages of kube's errors
/// contain their causes.
fn kube_config(file: Option<&Path>, proxies: &Proxies) -> Result<kube::Config, String> {
    let of = |kubeconfig| podium_api::config(kubeconfig, |server| proxies.of_url(server));
    match file {
        Some(file) => Kubeconfig::read_from(file).map_err(|error| error.to_string()).and_then(of),
        // Through no proxy: the API server is in the same cluster.
        None => kube::Config::incluster().or_else(|_| {
            Kubeconfig::read().map_err(|error| error.to_string()).and_then(of).map_err(|error| {
                format!("not in a Pod with a ServiceAccount, and no kubeconfig ({error}); pass --kubeconfig FILE")
            })
        }),
    }
}

#[cfg(test)]
mod tests;
