//! kube-rs' scheduler of its controller: requests come through a channel, and are merged when the scheduler is polled.

use std::{pin::pin, time::Duration};

use anyhow::Context;
use futures::{FutureExt, StreamExt, channel::mpsc};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::time::Instant;

use super::{Figures, OPERATIONS, name, per_second, resident};

/// The fields of kube-rs' `ObjectRef` of a Pod, without the parts that are the same for all.
type Key = (String, String, String);

pub(super) fn measure(count: usize) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let keys: Vec<Key> = (0..count)
            .map(|at| {
                let (namespace, name) = name(at);
                (namespace, name, format!("7c9e6679-7425-40de-944b-e07f{at:08x}"))
            })
            .collect();
        let some = OPERATIONS.min(count);
        let before = resident()?;
        let (asks, requests) = mpsc::unbounded();
        // Before the scheduler's timer begins: a key is due at once. Its controller adds a millisecond.
        let run_at = Instant::now();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut scheduler = pin!(scheduler(requests));
        let ask = |key: &Key| asks.unbounded_send(ScheduleRequest { message: key.clone(), run_at }).is_ok();
        let mut lost = 0_usize;
        // A poll reads all requests, and takes one key.
        let add = per_second(count, || {
            lost += keys.iter().filter(|key| !ask(key)).count();
            lost += usize::from(scheduler.next().now_or_never().flatten().is_none());
        });
        let bytes_per_key = resident()?.saturating_sub(before) as f64 / count as f64;
        let merge = per_second(some, || {
            lost += keys.iter().take(some).filter(|key| !ask(key)).count();
            lost += usize::from(scheduler.next().now_or_never().flatten().is_none());
        });
        let cycle = per_second(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                match scheduler.next().now_or_never().flatten() {
                    Some(key) => lost += usize::from(!ask(&key)),
                    None => lost += 1,
                }
            }
        });
        let some = some.saturating_sub(2);
        let take = per_second(some, || {
            for _ in 0..some {
                lost += usize::from(scheduler.next().now_or_never().flatten().is_none());
            }
        });
        (lost == 0).then_some(Figures { add, merge, cycle, take, bytes_per_key }).context("the scheduler lost keys")
    })
}
