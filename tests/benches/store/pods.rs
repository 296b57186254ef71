//! The Pods of every design: those of the benchmark of the cache, some of them in two states that differ by an event.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use podium_bench::generate::{Options, Population};
use podium_encoding::{Pool, Scratch};
use podium_pods::pod::CachedPod;
use podium_vocabulary::Revision;

use crate::memory;

/// Namespace and name.
pub(crate) type Name = (Arc<str>, Arc<str>);

pub(crate) fn name(pod: &CachedPod) -> Name {
    (Arc::clone(&pod.key.namespace), Arc::clone(&pod.key.name))
}

pub(crate) struct Pods {
    pub(crate) all: Vec<Arc<CachedPod>>,
    pub(crate) names: Vec<Name>,
    /// Bytes of one Pod in designs that store it in its original form, without the shared part.
    pub(crate) value_bytes: usize,
    /// The states of single Pods before and after an event.
    changing: Vec<[Arc<CachedPod>; 2]>,
    revision: AtomicU64,
}

impl Pods {
    pub(crate) fn generate(pods: usize) -> Self {
        let mut population = Population::generate(&Options { pods, ..Options::default() }).unwrap();
        let (pool, mut scratch) = (Pool::new(1), Scratch::default());
        let mut read = |json: String| {
            let (pod, _) = CachedPod::read(json.as_bytes(), &pool, &mut scratch, |_, _| None).unwrap();
            Arc::new(pod)
        };
        let all: Vec<_> = (0..pods).map(|at| read(population.json(at))).collect();
        let mut changing = BTreeMap::new();
        for _ in 0..(pods / 4).clamp(1, 20_000) {
            let modified = population.next_event().unwrap();
            changing.insert(modified.at, [Arc::clone(&all[modified.at]), read(population.json(modified.at))]);
        }
        // Created again, when all shared text exists.
        let (_again, bytes) = memory::measure(|| (0..pods).map(|at| read(population.json(at))).collect::<Vec<_>>());
        let names = all.iter().map(|pod| name(pod)).collect();
        let changing = changing.into_values().collect();
        Self { all, names, value_bytes: bytes / pods, changing, revision: AtomicU64::new(population.revision()) }
    }

    /// Returns a state of some Pod that is newer than every previous one.
    pub(crate) fn change(&self, random: u64) -> Arc<CachedPod> {
        let revision = 1 + self.revision.fetch_add(1, Relaxed);
        let states = &self.changing[random as usize % self.changing.len()];
        let mut pod = CachedPod::clone(&states[(random >> 32) as usize % 2]);
        pod.revision = Revision(revision);
        Arc::new(pod)
    }

    pub(crate) fn newest(&self) -> Revision {
        Revision(self.revision.load(Relaxed))
    }
}

/// A pseudorandom sequence that is cheap in comparison with the measured operations.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
