//! [`Memo`]: the restarts of containers at the start of a time window. It is in the plugin's state, because it
//! changes with time; if it is lost, a diagnosis comes later, and none is removed.

use std::{collections::BTreeMap, time::Duration};

use podium_sdk::{ContainerStatus, Pod, PodKey, Result, Timestamp, state};
use serde::{Deserialize, Serialize};

/// The restarts of one Pod.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memo {
    /// The start of the window, in epoch milliseconds.
    since: i64,
    /// Restarts at the start of the window, by container.
    restarts: BTreeMap<String, i32>,
}

impl Memo {
    /// Returns the memo of a Pod; a new one if there is none or its window has ended. A Pod that never restarted
    /// needs none in the state.
    pub(crate) fn from_pod(pod: &Pod, now: Timestamp, window: Duration) -> Result<Self> {
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
        // A container that restarted once is young: its restart belongs to the window that begins with it.
        let first = restarts.into_iter().map(|(name, restarts)| (name, if restarts == 1 { 0 } else { restarts }));
        let memo = Self { since: now.0, restarts: first.collect() };
        state::put(pod.uid(), &memo)?;
        Ok(memo)
    }

    /// Returns the restarts since the start of the window.
    pub(crate) fn restarts_lately(&self, container: &ContainerStatus) -> i32 {
        container.restart_count - self.restarts.get(&container.name).copied().unwrap_or_default()
    }
}

/// Removes the memo of a Pod that is gone.
pub(crate) fn forget(key: &PodKey) -> Result<()> {
    state::remove(&key.uid)
}
