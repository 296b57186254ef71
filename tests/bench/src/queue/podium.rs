//! The host's queue: all keys of 100 tenants, with the bounds of eight workers.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use futures::FutureExt;
use podium_engine::{
    dispatch::Slot,
    queue::{Backoff, Claim, Claims, Job, MemoryBudget, Next, Occupancy, Queue},
};

use super::{Figures, OPERATIONS, name, per_second, resident};

const TENANTS: u32 = 100;
const WORKERS: usize = 8;

type Keys = Queue<u32, Slot, Arc<str>>;

/// Each lane is a tenant, whose runs take one byte.
#[derive(Debug)]
struct Tenants;

impl Claims<u32> for Tenants {
    fn claim(&self, lane: u32) -> Claim {
        Claim { tenant: lane, bytes: 1 }
    }
}

fn queue() -> Keys {
    let occupancy = Occupancy::new(WORKERS);
    let queue = Queue::new(Backoff::default(), occupancy.jobs_of_tenant(), 1).shared(occupancy);
    queue.within(MemoryBudget::new(1_000), Arc::new(Tenants))
}

fn keys(count: usize) -> impl Iterator<Item = (u32, Slot, Arc<str>)> {
    (0..count).map(|at| {
        let (namespace, name) = name(at);
        let uid = Arc::from(format!("7c9e6679-7425-40de-944b-e07f{at:08x}"));
        (at as u32 % TENANTS, (namespace.into(), name.into()), uid)
    })
}

fn next(queue: &Keys) -> Option<Job<u32, Slot, Arc<str>>> {
    queue.next().now_or_never().flatten()
}

pub(super) fn measure(count: usize) -> anyhow::Result<Figures> {
    let all: Vec<_> = keys(count).collect();
    let before = resident()?;
    let queue = queue();
    let add = per_second(count, || queue.add(all.iter().cloned()));
    let bytes_per_key = resident()?.saturating_sub(before) as f64 / count as f64;
    let some = OPERATIONS.min(count);
    let merge = per_second(some, || all.iter().take(some).for_each(|key| queue.add([key.clone()])));
    let mut lost = 0_usize;
    let mut run = |times: usize, then: Next| {
        per_second(times, || {
            for _ in 0..times {
                let Some(job) = next(&queue) else {
                    lost += 1;
                    continue;
                };
                queue.ran(&job, Duration::from_micros(100));
                queue.done(&job, then);
            }
        })
    };
    let cycle = run(OPERATIONS, Next::After(Duration::ZERO));
    let take = run(some, Next::Settled);
    (lost == 0).then_some(Figures { add, merge, cycle, take, bytes_per_key }).context("the queue lost keys")
}
