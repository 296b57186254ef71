//! Time to save 50,000 Pods and to load them: `cargo bench --workspace --bench checkpoint`. The Pods are those of the
//! benchmark of the cache; the file is in the machine's temporary folder and in the page cache. The requests that
//! bring a checkpoint up to date are not measured.

#![expect(clippy::unwrap_used, reason = "a panic is how a bench fails")]

use std::{fs, hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use podium_bench::generate::{Options, Population};
use podium_encoding::{Pool, Scratch};
use podium_host::checkpoint::{Coverage, Saver, load};
use podium_pods::{
    cache,
    pod::{CachedPod, PodView, Record},
};
use podium_vocabulary::{Prune, Revision};

const PODS: usize = 50_000;

fn checkpoint(criterion: &mut Criterion) {
    let population = Population::generate(&Options { pods: PODS, ..Options::default() }).unwrap();
    let (pool, mut scratch) = (Pool::new(1), Scratch::default());
    let read = |at| {
        let json = population.json(at);
        let (pod, _) = CachedPod::read(json.as_bytes(), &pool, &mut scratch, |_, _| None).unwrap();
        Record::from(Arc::new(pod))
    };
    let (mut writer, reader) = cache::new(1);
    writer.relist((0..PODS).map(read).collect(), Revision(1)).publish();
    let snapshot = reader.snapshot();

    let directory = tempfile::tempdir().unwrap();
    let scope = Coverage::new(None, &Prune::default());
    let mut group = criterion.benchmark_group(format!("checkpoint of {PODS} Pods"));
    group.sample_size(20);
    group.bench_function("save", |bencher| {
        bencher.iter(|| {
            let mut saver = Saver::new(directory.path().to_owned(), scope.clone());
            saver.save(snapshot.iter(), snapshot.revision(), snapshot.edits(), None).unwrap();
        });
    });
    // A pool that shares nothing yet, as at a start.
    group.bench_function("load", |bencher| {
        bencher.iter(|| {
            let loaded = load(directory.path(), &scope, &Pool::new(2)).unwrap();
            assert_eq!(black_box(loaded).pods.len(), PODS);
        });
    });
    let bytes = fs::metadata(directory.path().join("checkpoint")).unwrap().len();
    println!("{} bytes for a Pod and {} shared texts", bytes / PODS as u64, pool.shared_texts());
}

criterion_group!(benches, checkpoint);
criterion_main!(benches);
