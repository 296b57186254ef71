//! The designs: Podium's own store, and four alternatives that store the same Pods.
//!
//! A design indexes Pods by node if it can do so without readers seeing an inconsistent index.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::BuildHasher,
    sync::Arc,
};

use arc_swap::ArcSwap;
use foldhash::quality::FixedState;
use imbl::{OrdMap, OrdSet};
use parking_lot::{Mutex, RwLock};
use podium_pods::{
    cache::{self, Reader, Writer},
    pod::{CachedPod, PodEvent, PodView},
};
use podium_vocabulary::PodQuery;

use crate::pods::{Name, Pods, name};

pub(crate) trait Store: Sync + Sized {
    const NAME: &str;
    const KEEPS_VALUES: bool = true;

    fn new(pods: &Pods) -> Self;
    fn get(&self, name: &Name) -> Option<Arc<CachedPod>>;
    /// Replaces older states of existing Pods, and publishes once if the design has publications.
    fn put(&self, pods: Vec<Arc<CachedPod>>);
    /// Creates and drops a consistent view of all Pods. Returns false if the design has no such view.
    fn snapshot(&self) -> bool;
    /// Calls `see` with every Pod.
    fn each(&self, see: impl FnMut(&CachedPod));
    /// Returns the number of a node's Pods, each of them examined; by an index if there is one.
    fn on_node(&self, node: &str) -> usize;
}

/// Counts by examining every Pod.
fn filter(store: &impl Store, node: &str) -> usize {
    let mut found = 0;
    store.each(|pod| found += usize::from(pod.node().as_deref() == Some(node)));
    found
}

/// Podium's pages of packed Pods and persistent indexes of positions, behind an atomic pointer.
pub(crate) struct Podium {
    writer: Mutex<Writer>,
    reader: Reader,
}

impl Store for Podium {
    const NAME: &str = "Podium";
    const KEEPS_VALUES: bool = false;

    fn new(pods: &Pods) -> Self {
        let (mut writer, reader) = cache::new(1);
        writer.relist(pods.all.iter().map(|pod| Arc::clone(pod).into()).collect(), pods.newest()).publish();
        Self { writer: Mutex::new(writer), reader }
    }

    fn get(&self, (namespace, name): &Name) -> Option<Arc<CachedPod>> {
        self.reader.snapshot().get(namespace, name)
    }

    fn put(&self, pods: Vec<Arc<CachedPod>>) {
        self.writer.lock().apply(pods.into_iter().map(PodEvent::applied).collect()).publish();
    }

    fn snapshot(&self) -> bool {
        !self.reader.snapshot().is_empty()
    }

    fn each(&self, mut see: impl FnMut(&CachedPod)) {
        self.reader.snapshot().iter().for_each(|pod| see(&pod));
    }

    fn on_node(&self, node: &str) -> usize {
        let query = PodQuery { node: Some(node.into()), ..PodQuery::default() };
        self.reader.snapshot().find(&query, usize::MAX, None).pods.len()
    }
}

#[derive(Clone, Default)]
struct Persistent {
    pods: OrdMap<Name, Arc<CachedPod>>,
    nodes: OrdMap<Arc<str>, OrdSet<Name>>,
}

impl Persistent {
    fn put(&mut self, pod: Arc<CachedPod>) {
        let name = name(&pod);
        let old = self.pods.get(&name);
        if old.is_some_and(|old| old.revision >= pod.revision) {
            return;
        }
        let (was, is) = (old.and_then(|old| old.node()), pod.node());
        if was != is {
            if let Some(members) = was.and_then(|was| self.nodes.get_mut(&*was)) {
                members.remove(&name);
            }
            if let Some(is) = is {
                self.nodes.entry(is.into()).or_default().insert(name.clone());
            }
        }
        self.pods.insert(name, pod);
    }
}

/// A persistent ordered map behind an atomic pointer.
pub(crate) struct Swapped {
    present: ArcSwap<Persistent>,
    writing: Mutex<()>,
}

impl Store for Swapped {
    const NAME: &str = "`imbl::OrdMap` behind arc-swap";

    fn new(pods: &Pods) -> Self {
        let mut first = Persistent::default();
        pods.all.iter().for_each(|pod| first.put(Arc::clone(pod)));
        Self { present: ArcSwap::from_pointee(first), writing: Mutex::new(()) }
    }

    fn get(&self, name: &Name) -> Option<Arc<CachedPod>> {
        self.present.load().pods.get(name).cloned()
    }

    fn put(&self, pods: Vec<Arc<CachedPod>>) {
        let _writing = self.writing.lock();
        let mut next = Persistent::clone(&self.present.load());
        pods.into_iter().for_each(|pod| next.put(pod));
        self.present.store(Arc::new(next));
    }

    fn snapshot(&self) -> bool {
        !self.present.load_full().pods.is_empty()
    }

    fn each(&self, mut see: impl FnMut(&CachedPod)) {
        self.present.load_full().pods.values().for_each(|pod| see(pod));
    }

    fn on_node(&self, node: &str) -> usize {
        let present = self.present.load_full();
        let members = present.nodes.get(node).into_iter().flatten();
        members.filter(|name| present.pods.get(*name).is_some()).count()
    }
}

/// A hash table without locks. An index by node would be a second table, which could contradict the first.
pub(crate) struct Papaya(papaya::HashMap<Name, Arc<CachedPod>, FixedState>);

impl Store for Papaya {
    const NAME: &str = "papaya";

    fn new(pods: &Pods) -> Self {
        let map = papaya::HashMap::with_capacity_and_hasher(pods.all.len(), FixedState::with_seed(1));
        {
            let map = map.pin();
            for pod in &pods.all {
                map.insert(name(pod), Arc::clone(pod));
            }
        }
        Self(map)
    }

    fn get(&self, name: &Name) -> Option<Arc<CachedPod>> {
        self.0.pin().get(name).cloned()
    }

    fn put(&self, pods: Vec<Arc<CachedPod>>) {
        let map = self.0.pin();
        for pod in pods {
            let newer = |old: &Arc<CachedPod>| if old.revision < pod.revision { &pod } else { old }.clone();
            map.update(name(&pod), newer);
        }
    }

    fn snapshot(&self) -> bool {
        false
    }

    fn each(&self, mut see: impl FnMut(&CachedPod)) {
        self.0.pin().values().for_each(|pod| see(pod));
    }

    fn on_node(&self, node: &str) -> usize {
        filter(self, node)
    }
}

const SHARDS: usize = 64;

/// Hash tables with one lock each. It lacks the same index as papaya.
pub(crate) struct Sharded {
    shards: Vec<RwLock<HashMap<Name, Arc<CachedPod>, FixedState>>>,
    hasher: FixedState,
}

impl Sharded {
    fn shard(&self, name: &Name) -> &RwLock<HashMap<Name, Arc<CachedPod>, FixedState>> {
        // The tables use the lower bits.
        &self.shards[(self.hasher.hash_one(name) >> 40) as usize % SHARDS]
    }
}

impl Store for Sharded {
    const NAME: &str = "64 hash tables, each behind a read-write lock";

    fn new(pods: &Pods) -> Self {
        let hasher = FixedState::with_seed(1);
        let table = || RwLock::new(HashMap::with_capacity_and_hasher(pods.all.len() / SHARDS, hasher.clone()));
        let store = Self { shards: (0..SHARDS).map(|_| table()).collect(), hasher: hasher.clone() };
        for pod in &pods.all {
            let name = name(pod);
            store.shard(&name).write().insert(name.clone(), Arc::clone(pod));
        }
        store
    }

    fn get(&self, name: &Name) -> Option<Arc<CachedPod>> {
        self.shard(name).read().get(name).cloned()
    }

    fn put(&self, pods: Vec<Arc<CachedPod>>) {
        for pod in pods {
            let name = name(&pod);
            if let Some(held) = self.shard(&name).write().get_mut(&name)
                && held.revision < pod.revision
            {
                *held = pod;
            }
        }
    }

    fn snapshot(&self) -> bool {
        let shards: Vec<_> = self.shards.iter().map(RwLock::read).collect();
        let all: Vec<_> = shards.iter().flat_map(|shard| shard.values().cloned()).collect();
        drop(shards);
        !all.is_empty()
    }

    fn each(&self, mut see: impl FnMut(&CachedPod)) {
        for shard in &self.shards {
            shard.read().values().for_each(|pod| see(pod));
        }
    }

    fn on_node(&self, node: &str) -> usize {
        filter(self, node)
    }
}

#[derive(Default)]
struct Ordered {
    pods: BTreeMap<Name, Arc<CachedPod>>,
    nodes: BTreeMap<Arc<str>, BTreeSet<Name>>,
}

impl Ordered {
    fn put(&mut self, pod: Arc<CachedPod>) {
        let name = name(&pod);
        let old = self.pods.get(&name);
        if old.is_some_and(|old| old.revision >= pod.revision) {
            return;
        }
        let (was, is) = (old.and_then(|old| old.node()), pod.node());
        if was != is {
            if let Some(members) = was.and_then(|was| self.nodes.get_mut(&*was)) {
                members.remove(&name);
            }
            if let Some(is) = is {
                self.nodes.entry(is.into()).or_default().insert(name.clone());
            }
        }
        self.pods.insert(name, pod);
    }
}

/// One ordered map behind one lock.
pub(crate) struct Locked(RwLock<Ordered>);

impl Store for Locked {
    const NAME: &str = "a `BTreeMap` behind one read-write lock";

    fn new(pods: &Pods) -> Self {
        let mut first = Ordered::default();
        pods.all.iter().for_each(|pod| first.put(Arc::clone(pod)));
        Self(RwLock::new(first))
    }

    fn get(&self, name: &Name) -> Option<Arc<CachedPod>> {
        self.0.read().pods.get(name).cloned()
    }

    fn put(&self, pods: Vec<Arc<CachedPod>>) {
        let mut present = self.0.write();
        pods.into_iter().for_each(|pod| present.put(pod));
    }

    fn snapshot(&self) -> bool {
        let all: Vec<_> = self.0.read().pods.values().cloned().collect();
        !all.is_empty()
    }

    fn each(&self, mut see: impl FnMut(&CachedPod)) {
        self.0.read().pods.values().for_each(|pod| see(pod));
    }

    fn on_node(&self, node: &str) -> usize {
        let present = self.0.read();
        let members = present.nodes.get(node).into_iter().flatten();
        members.filter(|name| present.pods.contains_key(*name)).count()
    }
}
