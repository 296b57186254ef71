//! The API on a socket: plain HTTP, for kubectl and for hosts in other processes.

use std::net::SocketAddr;

use axum::{Router, serve::ListenerExt};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::service::Api;

/// A listening API server. It stops when it is dropped or when its cluster shuts down.
#[derive(Debug)]
#[must_use = "a dropped server stops listening"]
pub struct Server {
    addr: SocketAddr,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) async fn bind(api: Api, addr: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        // A watch event is small and must not wait for the next one.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY not set");
            }
        });
        let stop = api.stop.clone();
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            let served = axum::serve(listener, Router::new().fallback_service(api)).with_graceful_shutdown(stopped);
            if let Err(error) = served.await {
                tracing::warn!(%error, "socket of the API failed");
            }
        });
        Ok(Self { addr, stop, task: Some(task) })
    }

    /// Returns the bound address, with the actual port if 0 was requested.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns a kubeconfig (YAML) whose only context is this cluster.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: devcluster\n\
             clusters:\n- name: devcluster\n  cluster:\n    server: http://{}\n\
             users:\n- name: admin\n  user: {{}}\n\
             contexts:\n- name: devcluster\n  context:\n    cluster: devcluster\n    user: admin\n    \
             namespace: default\n",
            self.addr
        )
    }

    /// Stops listening, closes open connections and waits for them.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "socket of the API failed");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
