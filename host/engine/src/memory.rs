//! Returns free heap memory to the kernel after a list, and after many changes. glibc only returns the top of the
//! heap by itself; blocks that were freed between live ones stay resident until `malloc_trim`. Does nothing with
//! other allocators.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The delays after a list: when its Pods are in their pages, and when most plugins have run on them.
const AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The delay after as many changes as there are Pods, because replaced pages leave gaps. The cost is small compared
/// with that of the changes.
const AFTER_CHANGES: Duration = Duration::from_secs(1);
/// The number of changes below which there is little to return.
const LEAST_CHANGES: usize = 5_000;

/// The times at which memory is returned.
#[derive(Debug, Default)]
pub struct TrimSchedule {
    /// The times, in order.
    due: VecDeque<Instant>,
    /// Changes since memory was last returned, or since a return was scheduled.
    changes: usize,
}

impl TrimSchedule {
    /// Schedules returns after a list, most of whose memory is free soon.
    pub fn plan(&mut self) {
        let now = Instant::now();
        self.due = AFTER.map(|after| now + after).into();
        self.changes = 0;
    }

    /// Records that a cache of `pods` Pods was changed `changes` times.
    pub fn changed(&mut self, changes: usize, pods: usize) {
        self.changes += changes;
        if self.changes < pods.max(LEAST_CHANGES) {
            return;
        }
        self.changes = 0;
        let due = Instant::now() + AFTER_CHANGES;
        if self.due.front().is_none_or(|first| due < *first) {
            self.due.push_front(due);
        }
    }

    /// Returns when [`trim`] is to be called, once for each planned time. Cancel safe.
    pub async fn due(&mut self) {
        match self.due.front() {
            Some(due) => tokio::time::sleep_until(*due).await,
            None => std::future::pending().await,
        }
        self.due.pop_front();
    }
}

/// Returns free memory to the kernel. Blocks for some milliseconds in a process of some hundred megabytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "glibc's allocator has no safe interface")]
pub fn trim() {
    // SAFETY: malloc_trim may be called at any time from any thread, and changes only the allocator's free memory.
    unsafe { libc::malloc_trim(0) };
}

/// Does nothing: this allocator returns memory by itself.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn memory_is_returned_after_as_many_changes_as_pods() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let mut trims = TrimSchedule::default();
        let pods = 10_000;
        let start = Instant::now();
        for _ in 0..9 {
            trims.changed(1_000, pods);
        }
        assert!(tokio::time::timeout(HOUR, trims.due()).await.is_err(), "it is not due before");
        trims.changed(1_000, pods);
        tokio::time::timeout(HOUR, trims.due()).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(3_601));
        // Once for each time, and not while another return is scheduled.
        trims.plan();
        trims.changed(30_000, pods);
        tokio::time::timeout(HOUR, trims.due()).await.unwrap();
        tokio::time::timeout(HOUR, trims.due()).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(3_631));
        // A small cache has little to return.
        trims.changed(4_000, 10);
        assert!(tokio::time::timeout(HOUR, trims.due()).await.is_err());
    }
}
