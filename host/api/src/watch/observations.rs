//! Sends observations, and remembers the latest one about the freshness of readers' data.

use std::time::Duration;

use podium_pods::pod::{Observation, Staleness};
use tokio::{sync::mpsc, time::Instant};

/// How long an interrupted watch may take to resume before readers are marked stale. It usually takes milliseconds.
const GRACE: Duration = Duration::from_secs(1);

/// The receiver was dropped.
#[derive(Debug)]
pub(super) struct Closed;

pub(super) struct ObservationSender {
    sender: mpsc::Sender<Observation>,
    health: Health,
}

#[derive(Debug, PartialEq)]
enum Health {
    /// Nothing was sent yet; a new cache is stale.
    Unknown,
    Live,
    /// The stream ended. Sent when this has lasted too long.
    Interrupted {
        stale_at: Instant,
    },
    Stale(String),
}

impl ObservationSender {
    pub(super) fn new(sender: mpsc::Sender<Observation>) -> Self {
        Self { sender, health: Health::Unknown }
    }

    pub(super) async fn send(&self, observation: Observation) -> Result<(), Closed> {
        self.sender.send(observation).await.map_err(|_| Closed)
    }

    /// Reports that the watch is established.
    pub(super) async fn live(&mut self) -> Result<(), Closed> {
        let before = std::mem::replace(&mut self.health, Health::Live);
        match before {
            Health::Live | Health::Interrupted { .. } => Ok(()),
            Health::Unknown | Health::Stale(_) => self.send(Observation::Live).await,
        }
    }

    /// Records that the stream ended and will be resumed.
    pub(super) fn interrupted(&mut self) {
        if self.health == Health::Live {
            self.health = Health::Interrupted { stale_at: Instant::now() + GRACE };
        }
    }

    pub(super) async fn stale(&mut self, reason: String) -> Result<(), Closed> {
        if matches!(&self.health, Health::Stale(said) if *said == reason) {
            return Ok(());
        }
        self.health = Health::Stale(reason.clone());
        self.send(Observation::Stale(Staleness { reason })).await
    }

    /// Waits for `opening`. Reports an interruption that lasts too long meanwhile.
    pub(super) async fn during<T>(&mut self, opening: impl Future<Output = T>) -> Result<T, Closed> {
        let Health::Interrupted { stale_at } = self.health else { return Ok(opening.await) };
        let mut opening = std::pin::pin!(opening);
        tokio::select! {
            biased;
            opened = &mut opening => return Ok(opened),
            () = tokio::time::sleep_until(stale_at) => {}
        }
        self.stale(format!("the watch ended and was not back after {} s", GRACE.as_secs())).await?;
        Ok(opening.await)
    }
}
