//! The state of the fault switches, from which each request takes its faults.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Garble, Refusal, Requests};
use crate::{failure::Failure, store::Store};

/// Counts of the faults that were injected into open watches. A watch remembers the counts at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) disconnects: u64,
    pub(crate) zombies: u64,
    pub(crate) caught_up: u64,
}

#[derive(Debug, Default)]
struct Plan {
    delay: Duration,
    /// None leaves events as they are.
    garbles: VecDeque<(Option<Garble>, u32)>,
    endless_lists: u32,
    refusals: VecDeque<(Requests, Refusal, u32)>,
    cuts: u32,
    lag: Option<Arc<Store>>,
}

#[derive(Debug, Default)]
pub(crate) struct Switches {
    signals: watch::Sender<Signals>,
    plan: Mutex<Plan>,
}

impl Switches {
    pub(super) fn reset(&self) {
        *self.plan.lock() = Plan::default();
    }

    pub(super) fn signal(&self, change: impl FnOnce(&mut Signals)) {
        self.signals.send_modify(change);
    }

    pub(super) fn garble(&self, how: Option<Garble>, events: u32) {
        self.plan.lock().garbles.push_back((how, events));
    }

    pub(super) fn without_end_bookmark(&self, lists: u32) {
        self.plan.lock().endless_lists += lists;
    }

    pub(super) fn refuse(&self, requests: Requests, refusal: Refusal, times: u32) {
        self.plan.lock().refusals.push_back((requests, refusal, times));
    }

    pub(super) fn cut_answers(&self, writes: u32) {
        self.plan.lock().cuts += writes;
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.plan.lock().delay = delay;
    }

    pub(super) fn set_lag(&self, store: Option<Arc<Store>>) {
        self.plan.lock().lag = store;
    }

    pub(crate) fn signals(&self) -> watch::Receiver<Signals> {
        self.signals.subscribe()
    }

    pub(crate) fn delay_now(&self) -> Duration {
        self.plan.lock().delay
    }

    /// Returns the state of the lagging replica, if there is one.
    pub(crate) fn lagging(&self) -> Option<Arc<Store>> {
        self.plan.lock().lag.clone()
    }

    /// Returns the fault of a watch's next event.
    pub(crate) fn take_garble(&self) -> Option<Garble> {
        let mut plan = self.plan.lock();
        plan.garbles.retain(|(_, left)| *left > 0);
        let (how, left) = plan.garbles.front_mut()?;
        *left -= 1;
        *how
    }

    pub(crate) fn take_endless_list(&self) -> bool {
        take(&mut self.plan.lock().endless_lists)
    }

    pub(crate) fn take_cut(&self) -> bool {
        take(&mut self.plan.lock().cuts)
    }

    /// Returns the refusal of a request, and whether it is sent in the response's first event.
    pub(crate) fn take_refusal(&self, request: Requests) -> Option<Refusal> {
        let mut plan = self.plan.lock();
        plan.refusals.retain(|(_, _, left)| *left > 0);
        let mut fitting = plan.refusals.iter_mut().filter(|(of, ..)| matches!(of, Requests::All) || *of == request);
        let (_, refusal, left) = fitting.next()?;
        *left -= 1;
        Some(*refusal)
    }
}

impl Refusal {
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Gone => Failure::expired("too old resource version: on request"),
            Self::TooManyRequests { retry_after_seconds } => Failure::too_many_requests(retry_after_seconds),
            Self::Internal => Failure::unexpected("an error on request"),
            Self::Unavailable => Failure::unavailable(),
            Self::RevisionTooLarge => Failure::future_revision(u64::MAX, 0),
        }
    }
}

fn take(left: &mut u32) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}
