//! A proxy to the API server whose connections can be cut: bytes pass unchanged until all connections are closed at
//! once, or until no byte passes any more and neither side is notified. It counts them.

use std::{
    fs, future,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// Dropping it closes all connections and the listener.
#[derive(Debug)]
pub struct Proxy {
    kubeconfig: PathBuf,
    losses: watch::Sender<u64>,
    cut: watch::Sender<bool>,
    passed: Arc<AtomicU64>,
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
        let cut = watch::Sender::new(false);
        let is_cut = cut.subscribe();
        let passed = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&passed);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                connections.spawn(pass(near, api_server, lost.clone(), is_cut.clone(), Arc::clone(&counter)));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { kubeconfig, losses, cut, passed, _tasks: tasks })
    }

    /// Returns the kubeconfig that uses the proxy.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the bytes that have passed in both directions.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Closes all open connections. New ones are accepted.
    pub fn lose_connections(&self) {
        self.losses.send_modify(|losses| *losses += 1);
    }

    /// From now on no byte passes, in either direction. Connections stay open, and new ones are accepted.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Bytes pass again on new connections. Those of during the cut are closed, and the bytes that were sent on them
    /// are lost, as after a cut that is longer than the time-outs of TCP.
    pub fn heal(&self) {
        self.cut.send_replace(false);
        self.lose_connections();
    }
}

async fn pass(
    mut near: TcpStream,
    api_server: SocketAddr,
    mut lost: watch::Receiver<u64>,
    is_cut: watch::Receiver<bool>,
    passed: Arc<AtomicU64>,
) {
    lost.mark_unchanged();
    let passing = async {
        if *is_cut.borrow() {
            return future::pending().await;
        }
        let mut far = TcpStream::connect(api_server).await?;
        // The proxy delays nothing.
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let ((from_near, to_near), (from_far, to_far)) = (near.split(), far.split());
        tokio::try_join!(copy(from_near, to_far, &is_cut, &passed), copy(from_far, to_near, &is_cut, &passed))
    };
    tokio::select! {
        // The client sees the end of its connection.
        _ = passing => {}
        _ = lost.changed() => {}
    }
}

async fn copy(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    is_cut: &watch::Receiver<bool>,
    passed: &AtomicU64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await?;
        if *is_cut.borrow() {
            return future::pending().await;
        }
        if read == 0 {
            return to.shutdown().await;
        }
        passed.fetch_add(read as u64, Ordering::Relaxed);
        to.write_all(&buffer[..read]).await?;
    }
}
