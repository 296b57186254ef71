//! Any operations in any order: each item that was added is run, and after the predecessors of its step.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 2] = ["cart-0", "cart-1"];
const LANES: u8 = 6;

type Key = (u8, &'static str, u32);

#[derive(Debug, Clone)]
enum Op {
    /// A step: the lanes as bits, and whether a job wrote the object.
    Step(u8, usize, u32, bool),
    Add(u8, usize, u32),
    Take,
    /// Ends one of the running jobs, perhaps after a stop.
    Done(usize, usize, bool),
    Remove(u8, usize, u32),
    RemoveLane(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let object = || (0..LANES, 0..2_usize, 0..2_u32);
    let step = (0..1_u8 << LANES, 0..2_usize, 0..2_u32, any::<bool>());
    prop_oneof![
        6 => step.prop_map(|(lanes, name, item, written)| Op::Step(lanes, name, item, written)),
        1 => object().prop_map(|(lane, name, item)| Op::Add(lane, name, item)),
        6 => Just(Op::Take),
        6 => (any::<usize>(), 0..5_usize, any::<bool>()).prop_map(|(job, next, stop)| Op::Done(job, next, stop)),
        1 => object().prop_map(|(lane, name, item)| Op::Remove(lane, name, item)),
        1 => (0..LANES).prop_map(Op::RemoveLane),
    ]
}

fn members() -> impl Strategy<Value = Vec<Member<u8>>> {
    let of = |lane: u8| {
        (0..2_usize, 0..3_u8, prop::collection::vec(0..LANES, 0..2)).prop_map(move |(group, phase, after)| {
            let after = after.into_iter().filter(|before| *before < lane).collect();
            Member { lane, group, phase, after, leads: group == 0 && phase == 0 }
        })
    };
    (0..LANES).map(of).collect::<Vec<_>>()
}

/// The items that the queue has to run.
#[derive(Default)]
struct Expected {
    /// Items that were added and not run since, by the operation that last added them.
    added: BTreeMap<Key, usize>,
    /// The lanes of which a job that began after this operation has to be done before the item is run.
    first: BTreeMap<Key, BTreeMap<u8, usize>>,
    /// Items that a stop may have skipped, and which were perhaps due already when they were added again.
    unsure: BTreeSet<Key>,
    operation: usize,
}

impl Expected {
    fn step(&mut self, order: &Order<u8>, keys: &[Key]) {
        for key in keys.iter().filter(|key| !self.added.contains_key(*key) && !self.unsure.contains(*key)) {
            let before = keys.iter().map(|(lane, ..)| *lane).filter(|lane| order.binds(*lane, key.0));
            self.first.insert(*key, before.map(|lane| (lane, self.operation)).collect());
        }
        keys.iter().for_each(|key| _ = self.added.insert(*key, self.operation));
    }

    /// Items do not wait for a job of this one any more that begins after operations since `began`.
    fn end(&mut self, (lane, name, item): Key, began: usize) {
        let same = self.first.iter_mut().filter(|((_, of, its), _)| (*of, *its) == (name, item));
        same.for_each(|(_, first)| first.retain(|of, since| *of != lane || *since >= began));
    }

    fn forget(&mut self, key: Key) {
        self.added.remove(&key);
        self.first.remove(&key);
        self.unsure.remove(&key);
        self.end(key, usize::MAX);
    }

    /// A job that began at this operation asked to skip what its successors have to do. The queue may do it.
    fn stop(&mut self, order: &Order<u8>, key: Key, began: usize) {
        let is_successor = |other: &Key| (other.1, other.2) == (key.1, key.2) && order.binds(key.0, other.0);
        let old = |(other, added): (&Key, &usize)| (is_successor(other) && *added < began).then_some(*other);
        let skipped: Vec<Key> = self.added.iter().filter_map(old).collect();
        for other in skipped {
            self.forget(other);
            self.unsure.insert(other);
        }
    }
}

fn key(job: &TestJob) -> Key {
    (job.lane, job.slot, job.item)
}

async fn check(members: &[Member<u8>], ops: &[Op], lane_limit: usize) {
    let order = Order::new(members);
    let queue: TestQueue = Queue::new(Backoff::default(), lane_limit, 1);
    queue.set_order(Order::new(members));
    let mut expected = Expected::default();
    let mut running: Vec<(TestJob, usize)> = Vec::new();
    let delay = Duration::from_secs(3_600);
    for op in ops {
        expected.operation += 1;
        match *op {
            Op::Step(of, name, item, written) => {
                let lanes = (0..LANES).filter(|lane| of & 1 << lane != 0);
                let keys: Vec<Key> = lanes.map(|lane| (lane, NAMES[name], item)).collect();
                expected.step(&order, &keys);
                if written { queue.add_written(keys) } else { queue.add_changed(keys) }
            }
            Op::Add(lane, name, item) => {
                queue.add([(lane, NAMES[name], item)]);
                // No stop skips it.
                expected.added.insert((lane, NAMES[name], item), usize::MAX);
            }
            Op::Take => {
                let Some(job) = now(&queue).await else { continue };
                let key = key(&job);
                let first = expected.first.remove(&key).unwrap_or_default();
                // A lane of which fewer jobs may run because they fail is not waited for.
                assert!(lane_limit < usize::MAX || first.is_empty(), "{key:?} runs before {first:?}");
                expected.added.remove(&key);
                expected.unsure.remove(&key);
                running.push((job, expected.operation));
            }
            Op::Done(index, next, stop) if !running.is_empty() => {
                let (job, began) = running.swap_remove(index % running.len());
                let next = [Next::Settled, Next::Settled, Next::Failed, Next::After(delay), Next::Final][next];
                let key = key(&job);
                let is_orphaned = queue.is_orphaned(job.lane, &job.slot);
                if stop && !is_orphaned && matches!(next, Next::Settled | Next::After(_)) {
                    queue.stop(&job);
                    expected.stop(&order, key, began);
                }
                queue.done(&job, next);
                if !is_orphaned && next == Next::Final {
                    expected.forget(key);
                } else if !is_orphaned {
                    expected.end(key, began);
                }
            }
            Op::Remove(lane, name, item) => {
                if queue.remove(lane, NAMES[name], &item) {
                    expected.forget((lane, NAMES[name], item));
                }
            }
            Op::RemoveLane(lane) => {
                queue.remove_lane(lane);
                let objects = NAMES.iter().flat_map(|name| [(lane, *name, 0), (lane, *name, 1)]);
                objects.for_each(|key| expected.forget(key));
            }
            Op::Done(..) => {}
        }
    }
    // Each item that is left is run.
    for (job, _) in running {
        queue.done(&job, Next::Settled);
    }
    while let Ok(Some(job)) = tokio::time::timeout(2 * delay, queue.next()).await {
        expected.added.remove(&key(&job));
        queue.done(&job, Next::Settled);
    }
    assert_eq!(expected.added, BTreeMap::new(), "never run");
    for lane in 0..LANES {
        let left = NAMES.iter().flat_map(|name| [(*name, 0), (*name, 1)]);
        let mut left = left.filter(|(name, item)| !queue.lanes_with([lane], name, item).is_empty());
        assert_eq!(left.next(), None, "waits for ever");
    }
    let slots = queue.slots.lock();
    assert!(slots.waits.is_empty() && slots.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(256)))]

    #[test]
    fn each_item_is_run_after_the_predecessors_of_its_step(
        members in members(),
        ops in prop::collection::vec(op(), 0..60),
        is_narrow in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(&members, &ops, if is_narrow { 2 } else { usize::MAX }));
    }
}
