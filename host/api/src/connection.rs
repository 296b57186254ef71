//! The clients of one API server, which are made again when it refuses the host's credentials.
//!
//! kube reads certificates, the CA and tokens of exec plugins once, and files of tokens once a minute in each client.
//! All parts of a host share the clients of one [`Connection`], so a renewal reaches all of them at the same moment.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use podium_engine::intervals::Intervals;
use podium_vocabulary::text;
use tokio::time::{Instant, timeout};

/// The shortest time between two renewals: an exec plugin may ask a service of a cloud each time.
const EVERY: Duration = Duration::from_secs(10);
/// The time after which a renewal that hangs, such as an exec plugin, is not waited for any more.
const ABANDONED: Duration = Duration::from_secs(60);
/// How long a refused request waits for a renewal. It is shorter than any deadline of the host, so that the refusal is
/// reported and not a timeout.
const PATIENCE: Duration = Duration::from_secs(3);

/// Three clients of one API server with connections of their own.
pub type Clients = [kube::Client; 3];
/// Reads the configuration again and makes the clients. The error is a text for a log line.
pub type MakeClients = Box<dyn Fn() -> BoxFuture<'static, Result<Clients, String>> + Send + Sync>;

/// One of the clients of an API server. Clones share the clients.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<SharedClients>,
    which: usize,
}

struct SharedClients {
    /// `None` for clients that last for ever.
    make: Option<MakeClients>,
    state: Mutex<State>,
}

struct State {
    clients: Clients,
    /// How often clients were made.
    number: u64,
    renewal: Option<Renewal>,
    log: Intervals,
}

struct Renewal {
    began: Instant,
    done: Done,
}

type Done = Shared<BoxFuture<'static, ()>>;

impl From<kube::Client> for Connection {
    fn from(client: kube::Client) -> Self {
        Self::new([client.clone(), client.clone(), client], None)
    }
}

impl Connection {
    fn new(clients: Clients, make: Option<MakeClients>) -> Self {
        let state = Mutex::new(State { clients, number: 0, renewal: None, log: Intervals::new() });
        Self { shared: Arc::new(SharedClients { make, state }), which: 0 }
    }

    /// Returns three connections over these clients, which are replaced by those of `make` when the API server refuses
    /// their credentials or one side does not accept the other's certificate.
    #[must_use]
    pub fn renewed_by(clients: Clients, make: MakeClients) -> [Self; 3] {
        let first = Self::new(clients, Some(make));
        [first.clone(), Self { which: 1, ..first.clone() }, Self { which: 2, ..first }]
    }

    /// Returns the namespace of the configuration.
    #[must_use]
    pub fn default_namespace(&self) -> String {
        self.client().1.default_namespace().to_owned()
    }

    /// Returns the client to use now, and its number.
    pub(super) fn client(&self) -> (u64, kube::Client) {
        let state = self.shared.state.lock();
        (state.number, state.clients[self.which].clone())
    }

    pub(super) fn is_renewable(&self) -> bool {
        self.shared.make.is_some()
    }

    /// Returns true if there are newer clients than the one with this number, which was refused because of `why`.
    /// Otherwise makes some, unless that was done in the last 10 s, or waits up to 3 s for those that are being made.
    pub(super) async fn renewed(&self, refused: u64, why: &str) -> bool {
        if let Some(renewal) = self.shared.renewal(refused, why) {
            let _ = timeout(PATIENCE, renewal).await;
        }
        self.shared.state.lock().number > refused
    }
}

impl SharedClients {
    /// Returns the renewal to wait for: the latest, or a new one if it is due. `None` if there is nothing to wait for.
    fn renewal(self: &Arc<Self>, refused: u64, why: &str) -> Option<Done> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let make = self.make.as_ref().filter(|_| state.number == refused)?;
        let is_recent = |renewal: &Renewal| {
            let wait = if renewal.done.peek().is_some() { EVERY } else { ABANDONED };
            now < renewal.began + wait
        };
        if let Some(renewal) = state.renewal.as_ref().filter(|renewal| is_recent(renewal)) {
            return Some(renewal.done.clone());
        }
        if let Some(count) = state.log.occurred(now) {
            tracing::warn!(error = why, count, "the API server refuses the credentials; reading them again");
        }
        let making = make();
        let own = self.clone();
        let store = async move {
            match making.await {
                Ok(clients) => {
                    let mut state = own.state.lock();
                    state.clients = clients;
                    state.number += 1;
                }
                Err(error) => {
                    let error = text::line(&error);
                    tracing::warn!(error, "credentials of the API server cannot be read again; keeping the old ones");
                }
            }
        };
        let done = store.boxed().shared();
        state.renewal = Some(Renewal { began: now, done: done.clone() });
        Some(done)
    }
}

#[cfg(test)]
mod tests;
