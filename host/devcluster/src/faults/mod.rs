//! What goes wrong on request. A fault is said once, here, and lasts until it is used up or [`Faults::heal`] ends it;
//! it hits the requests that come through the API, never what the cluster does itself. Nothing is left to chance: the
//! same requests in the same order meet the same faults.
//!
//! What a broken network does to bytes on their way is not here: for that put a proxy before the socket.

mod garble;
mod switches;

use std::{sync::Arc, time::Duration};

pub use garble::Garble;
pub(crate) use garble::Garbler;
pub(crate) use switches::{Signals, Switches};

use crate::{core::Core, store::Store};

/// Which requests a refusal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Lists of either kind: page by page, and watches that begin with all there is.
    Lists,
    /// Watches that are no lists.
    Watches,
    Writes,
    All,
}

/// What a request is refused with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 410: the history from there on is forgotten. A watch says it in its first event, as the API server does.
    Gone,
    /// 429, with how long the client is to wait.
    TooManyRequests { retry_after_seconds: u32 },
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504: the revision asked for has not happened yet on this server.
    RevisionTooLarge,
}

/// The whole state of a cluster at one moment, as a snapshot of etcd has it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Saved(Arc<Store>);

/// Makes things go wrong.
#[derive(Clone, Debug)]
#[must_use]
pub struct Faults {
    pub(crate) core: Arc<Core>,
}

impl Faults {
    /// Ends what was asked for and is not used up yet, a lag among it. Open watches that swallow stay as they are: what
    /// they did not report would be missing.
    pub fn heal(&self) {
        self.core.faults.reset();
        self.catch_up();
    }

    /// Cuts every open watch as a lost connection does: in the middle of its body, with an error.
    pub fn disconnect_watches(&self) {
        self.core.faults.signal(|signals| signals.disconnects += 1);
    }

    /// Makes every open watch silent: it stays open and sends neither events nor bookmarks nor its end. Watches that
    /// are opened later work.
    pub fn swallow_watches(&self) {
        self.core.faults.signal(|signals| signals.zombies += 1);
    }

    /// Applies this to each of the next `events` events of all watches. Bookmarks are not affected. A later call takes
    /// effect after this one.
    pub fn garble(&self, how: Garble, events: u32) {
        self.core.faults.garble(how, events);
    }

    /// Leaves the next `lists` streaming lists without the bookmark at the end of their initial events.
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

    /// Does the next `writes` writes that are not refused, and then breaks the connection instead of answering. In the
    /// process, where there is no connection, the answer's body breaks.
    pub fn cut_answers(&self, writes: u32) {
        self.core.faults.cut_answers(writes);
    }

    /// Holds back every answer and every lot of watch events by this long; zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.core.faults.set_delay(delay);
    }

    /// Forgets the history: a watch or a page from a revision before now is answered with 410.
    pub fn compact(&self) {
        self.core.state.lock().store.compact();
    }

    /// What the cluster holds now, for [`restore`](Self::restore) and [`lag`](Self::lag).
    pub fn save(&self) -> Saved {
        Saved(Arc::new(self.core.state.lock().store.clone()))
    }

    /// Sets the cluster back to what was saved, as when etcd is restored from a snapshot: revisions go on from there
    /// and are given a second time. Open watches are cut, as the API server is restarted for it; the history is
    /// forgotten. Definitions of kinds stay served.
    pub fn restore(&self, saved: &Saved) {
        self.core.write(|state| state.store.restore(&saved.0));
        self.disconnect_watches();
    }

    /// From now on a replica that stays at the saved state answers lists and watches. Open watches stay with their
    /// server; reads of single objects and writes use the current state. So do lists without a revision, except
    /// streaming lists, which are refused as by a replica that does not catch up in time.
    pub fn lag(&self, saved: &Saved) {
        self.core.faults.set_lag(Some(saved.0.clone()));
    }

    /// The lagging replica has caught up: its open watches go on with what it had missed.
    pub fn catch_up(&self) {
        self.core.faults.set_lag(None);
        self.core.faults.signal(|signals| signals.caught_up += 1);
    }
}
