//! Returns free heap memory to the kernel after a list. glibc returns only the top of the heap by itself; blocks that
//! were freed between live ones stay resident until `malloc_trim`. Does nothing with other allocators.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How long after a list: when its Pods are in their pages, and when most plugins have run on them.
const AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// When memory is to be returned.
#[derive(Debug, Default)]
pub struct TrimSchedule {
    due: VecDeque<Instant>,
}

impl TrimSchedule {
    /// A list was read, and most of its memory is free soon.
    pub fn plan(&mut self) {
        let now = Instant::now();
        self.due = AFTER.map(|after| now + after).into();
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
