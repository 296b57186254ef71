//! The client: what it may connect to, how names become addresses, and the time of an operation.

#![expect(
    clippy::disallowed_methods,
    reason = "resolves names of registries that the platform lists; the addresses are checked"
)]

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::time::timeout;

use crate::{Allowed, Error, Proxies};

/// Bounds of one operation.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most bytes of a component.
    pub component: u64,
    /// The time of the whole operation, however many requests it takes.
    pub time: Duration,
}

/// Resolves names of hosts.
pub trait Resolve: Send + Sync {
    /// Returns the addresses of a name, in the order in which to try them.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// Resolves names as the system does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }
}

/// A client of the registries of a list. It holds no credentials: each operation has its own.
#[derive(Clone)]
pub struct Client {
    pub(crate) allowed: Arc<Allowed>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) proxies: Arc<Proxies>,
}

impl Client {
    #[must_use]
    pub fn new(allowed: Allowed, resolver: impl Resolve + 'static) -> Self {
        Self { allowed: Arc::new(allowed), resolver: Arc::new(resolver), proxies: Arc::default() }
    }

    /// Returns the same client, which connects through these proxies. A name is sent to the proxy as it is, so the
    /// addresses that it has are not checked here; an address that is written as such is.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { proxies: Arc::new(proxies), ..self }
    }
}

/// Waits for an operation until its time is over.
pub(crate) async fn within<T>(
    limits: &Limits,
    what: &str,
    operation: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let late = |_| Error::Unavailable(format!("{what} took more than {} s", limits.time.as_secs()));
    timeout(limits.time, operation).await.map_err(late)?
}
