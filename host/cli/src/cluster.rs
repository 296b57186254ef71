//! The cluster of `dev` and `demo`: started, listening, with a kubeconfig for kubectl.

use std::path::{Path, PathBuf};

use anyhow::Context;
use kube::{Client, config::Kubeconfig};
use podium_devcluster::{Cluster, Options, Server};
use podium_registry::Proxies;

/// A cluster in this process on a loopback port. It stops when dropped.
pub(crate) struct Local {
    cluster: Cluster,
    server: Server,
}

impl Local {
    pub(crate) async fn start(options: Options) -> anyhow::Result<Self> {
        let cluster = Cluster::start(options).context("cannot start the cluster")?;
        let server = cluster.listen("127.0.0.1:0".parse()?).await.context("cannot listen on 127.0.0.1")?;
        Ok(Self { cluster, server })
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        client(Kubeconfig::from_yaml(&self.server.kubeconfig())?).await
    }

    /// Returns a kubeconfig for kubectl.
    pub(crate) fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }

    /// Writes the kubeconfig to a file for kubectl.
    pub(crate) fn write_kubeconfig(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let path = directory.join("kubeconfig");
        std::fs::write(&path, self.server.kubeconfig()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Returns the proxies of the environment.
pub(crate) fn proxies() -> anyhow::Result<Proxies> {
    Ok(Proxies::new(|name| std::env::var(name).ok())?)
}

/// Returns a client of the cluster of a kubeconfig: of the file, or else of $KUBECONFIG or ~/.kube/config.
pub(crate) async fn connect(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Client> {
    let kubeconfig = match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let mut kubeconfig = kubeconfig.context("cannot read the kubeconfig")?;
    if let Some(context) = context {
        kubeconfig.current_context = Some(context.to_owned());
    }
    client(kubeconfig).await
}

/// Returns a client of the cluster in a kubeconfig's current context.
pub(crate) async fn client(kubeconfig: Kubeconfig) -> anyhow::Result<Client> {
    // A second call finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let proxies = proxies()?;
    let config = podium_api::config(kubeconfig, |server| proxies.of_url(server)).map_err(anyhow::Error::msg)?;
    podium_api::client(config).map_err(|error| *error).context("cannot create a client")
}
