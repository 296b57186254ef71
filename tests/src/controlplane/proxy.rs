//! A proxy to the API server whose connections can be cut: bytes pass unchanged until all connections are closed at
//! once.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Dropping it closes all connections and the listener.
#[derive(Debug)]
pub struct Proxy {
    kubeconfig: PathBuf,
    losses: watch::Sender<u64>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub(super) async fn start(api_server: SocketAddr, kubeconfig: &Path, directory: &TempDir) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let own = listener.local_addr()?;
        let text = fs::read_to_string(kubeconfig)?;
        let (direct, through) = (api_server.to_string(), own.to_string());
        ensure!(text.contains(&direct), "{} does not lead to {direct}", kubeconfig.display());
        let kubeconfig = directory.path().join(format!("proxy-{}.kubeconfig", own.port()));
        fs::write(&kubeconfig, text.replace(&direct, &through))?;
        let losses = watch::Sender::new(0);
        let lost = losses.subscribe();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                connections.spawn(pass(near, api_server, lost.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { kubeconfig, losses, _tasks: tasks })
    }

    /// Returns the kubeconfig that uses the proxy.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Closes all open connections. New ones are accepted.
    pub fn lose_connections(&self) {
        self.losses.send_modify(|losses| *losses += 1);
    }
}

async fn pass(mut near: TcpStream, api_server: SocketAddr, mut lost: watch::Receiver<u64>) {
    lost.mark_unchanged();
    let passing = async {
        let mut far = TcpStream::connect(api_server).await?;
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    };
    tokio::select! {
        // The client sees the end of its connection.
        _ = passing => {}
        _ = lost.changed() => {}
    }
}
