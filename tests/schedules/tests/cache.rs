//! A writer and readers of the cache, in many orders.

#![cfg(podium_model = "shuttle")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex},
};

use podium_pods::{
    cache::{self, Reader, Snapshot, Update, Writer},
    pod::{CachedPod, PodEvent, PodView, Record, Staleness},
};
use podium_vocabulary::{LabelOperator, LabelRequirement, LabelSelector, PodQuery, Revision};
use podium_wire::{Header, Owner, Pod, Spec};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::mpsc,
    thread,
};

const NAMES: usize = 3;
const UIDS: usize = 3;
const LABELS: usize = 2;

/// Pods by name, incarnation and label, created once, because encoding a Pod takes longer than a schedule.
static PODS: LazyLock<Vec<CachedPod>> = LazyLock::new(|| {
    let made = (0..NAMES * UIDS * LABELS).map(|at| {
        let (name, uid, label) = (at / (UIDS * LABELS), at / LABELS % UIDS, at % LABELS);
        let header = Header {
            namespace: format!("ns-{}", name % 2),
            name: format!("pod-{name}"),
            uid: format!("uid-{name}-{uid}"),
            resource_version: "1".to_owned(),
            ..Header::default()
        };
        let pod = Pod {
            header,
            labels: [("app".to_owned(), format!("l{label}"))].into(),
            owners: vec![Owner { uid: format!("owner-{label}"), ..Owner::default() }],
            spec: Spec { node_name: Some(format!("node-{label}")), ..Spec::default() },
            ..Pod::default()
        };
        CachedPod::new(&pod).unwrap()
    });
    made.collect()
});

fn pod(name: usize, uid: usize, label: usize, revision: u64) -> Arc<CachedPod> {
    let mut pod = PODS[(name * UIDS + uid) * LABELS + label].clone();
    pod.revision = Revision(revision);
    Arc::new(pod)
}

/// A cluster whose history advances by itself, and a writer that receives its changes.
struct Cluster {
    writer: Writer,
    reader: Reader,
    /// All publications in order.
    published: Vec<Arc<Snapshot>>,
    revision: u64,
    /// Incarnation, label and revision by name.
    present: BTreeMap<usize, (usize, usize, u64)>,
}

impl Cluster {
    fn new((writer, reader): (Writer, Reader)) -> Self {
        let published = vec![reader.snapshot()];
        Self { writer, reader, published, revision: 0, present: BTreeMap::new() }
    }

    fn write<T>(&mut self, call: impl FnOnce(&mut Writer) -> T) {
        call(&mut self.writer);
        self.published.push(self.reader.snapshot());
    }

    fn pods(&self) -> impl Iterator<Item = Arc<CachedPod>> {
        self.present.iter().map(|(name, (uid, label, revision))| pod(*name, *uid, *label, *revision))
    }

    /// Creates, changes or deletes the Pod of one name.
    fn event(&mut self) -> PodEvent {
        let mut random = thread_rng();
        let (name, label) = (random.gen_range(0..NAMES), random.gen_range(0..LABELS));
        self.revision += 1;
        match self.present.get(&name) {
            Some((uid, label, _)) if random.gen_range(0..3) == 0 => {
                let gone = pod(name, *uid, *label, self.revision);
                self.present.remove(&name);
                PodEvent::deleted(gone)
            }
            held => {
                let uid = held.map_or(self.revision as usize % UIDS, |(uid, ..)| *uid);
                self.present.insert(name, (uid, label, self.revision));
                PodEvent::applied(pod(name, uid, label, self.revision))
            }
        }
    }

    fn step(&mut self) {
        match thread_rng().gen_range(0..9) {
            0..4 => {
                let events = (0..thread_rng().gen_range(1..4)).map(|_| self.event()).collect();
                self.write(|writer| writer.apply(events).publish());
            }
            4 => {
                // These are not reported, so the list has to contain them.
                (0..3).for_each(|_| drop(self.event()));
                let listed = self.pods().map(Record::from).collect();
                let revision = Revision(self.revision);
                self.write(|writer| writer.relist(listed, revision).publish());
            }
            5 => {
                let Some(name) = self.present.keys().next().copied() else { return };
                self.revision += 1;
                let held = self.present.get_mut(&name).unwrap();
                *held = (held.0, 1 - held.1, self.revision);
                let changed = pod(name, held.0, held.1, self.revision);
                self.write(|writer| writer.apply(vec![PodEvent::applied(changed)]).publish());
            }
            6 => {
                let revision = Revision(self.revision);
                self.write(|writer| writer.bookmark(revision));
            }
            7 => self.write(|writer| writer.set_stale(Staleness { reason: "cut".to_owned() })),
            _ => self.write(Writer::set_live),
        }
    }
}

type Contents = Vec<(String, Revision, Option<String>)>;

fn contents(snapshot: &Snapshot) -> Contents {
    let content = |pod: Arc<CachedPod>| (pod.key.uid.to_string(), pod.revision, pod.node().map(Cow::into_owned));
    snapshot.iter().map(content).collect()
}

/// Checks that names, uids, namespaces, indexes and counts agree with each other and with the Pods.
fn assert_consistent(snapshot: &Snapshot) {
    let pods: Vec<_> = snapshot.iter().collect();
    assert!(pods.is_sorted_by(|a, b| (&a.key.namespace, &a.key.name) < (&b.key.namespace, &b.key.name)));
    assert_eq!(snapshot.len(), pods.len());
    for pod in &pods {
        assert_eq!(snapshot.get(&pod.key.namespace, &pod.key.name).unwrap().key, pod.key);
        assert_eq!(snapshot.by_uid(&pod.key.uid).unwrap().key, pod.key);
    }
    for name in 0..NAMES {
        let found = snapshot.get(&format!("ns-{}", name % 2), &format!("pod-{name}"));
        assert_eq!(found.is_some(), pods.iter().any(|pod| *pod.key.name == *format!("pod-{name}")));
        for uid in (0..UIDS).map(|uid| format!("uid-{name}-{uid}")) {
            assert_eq!(snapshot.by_uid(&uid).is_some(), pods.iter().any(|pod| *pod.key.uid == *uid));
        }
    }
    let same = |query: PodQuery, expected: &dyn Fn(&CachedPod) -> bool| {
        let found = snapshot.find(&query, usize::MAX, None).pods;
        let found: Vec<_> = found.iter().map(|pod| &pod.key.uid).collect();
        let expected: Vec<_> = pods.iter().filter(|pod| expected(pod)).map(|pod| &pod.key.uid).collect();
        assert_eq!(snapshot.count(&query), expected.len() as u64);
        assert_eq!(found, expected, "{query:?}");
    };
    for at in 0..2 {
        let namespace = format!("ns-{at}");
        let in_namespace = PodQuery { namespace: Some(namespace.as_str().into()), ..PodQuery::default() };
        same(in_namespace, &|pod| *pod.key.namespace == *namespace);
        let node = format!("node-{at}");
        let on_node = |pod: &CachedPod| pod.node().as_deref() == Some(&*node);
        same(PodQuery { node: Some(node.as_str().into()), ..PodQuery::default() }, &on_node);
        let owner = format!("owner-{at}");
        same(PodQuery { owner_uid: Some(owner.as_str().into()), ..PodQuery::default() }, &on_node);
        let labelled =
            LabelRequirement { key: "app".into(), operator: LabelOperator::In, values: vec![format!("l{at}")] };
        same(PodQuery { labels: LabelSelector(vec![labelled]), ..PodQuery::default() }, &on_node);
    }
}

fn reading(reader: Reader) -> thread::JoinHandle<Vec<(Arc<Snapshot>, Contents)>> {
    thread::spawn(move || {
        let mut taken: Vec<(Arc<Snapshot>, Contents)> = Vec::new();
        for _ in 0..4 {
            let snapshot = reader.snapshot();
            assert_consistent(&snapshot);
            let before = taken.last().map_or(Revision(0), |(before, _)| before.revision());
            assert!(before <= snapshot.revision(), "back from {before} to {}", snapshot.revision());
            let contents = contents(&snapshot);
            taken.push((snapshot, contents));
        }
        taken
    })
}

#[test]
fn readers_see_whole_publications_in_their_order() {
    common::check(4_000, 1, || {
        let mut cluster = Cluster::new(cache::new(7));
        let readers = [(); 2].map(|()| reading(cluster.reader.clone()));
        (0..5).for_each(|_| cluster.step());
        let published = &cluster.published;
        for taken in readers.into_iter().flat_map(|reader| reader.join()) {
            let mut at = 0;
            for (snapshot, seen) in taken {
                assert_eq!(contents(&snapshot), seen, "a snapshot that was taken changed");
                let found = published[at..].iter().position(|other| Arc::ptr_eq(other, &snapshot));
                at += found.expect("each snapshot was published, and not before the one that was read before it");
            }
        }
        let last = published.last().unwrap();
        assert_consistent(last);
        let keys: BTreeSet<_> = last.iter().map(|pod| pod.key.clone()).collect();
        assert_eq!(keys, cluster.pods().map(|pod| pod.key.clone()).collect());
    });
}

#[test]
fn waiters_wake_at_their_revision_or_when_the_writer_is_dropped() {
    common::check(4_000, 1, || {
        let (mut writer, reader) = cache::new(7);
        let (mut for_revision, mut for_pod, mut for_ever) = (reader.clone(), reader.clone(), reader);
        let waiters = [
            thread::spawn(move || block_on(for_revision.wait_for(|snapshot| snapshot.revision() >= Revision(3)))),
            thread::spawn(move || block_on(for_pod.wait_for(|snapshot| snapshot.by_uid("uid-0-1").is_some()))),
            thread::spawn(move || block_on(for_ever.wait_for(|snapshot| snapshot.len() > NAMES))),
        ];
        writer.relist([Record::from(pod(0, 0, 0, 1))].into_iter().collect(), Revision(1)).publish();
        writer.apply(vec![PodEvent::applied(pod(0, 1, 0, 2))]).publish();
        writer.set_live();
        writer.bookmark(Revision(3));
        drop(writer);
        let [revision, pod, nothing] = waiters.map(|waiter| waiter.join().unwrap());
        assert!(revision.unwrap().revision() >= Revision(3));
        assert!(pod.unwrap().by_uid("uid-0-1").is_some());
        assert!(nothing.is_none());
    });
}

#[test]
fn deletions_are_recorded_before_readers_miss_the_pod() {
    common::check(4_000, 1, || {
        let (mut writer, reader) = cache::new(7);
        writer.relist((0..NAMES).map(|name| Record::from(pod(name, 0, 0, 1))).collect(), Revision(1)).publish();
        let buried = Arc::new(Mutex::new(BTreeSet::new()));
        let grave = Arc::clone(&buried);
        let record_and_publish = |update: Update<'_>| {
            let gone = update.changes().iter().filter(|change| change.new.is_none());
            grave.lock().unwrap().extend(gone.map(|change| change.key().unwrap().uid.clone()));
            update.publish();
        };
        let readers = [(); 2].map(|()| {
            let (reader, buried) = (reader.clone(), Arc::clone(&buried));
            thread::spawn(move || {
                for _ in 0..3 {
                    let snapshot = reader.snapshot();
                    let missed = (0..NAMES).map(|name| format!("uid-{name}-0"));
                    for uid in missed.filter(|uid| snapshot.by_uid(uid).is_none()) {
                        assert!(buried.lock().unwrap().contains(&*uid), "{uid} is missed and was not reported");
                    }
                }
            })
        });
        // Deleted by its event, by another Pod of its name, and by its absence from a list.
        record_and_publish(writer.apply(vec![PodEvent::deleted(pod(0, 0, 0, 2))]));
        record_and_publish(writer.apply(vec![PodEvent::applied(pod(1, 1, 0, 3))]));
        record_and_publish(writer.relist([Record::from(pod(1, 1, 0, 3))].into_iter().collect(), Revision(4)));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn the_writer_and_readers_never_wait_for_each_other() {
    common::check(4_000, 1, || {
        let (mut writer, reader) = cache::new(7);
        let (written, until_written) = mpsc::channel();
        let (seen, until_seen) = mpsc::channel();
        let holding = reader.clone();
        let standing = thread::spawn(move || {
            let snapshot = holding.snapshot();
            until_written.recv().unwrap();
            (snapshot.revision(), holding.snapshot().revision())
        });
        let reading = thread::spawn(move || {
            assert!(reader.snapshot().is_empty());
            assert!(reader.staleness().is_some());
            seen.send(()).unwrap();
        });
        let update = writer.apply(vec![PodEvent::applied(pod(0, 0, 0, 5))]);
        // A reader reads between the two phases of an update.
        until_seen.recv().unwrap();
        update.publish();
        written.send(()).unwrap();
        let (held, present) = standing.join().unwrap();
        assert!(held <= present && present == Revision(5));
        reading.join().unwrap();
    });
}
