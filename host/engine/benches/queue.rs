//! Operations of the queue per second at 1,000, 100,000 and 1,000,000 due keys of 100 tenants, and bytes per key:
//! `cargo bench -p podium-engine --bench queue`.
//!
//! `add` puts a key in that is not there, `merge` one that is due already, `take + done` takes the next key, charges
//! its run and returns it settled, and `cycle` takes a key and returns it to be run again. In the second table
//! the jobs of all lanes but one do not fit into the memory that is free.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints figures, and a panic is how it fails")]

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use podium_engine::{
    dispatch::Slot,
    queue::{Backoff, Budget, Claim, Claims, Job, Next, Occupancy, Queue},
};

const TENANTS: u32 = 100;
const WORKERS: usize = 8;
const OPERATIONS: usize = 200_000;

type Keys = Queue<u32, Slot, Arc<str>>;

/// Each lane is a tenant. All take 1 byte, or all but the first 50.
#[derive(Debug)]
struct Tenants {
    large: bool,
}

impl Claims<u32> for Tenants {
    fn claim(&self, lane: u32) -> Claim {
        Claim { tenant: lane, bytes: if self.large && lane > 0 { 50 } else { 1 } }
    }
}

fn queue(large: bool) -> Keys {
    let occupancy = Occupancy::new(WORKERS);
    let queue = Queue::new(Backoff::default(), occupancy.jobs_of_tenant(), 1).shared(occupancy);
    queue.within(Budget::new(if large { 100 } else { 1_000 }), Arc::new(Tenants { large }))
}

fn keys(count: usize, lanes: u32) -> impl Iterator<Item = (u32, Slot, Arc<str>)> {
    (0..count).map(move |at| {
        let (namespace, name) = (Arc::from("shop"), Arc::from(format!("cart-{at:07}-5d9c7b8f6-x2x{}", at % 10)));
        (at as u32 % lanes, (namespace, name), Arc::from(format!("7c9e6679-7425-40de-944b-e07f{at:08x}")))
    })
}

fn next(queue: &Keys) -> Option<Job<u32, Slot, Arc<str>>> {
    queue.next().now_or_never().flatten()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn timed(operations: usize, work: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    work();
    operations as f64 / start.elapsed().as_secs_f64()
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

fn main() {
    println!(
        "{:>10} {:>14} {:>14} {:>14} {:>14} {:>12}",
        "keys", "add/s", "merge/s", "take + done/s", "cycle/s", "bytes/key"
    );
    // The largest first, while no memory is left over from others.
    for count in [1_000_000, 100_000, 1_000] {
        let all: Vec<_> = keys(count, TENANTS).collect();
        let before = resident();
        let queue = queue(false);
        let add = timed(count, || queue.add(all.iter().cloned()));
        let bytes = resident().saturating_sub(before) / count as u64;
        let some = OPERATIONS.min(count);
        let merge = timed(some, || all.iter().take(some).for_each(|key| queue.add([key.clone()])));
        let cycle = timed(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                let job = next(&queue).unwrap();
                queue.ran(&job, Duration::from_micros(100));
                queue.done(&job, Next::After(Duration::ZERO));
            }
        });
        let take = timed(some, || {
            for _ in 0..some {
                let job = next(&queue).unwrap();
                queue.ran(&job, Duration::from_micros(100));
                queue.done(&job, Next::Settled);
            }
        });
        println!("{count:>10} {add:>14.0} {merge:>14.0} {take:>14.0} {cycle:>14.0} {bytes:>12}");
    }
    println!("\n{:>16} {:>10} {:>12}", "lanes that wait", "takes/s", "of small");
    for lanes in [10, 100, 1_000, 10_000] {
        let queue = queue(true);
        let small = |at: usize| (0, (Arc::from("shop"), Arc::from(format!("web-{at}"))), Arc::from("uid"));
        queue.add([small(0)]);
        // While this one runs, only one large one fits.
        let _held = next(&queue).unwrap();
        queue.add(keys(lanes as usize, lanes).filter(|(lane, ..)| *lane > 0));
        let (mut large, mut smalls) = (Vec::new(), 0);
        let rate = timed(OPERATIONS, || {
            for at in 1..=OPERATIONS {
                queue.add([small(at)]);
                match next(&queue) {
                    Some(job) if job.lane > 0 => large.push(job),
                    Some(job) => {
                        smalls += 1;
                        queue.ran(&job, Duration::ZERO);
                        queue.done(&job, Next::Settled);
                    }
                    // A large one has waited too long: it gets its turn.
                    None => {
                        let job = large.pop().unwrap();
                        queue.ran(&job, Duration::ZERO);
                        queue.done(&job, Next::After(Duration::ZERO));
                    }
                }
            }
        });
        println!("{lanes:>16} {rate:>10.0} {smalls:>12}");
    }
}
