//! [`Memo`]: how often containers had restarted when a window of time began. Lives in the plugin's state, since it
//! moves with time; where it is lost, a diagnosis comes later, and none is taken back.

use std::{collections::BTreeMap, time::Duration};

use podium_sdk::{ContainerStatus, Pod, PodKey, Result, Timestamp, state};
use serde::{Deserialize, Serialize};

/// The memory of one Pod.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memo {
    /// When the window began, in epoch milliseconds.
    since: i64,
    /// Restarts then, by container.
    restarts: BTreeMap<String, i32>,
}

impl Memo {
    /// The memo of a Pod; a new one where there is none or its window has ended. A Pod that never restarted needs none
    /// in the state.
    pub(crate) fn of(pod: &Pod, now: Timestamp, window: Duration) -> Result<Self> {
        let restarts: BTreeMap<_, _> =
            crate::containers(pod)?.map(|container| (container.name.clone(), container.restart_count)).collect();
        if restarts.values().all(|restarts| *restarts == 0) {
            return Ok(Self { since: now.0, restarts });
        }
        if let Some(memo) = state::get::<Self>(pod.uid())?
            && now.since(Timestamp(memo.since)) < window
        {
            return Ok(memo);
        }
        // What restarted once is young: its restart belongs to the window that begins with it.
        let first = restarts.into_iter().map(|(name, restarts)| (name, if restarts == 1 { 0 } else { restarts }));
        let memo = Self { since: now.0, restarts: first.collect() };
        state::put(pod.uid(), &memo)?;
        Ok(memo)
    }

    /// Restarts since the window began.
    pub(crate) fn restarts_lately(&self, container: &ContainerStatus) -> i32 {
        container.restart_count - self.restarts.get(&container.name).copied().unwrap_or_default()
    }
}

/// The Pod is gone: so is what was remembered of it.
pub(crate) fn forget(key: &PodKey) -> Result<()> {
    state::remove(&key.uid)
}
