//! [`Duty`]: which Pod of a large workload judges it for all, so that a change of many Pods causes few reads of them.
//!
//! The first Pod that changes judges the workload at once and has the duty from then on. Meanwhile the others only
//! record that there was a change. It judges again every [`PAUSE`] until there was no change since the previous
//! judgement: a change during a judgement, which its snapshot may lack, is seen by the next one.
//!
//! The duty is in the plugin's state, which may be lost: the next Pod that changes then takes it. The same happens if
//! the Pod on duty is late, because it was deleted or its runs fail.

use std::time::Duration;

use podium_sdk::{Outcome, Request, Result, Timestamp, state};
use serde::{Deserialize, Serialize};

/// How often a large workload is judged while its Pods change.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);

/// The stored form, by the uid of the workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OnDuty {
    /// The uid of the Pod that judges.
    uid: String,
    /// The next judgement in epoch milliseconds.
    due: i64,
    /// True if a Pod changed since the last judgement began.
    changed: bool,
}

/// The task of a Pod's run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Judge the workload, then call [`Duty::judged`].
    Judge,
    /// Return this outcome.
    Wait(Outcome),
}

/// The duty for one workload, as seen by a run.
pub(crate) struct Duty<'a> {
    workload: &'a str,
    uid: &'a str,
    now: Timestamp,
    /// True if there was a change when this run's judgement began.
    changed: bool,
}

impl<'a> Duty<'a> {
    pub(crate) fn new(workload: &'a str, request: &'a Request) -> Self {
        Self { workload, uid: &request.key().uid, now: request.now(), changed: false }
    }

    /// Decides which Pod judges.
    pub(crate) fn turn(&mut self) -> Result<Turn> {
        let mut turn = Turn::Judge;
        let mut changed = true;
        state::update(self.workload, |there: Option<OnDuty>| {
            let (mine, due) = match &there {
                Some(duty) => (duty.uid == self.uid, Timestamp(duty.due)),
                None => (false, self.now),
            };
            match there {
                Some(duty) if !mine && self.now < due + PAUSE => {
                    turn = Turn::Wait(Outcome::settled());
                    OnDuty { changed: true, ..duty }
                }
                Some(duty) if mine && self.now < due => {
                    turn = Turn::Wait(Outcome::requeue_after(due.since(self.now)));
                    OnDuty { changed: true, ..duty }
                }
                there => {
                    turn = Turn::Judge;
                    changed = !mine || there.is_some_and(|duty| duty.changed);
                    self.due_in(PAUSE, false)
                }
            }
        })?;
        self.changed = changed;
        Ok(turn)
    }

    /// Ends a judgement: drops the duty if nothing changed meanwhile, and keeps it otherwise.
    pub(crate) fn judged(&self, outcome: Outcome) -> Result<Outcome> {
        if outcome != Outcome::settled() {
            // The workload is too young, or has more Pods than one run may mark.
            let Some(wait) = outcome.requeues_after() else { return Ok(outcome) };
            state::put(self.workload, &self.due_in(wait, true))?;
            return Ok(outcome);
        }
        let there = state::entry::<OnDuty>(self.workload)?;
        let idle = there.filter(|duty| !self.changed && duty.value.uid == self.uid && !duty.value.changed);
        if let Some(duty) = idle
            && state::remove_if(self.workload, duty.version)?
        {
            return Ok(outcome);
        }
        Ok(Outcome::requeue_after(PAUSE))
    }

    fn due_in(&self, wait: Duration, changed: bool) -> OnDuty {
        OnDuty { uid: self.uid.to_owned(), due: (self.now + wait).0, changed }
    }
}
