//! Memory that was needed for a moment goes back to the kernel.
//!
//! A list makes every Pod by itself before it goes into its page, and queues the keys of all. What is free afterwards
//! lies between what stays, and an allocator gives back by itself only what lies at the end. Not here: what an
//! allocator other than glibc's does; with those nothing happens.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How long after a list: when its Pods are in their pages, and when most plugins have run on them.
const AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// When memory is to be given back.
#[derive(Debug, Default)]
pub struct GiveBack {
    due: VecDeque<Instant>,
}

impl GiveBack {
    /// Much was read and is done with soon.
    pub fn plan(&mut self) {
        let now = Instant::now();
        self.due = AFTER.map(|after| now + after).into();
    }

    /// Gives memory back whenever it is planned; never ends. Cancel safe.
    ///
    /// It takes some milliseconds in a process of some hundred megabytes.
    pub async fn run(&mut self) -> std::convert::Infallible {
        loop {
            match self.due.front() {
                Some(due) => tokio::time::sleep_until(*due).await,
                None => std::future::pending().await,
            }
            self.due.pop_front();
            give_back();
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    // SAFETY: it may be called at any time from any thread, and touches nothing but free memory of the allocator.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}
