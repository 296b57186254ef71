//! Compares designs of the store: `cargo bench --workspace --bench store`, with `-- --quick` for a short run with few
//! Pods.
//!
//! Prints two tables for docs/rationale.md, which explains them. Values are medians; every design stores the same
//! Pods, in the same process, one design after the other.

#![expect(clippy::unwrap_used, reason = "a panic is how a bench fails")]

mod designs;
mod load;
mod memory;
mod pods;
mod queries;

use std::hint::black_box;

use podium_bench::monotonic::now;
use podium_pods::{
    cache::{self, Writer},
    pod::{PodEvent, PodList},
};

use self::{
    designs::{Locked, Papaya, Podium, Sharded, Store, Swapped},
    load::{Storm, median, mix, once, put, storm},
    pods::Pods,
};

const READERS: u64 = 2;

struct Scale {
    pods: usize,
    repeats: usize,
    /// Duration of one run of several threads, in nanoseconds.
    run: u64,
    calls: usize,
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let scale = match quick {
        true => Scale { pods: 2_000, repeats: 1, run: 50_000_000, calls: 640 },
        false => Scale { pods: 100_000, repeats: 5, run: 2_000_000_000, calls: 64_000 },
    };
    let pods = Pods::generate(scale.pods);
    println!("{} Pods, a value of {} B each; {} repeats\n", scale.pods, pods.value_bytes, scale.repeats);
    println!(
        "| design | get ns | put ns | of 64 at once, ns | a view of all, us | iteration ns/Pod | 95/5, Mops/s | 50/50, \
        Mops/s | B/Pod | puts/s without readers | with {READERS} readers | of those with readers elsewhere | list p50, \
        p99 ms idle | writer elsewhere | writer | p99 by elsewhere |"
    );
    println!("|{}", "---|".repeat(16));
    row::<Podium>(&pods, &scale);
    row::<Swapped>(&pods, &scale);
    row::<Papaya>(&pods, &scale);
    row::<Sharded>(&pods, &scale);
    row::<Locked>(&pods, &scale);
    println!();
    queries::table(&pods, scale.repeats);
    println!();
    filling(&pods, scale.repeats);
}

/// Measures the benefit of knowing the number of Pods in advance.
fn filling(pods: &Pods, repeats: usize) {
    println!("| {} Pods into an empty store of Podium's | ms |\n|---|---|", pods.all.len());
    let listed: PodList = pods.all.iter().cloned().map(Into::into).collect();
    let mut events: Vec<_> = pods.all.iter().cloned().map(PodEvent::applied).collect();
    // In the order of a watch.
    events.sort_by_key(|event| event.pod.revision);
    let fill = |how: &dyn Fn(&mut Writer)| {
        let once = || {
            let (mut writer, reader) = cache::new(1);
            let begun = now();
            how(&mut writer);
            let took = (now() - begun) as f64 / 1e6;
            assert_eq!(reader.snapshot().len(), pods.all.len());
            took
        };
        median((0..repeats).map(|_| once()).collect())
    };
    let list = fill(&|writer| drop(writer.relist(listed.clone(), pods.newest()).publish()));
    let batch = fill(&|writer| drop(writer.apply(events.clone()).publish()));
    let batches = fill(&|writer| events.chunks(64).for_each(|events| drop(writer.apply(events.to_vec()).publish())));
    println!(
        "| a list | {list:.1} |\n| events, published once | {batch:.1} |\n| events, published by 64 | {batches:.1} |"
    );
}

fn row<S: Store>(pods: &Pods, scale: &Scale) {
    let (store, bytes) = memory::measure(|| S::new(pods));
    let elsewhere = S::new(pods);
    let Scale { repeats, run, calls, .. } = *scale;
    let get = once(repeats, calls, |random| {
        black_box(store.get(&pods.names[random as usize % pods.names.len()]));
    });
    let [single, batched] = [1, 64].map(|at_once| put(&store, pods, repeats, calls, at_once));
    // Podium does not store values in their original form.
    let bytes = bytes / pods.all.len() + if S::KEEPS_VALUES { pods.value_bytes } else { 0 };
    let view = match store.snapshot() {
        true => format!("{:.3}", once(repeats.max(3), 20, |_| assert!(black_box(store.snapshot()))) / 1e3),
        false => "none".to_owned(),
    };
    let iteration = once(repeats.max(3), 3, |_| {
        let mut seen = 0_u64;
        store.each(|pod| seen = seen.wrapping_add(pod.revision.0));
        black_box(seen);
    });
    let mixed = [95, 50].map(|reads| median((0..repeats).map(|_| mix(&store, pods, run, reads)).collect()) / 1e6);
    let storms = |written: Option<&S>, read: &S, readers| -> Storm {
        let storms: Vec<_> = (0..repeats).map(|_| storm(written, read, readers, pods, run)).collect();
        let of = |figure: fn(&Storm) -> f64| median(storms.iter().map(figure).collect());
        Storm { puts: of(|storm| storm.puts), p50: of(|storm| storm.p50), p99: of(|storm| storm.p99) }
    };
    let alone = storms(Some(&store), &elsewhere, 0);
    let idle = storms(None, &store, READERS);
    // As many reader threads as in the next run, on their own store.
    let apart = storms(Some(&store), &elsewhere, READERS);
    let together = storms(Some(&store), &store, READERS);
    let lists = |storm: &Storm| format!("{:.1}, {:.1}", storm.p50 / 1e6, storm.p99 / 1e6);
    println!(
        "| {} | {get:.0} | {single:.0} | {batched:.0} | {view} | {:.1} | {:.2} | {:.2} | {} | {:.0} | {:.0} | {:.2} | \
        {} | {} | {} | {:.2} |",
        S::NAME,
        iteration / pods.all.len() as f64,
        mixed[0],
        mixed[1],
        bytes,
        alone.puts,
        together.puts,
        together.puts / apart.puts,
        lists(&idle),
        lists(&apart),
        lists(&together),
        together.p99 / apart.p99,
    );
}
