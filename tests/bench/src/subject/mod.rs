//! The subjects of a measurement: each is a process that follows the server's Pods and reports its progress on standard
//! output. It is measured from outside, except the time at which a change became visible, which only the subject knows.

mod control;
mod kube_rs;
mod podium;
mod wire;

use std::path::Path;

use anyhow::Context;
use rustls::pki_types::{CertificateDer, pem::PemObject};

pub(crate) use self::wire::{Encoding, Event, Events};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    /// Watch, cache, wake of ten plugins and queue, as in the host
    Podium,
    /// The same without plugins: only the cache
    PodiumCache,
    /// kube-rs' reflector on a streaming list
    KubeRs,
    /// The same, objects without the fields that controllers rarely read
    KubeRsStripped,
    /// Only the host's client: events are split off and discarded
    Wire,
    /// The same in protobuf
    WireProtobuf,
}

/// Follows the Pods until standard input ends.
///
/// # Errors
/// Returns an error if the server cannot be reached or violates the protocol.
pub(crate) fn run(subject: Subject, url: &str, ca: Option<&Path>) -> anyhow::Result<()> {
    // One thread: the other processor is the server's, and the cost of waiting for another thread should not be
    // measured.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut config = kube::Config::new(url.parse().with_context(|| format!("{url} is no URL"))?);
    if let Some(file) = ca {
        let certificate = CertificateDer::from_pem_file(file);
        let certificate = certificate.with_context(|| format!("{} is no certificate", file.display()))?;
        config.root_cert = Some(vec![certificate.to_vec()]);
    }
    // There is only one provider; an error means that it is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match subject {
        // Its own runtime, as in the host.
        Subject::Podium => podium::run(config, podium::PLUGINS),
        Subject::PodiumCache => podium::run(config, 0),
        Subject::KubeRs => runtime()?.block_on(kube_rs::follow(config, false)),
        Subject::KubeRsStripped => runtime()?.block_on(kube_rs::follow(config, true)),
        Subject::Wire => runtime()?.block_on(wire::follow(config, Encoding::Json)),
        Subject::WireProtobuf => runtime()?.block_on(wire::follow(config, Encoding::Protobuf)),
    }
}
