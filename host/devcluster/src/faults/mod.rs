//! Faults on request. A fault lasts until it is used up or [`Faults::heal`] ends it; it affects requests through the
//! API, never the cluster's own actions. Faults are deterministic: the same requests in the same order meet the same
//! faults.
//!
//! Faults of the network are not simulated here; use a proxy before the socket for them.

mod garble;
mod switches;

use std::{sync::Arc, time::Duration};

pub use garble::Garble;
pub(crate) use garble::Garbler;
pub(crate) use switches::{Signals, Switches};

use crate::{core::Core, store::Store};

/// The requests that a refusal affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Lists of either kind: paged lists and streaming lists.
    Lists,
    /// Watches that are not streaming lists.
    Watches,
    Writes,
    All,
}

/// The response of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 410: the history from that revision on is gone. A watch reports it in its first event, as in the API server.
    Gone,
    /// 429 with a Retry-After.
    TooManyRequests { retry_after_seconds: u32 },
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504: this server has not reached the requested revision.
    RevisionTooLarge,
}

/// The whole state of a cluster at one time, like a snapshot of etcd.
#[derive(Clone, Debug)]
#[must_use]
pub struct Saved(Arc<Store>);

/// Injects faults.
#[derive(Clone, Debug)]
#[must_use]
pub struct Faults {
    pub(crate) core: Arc<Core>,
}

impl Faults {
    /// Ends all faults that are not used up yet, including a lag. Open watches that were made silent stay silent,
    /// because their missed events would be missing.
    pub fn heal(&self) {
        self.core.faults.reset();
        self.catch_up();
    }

    /// Cuts every open watch like a lost connection: in the middle of its body, with an error.
    pub fn disconnect_watches(&self) {
        self.core.faults.signal(|signals| signals.disconnects += 1);
    }

    /// Makes every open watch silent: it stays open and sends neither events nor bookmarks nor its end. Watches that
    /// are opened later work.
    pub fn swallow_watches(&self) {
        self.core.faults.signal(|signals| signals.zombies += 1);
    }

    /// Modifies each of the next `events` events of all watches. Bookmarks are not affected. A later call takes
    /// effect after this one.
    pub fn garble(&self, how: Garble, events: u32) {
        self.core.faults.garble(Some(how), events);
    }

    /// Modifies one event of all watches, after a number of events that are sent as they are. Bookmarks are not
    /// counted. A later call takes effect after this one.
    pub fn garble_after(&self, events: u32, how: Garble) {
        self.core.faults.garble(None, events);
        self.core.faults.garble(Some(how), 1);
    }

    /// Omits the bookmark at the end of the initial events in the next `lists` streaming lists.
    pub fn without_end_bookmark(&self, lists: u32) {
        self.core.faults.without_end_bookmark(lists);
    }

    /// Refuses the next `times` requests of that kind. A later call takes effect after this one.
    pub fn refuse(&self, requests: Requests, refusal: Refusal, times: u32) {
        self.core.faults.refuse(requests, refusal, times);
    }

    /// Answers the next watch with 410, whatever revision it starts from.
    pub fn next_watch_gone(&self) {
        self.refuse(Requests::Watches, Refusal::Gone, 1);
    }

    /// Executes the next `writes` writes that are not refused, and then breaks the connection instead of answering.
    /// In the process, where there is no connection, the response's body breaks.
    pub fn cut_answers(&self, writes: u32) {
        self.core.faults.cut_answers(writes);
    }

    /// Delays every response and every batch of watch events; zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.core.faults.set_delay(delay);
    }

    /// Compacts the history: a watch or a page from an earlier revision is answered with 410.
    pub fn compact(&self) {
        self.core.state.lock().store.compact();
    }

    /// Returns the present state, for [`restore`](Self::restore) and [`lag`](Self::lag).
    pub fn save(&self) -> Saved {
        Saved(Arc::new(self.core.state.lock().store.clone()))
    }

    /// Rolls the cluster back to the saved state, as when etcd is restored from a snapshot: revisions continue from
    /// there and are assigned a second time. Open watches are cut, because the API server restarts, and the history
    /// is compacted. Definitions of kinds stay served.
    pub fn restore(&self, saved: &Saved) {
        self.core.write(|state| state.store.restore(&saved.0));
        self.disconnect_watches();
    }

    /// Answers lists and watches from a replica that stays at the saved state. Open watches stay with their server;
    /// reads of single objects and writes use the current state. So do lists without a revision, except streaming
    /// lists, which are refused as by a replica that does not catch up in time.
    pub fn lag(&self, saved: &Saved) {
        self.core.faults.set_lag(Some(saved.0.clone()));
    }

    /// Ends the lag of the replica: its open watches continue with the events that they missed.
    pub fn catch_up(&self) {
        self.core.faults.set_lag(None);
        self.core.faults.signal(|signals| signals.caught_up += 1);
    }
}
