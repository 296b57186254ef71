//! The operations that are measured on a design, with one or several threads.

use std::{
    hint::black_box,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use podium_bench::monotonic::now;
use podium_pods::pod::CachedPod;

use crate::{
    designs::Store,
    pods::{Pods, Random},
};

const SECOND: u64 = 1_000_000_000;

/// Returns nanoseconds of one call, the median of the rounds.
pub(crate) fn once(rounds: usize, calls: usize, mut call: impl FnMut(u64)) -> f64 {
    let mut random = Random(7);
    let mut round = || {
        let begun = now();
        (0..calls).for_each(|_| call(random.next()));
        (now() - begun) as f64 / calls as f64
    };
    median((0..rounds).map(|_| round()).collect())
}

/// Returns nanoseconds of putting one Pod in batches of `at_once`. Creating the values is not counted.
pub(crate) fn put<S: Store>(store: &S, pods: &Pods, rounds: usize, calls: usize, at_once: usize) -> f64 {
    let mut random = Random(11);
    let mut round = || {
        let batch =
            |random: &mut Random| -> Vec<Arc<CachedPod>> { (0..at_once).map(|_| pods.change(random.next())).collect() };
        let batches: Vec<_> = (0..calls / at_once).map(|_| batch(&mut random)).collect();
        let begun = now();
        batches.into_iter().for_each(|batch| store.put(batch));
        (now() - begun) as f64 / (calls / at_once * at_once) as f64
    };
    median((0..rounds).map(|_| round()).collect())
}

/// Returns operations per second of two threads together, of which `reads` percent are reads.
pub(crate) fn mix<S: Store>(store: &S, pods: &Pods, nanos: u64, reads: u64) -> f64 {
    let (ended, begin) = (AtomicBool::new(false), Barrier::new(3));
    let work = |seed: u64| {
        let mut random = Random(seed);
        let mut done = 0_u64;
        begin.wait();
        while !ended.load(Relaxed) {
            let choice = random.next();
            match choice % 100 < reads {
                true => drop(black_box(store.get(&pods.names[(choice >> 8) as usize % pods.names.len()]))),
                false => store.put(vec![pods.change(choice)]),
            }
            done += 1;
        }
        done
    };
    thread::scope(|scope| {
        let threads = [3, 5].map(|seed| scope.spawn(move || work(seed)));
        begin.wait();
        let begun = now();
        wait_until(begun + nanos);
        ended.store(true, Relaxed);
        let took = (now() - begun) as f64 / SECOND as f64;
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>() as f64 / took
    })
}

/// The results of a writer and of concurrent readers that list everything.
#[derive(Default)]
pub(crate) struct Storm {
    /// Calls of `put` per second.
    pub(crate) puts: f64,
    /// Nanoseconds of one list.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Runs for this long: puts at full rate into one store, and readers that list another store, or the same, in a loop.
pub(crate) fn storm<S: Store>(written: Option<&S>, read: &S, readers: u64, pods: &Pods, nanos: u64) -> Storm {
    let (ended, begin) = (AtomicBool::new(false), Barrier::new(2 + readers as usize));
    let write = || {
        let (mut random, mut done) = (Random(13), 0_u64);
        begin.wait();
        let Some(written) = written else { return 0.0 };
        let begun = now();
        while !ended.load(Relaxed) {
            written.put(vec![pods.change(random.next())]);
            done += 1;
        }
        done as f64 * SECOND as f64 / (now() - begun) as f64
    };
    let list = || {
        let mut lists = Vec::new();
        begin.wait();
        while !ended.load(Relaxed) {
            let (begun, mut seen) = (now(), 0_u64);
            read.each(|pod| seen = seen.wrapping_add(pod.revision.0));
            black_box(seen);
            lists.push((now() - begun) as f64);
        }
        lists
    };
    thread::scope(|scope| {
        let writer = scope.spawn(write);
        let readers: Vec<_> = (0..readers).map(|_| scope.spawn(list)).collect();
        begin.wait();
        wait_until(now() + nanos);
        ended.store(true, Relaxed);
        let puts = writer.join().unwrap();
        let mut lists: Vec<f64> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        lists.sort_by(f64::total_cmp);
        let quantile = |share: f64| lists.get((lists.len() as f64 * share) as usize).copied().unwrap_or_default();
        Storm { puts, p50: quantile(0.5), p99: quantile(0.99) }
    })
}

fn wait_until(end: u64) {
    while let Some(left) = end.checked_sub(now()).filter(|left| *left > 0) {
        #[expect(clippy::disallowed_methods, reason = "a bench measures real time, and this thread has nothing to do")]
        thread::sleep(std::time::Duration::from_nanos(left));
    }
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
