//! [`Breaker`]: a Pod that a plugin changes again and again is changed by it less and less often.
//!
//! Deliveries that changed the Pod are counted, by plugin, Pod and the Pod of the run, however many fields each of them
//! changed. Changes of objects of other kinds count as changes of the run's Pod. After more than [`CHANGES`] within a
//! minute the next one waits 1 s, and each further one twice as long, up to 1 min. Why the plugin ran does not matter,
//! so a plugin that wakes itself, two plugins that undo each other's values, a cycle of plugins, and a plugin against a
//! client that the host does not know are one case. A delivery that changes nothing is not counted: neither one whose
//! writes would change nothing, nor one that the API server refused, whose key has a back-off. The removal of a
//! finalizer, deletions and evictions never wait, so that a Pod that is being deleted goes.
//!
//! Memory: about 300 bytes for a Pod, and [`MAX_PODS`] for each plugin, so 5 MB for a plugin that changes that many
//! Pods within a minute. Beyond that the Pod is forgotten that would be forgotten soonest. For the message a Pod has
//! the digests of the [`FIELDS`] fields that changed most often. Names are stored only of Pods whose changes wait, at
//! most 64 for each plugin.

mod field;
mod held_pod;
mod open;

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

pub(super) use field::Field;
pub(super) use held_pod::HeldPod;
use open::Names;
pub use open::{OpenLoop, OpenLoops};
use parking_lot::Mutex;
use podium_vocabulary::PodKey;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::Lane;

/// The most changes of one Pod within [`WINDOW`] that do not wait. A controller that leads a Pod through steps, or
/// that reports progress in a condition, needs fewer.
const CHANGES: usize = 10;
/// The fields of a Pod of which the latest value is known.
const FIELDS: usize = 4;
const WINDOW: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The most Pods of one plugin. A request of a loop takes at least a millisecond, so a plugin that changes more Pods
/// than this in a loop changes each of them less often than the limit.
const MAX_PODS: usize = 16_384;

/// The Pods that plugins changed in the last minute, or whose changes wait.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    pods: Mutex<Pods>,
}

#[derive(Debug, Default)]
struct Pods {
    changes: BTreeMap<Id, Changes>,
    /// By plugin, and then in the order in which the Pods are forgotten.
    order: BTreeMap<Order, Id>,
    /// The numbers of Pods of each plugin that has any.
    counts: BTreeMap<Lane, Counts>,
    numbers: u64,
    /// The plugin whose Pods were looked through for those to forget.
    swept: Option<Lane>,
}

/// The Pods of one plugin.
#[derive(Debug, Default)]
struct Counts {
    pods: usize,
    /// Those with a wait.
    open: usize,
    names: Names,
}

/// A Pod that a plugin changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    uid: Arc<str>,
    lane: Lane,
}

type Order = (Lane, Instant, u64);

#[derive(Debug)]
struct Changes {
    /// The latest ones, at most [`CHANGES`]; never empty.
    at: SmallVec<[Instant; 1]>,
    /// How long after the latest one the next may be sent.
    wait: Duration,
    /// Those that changed most often, at most [`FIELDS`].
    fields: SmallVec<[ChangedField; 1]>,
    order: Order,
}

/// Digests of a field's kind and name and of its latest value.
#[derive(Debug, Clone, Copy)]
struct ChangedField {
    field: u64,
    value: u64,
    count: u32,
}

/// A Pod whose changes wait from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tripped {
    /// The field of the latest change that changed most often.
    pub(super) field: u64,
    /// A digest of the value that the plugin sent for it before, if that is known.
    pub(super) earlier: Option<u64>,
}

impl Breaker {
    /// Returns how long the plugin's next change of the Pod has to wait; `None` if it may be sent.
    pub(super) fn wait(&self, lane: Lane, uid: &Arc<str>, now: Instant) -> Option<Duration> {
        let pods = self.pods.lock();
        if pods.changes.is_empty() {
            return None;
        }
        let changes = pods.changes.get(&Id { uid: uid.clone(), lane })?;
        let left = (changes.latest() + changes.wait).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Counts a delivery that changed these fields of a Pod to these values. Returns whether further changes of the
    /// Pod wait because of it and did not before.
    pub(super) fn changed(&self, lane: Lane, uid: &Arc<str>, fields: &[(u64, u64)], now: Instant) -> Option<Tripped> {
        let mut pods = self.pods.lock();
        pods.forget_old(lane, now);
        pods.changed(Id { uid: uid.clone(), lane }, fields, now)
    }

    /// Stores the names of a Pod whose changes wait, for [`Self::open`].
    pub(super) fn name(&self, lane: Lane, pod: &PodKey, field: &Field, counterpart: &str) {
        let mut pods = self.pods.lock();
        let id = Id { uid: pod.uid.clone(), lane };
        if pods.changes.get(&id).is_some_and(|changes| !changes.wait.is_zero())
            && let Some(counts) = pods.counts.get_mut(&lane)
        {
            counts.names.insert(pod, field, counterpart);
        }
    }

    /// Returns the Pods with a wait. Forgets those that are due to be forgotten.
    pub(super) fn open(&self, now: Instant) -> OpenLoops {
        let mut pods = self.pods.lock();
        let lanes: Vec<_> = pods.counts.keys().copied().collect();
        lanes.iter().for_each(|lane| pods.forget_old_of(*lane, now));
        let mut open = OpenLoops { loops: Vec::new(), total: 0 };
        for (lane, counts) in &pods.counts {
            open.total += counts.open;
            let wait = |uid: &Arc<str>| {
                let changes = pods.changes.get(&Id { uid: uid.clone(), lane: *lane })?;
                Some((changes.latest() + changes.wait).saturating_duration_since(now))
            };
            open.loops.extend(counts.names.list(*lane, wait));
        }
        open
    }

    /// Returns the other plugin that sent this value to the field last.
    pub(super) fn sender_of(&self, value: u64, lane: Lane, uid: &Arc<str>, field: u64) -> Option<Lane> {
        let pods = self.pods.lock();
        let sent = |of: &ChangedField| (of.field, of.value) == (field, value);
        let mut of_pod = pods.changes.range(Id::all_of(uid));
        let other = of_pod.find(|(id, changes)| id.lane != lane && changes.fields.iter().any(sent));
        other.map(|(id, _)| id.lane)
    }

    /// Forgets a Pod that is gone.
    pub(super) fn seen_gone(&self, uid: &str) {
        let mut pods = self.pods.lock();
        if !pods.changes.is_empty() {
            let gone: Vec<_> = pods.changes.range(Id::all_of(&uid.into())).map(|(id, _)| id.clone()).collect();
            gone.iter().for_each(|id| pods.remove(id));
        }
    }

    /// Forgets a plugin that was unloaded.
    pub(super) fn forget_lane(&self, lane: Lane) {
        let mut pods = self.pods.lock();
        pods.forget_old_of(lane, Instant::now() + LONGEST_WAIT + WINDOW);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let pods = self.pods.lock();
        assert_eq!(pods.changes.len(), pods.order.len());
        assert_eq!(pods.changes.len(), pods.counts.values().map(|counts| counts.pods).sum::<usize>());
        let open = pods.changes.values().filter(|changes| !changes.wait.is_zero()).count();
        assert_eq!(open, pods.counts.values().map(|counts| counts.open).sum::<usize>());
        assert!(pods.counts.values().all(|counts| counts.names.len() <= counts.open));
        pods.changes.len()
    }
}

impl Id {
    /// Returns the range of all plugins that changed a Pod.
    fn all_of(uid: &Arc<str>) -> std::ops::RangeInclusive<Self> {
        let id = |lane| Self { uid: uid.clone(), lane };
        id(Lane(0))..=id(Lane(u32::MAX))
    }
}

impl Changes {
    fn latest(&self) -> Instant {
        // Never empty; the default is the time at which nothing waits any more.
        self.at.last().copied().unwrap_or(self.order.1)
    }

    /// Adds a change, and determines how long the next one waits. A change that comes when the wait is just over, or
    /// one too many within the window, doubles the wait; one that comes later halves it.
    fn add(&mut self, now: Instant) {
        let is_soon = !self.wait.is_zero() && now < self.latest() + 2 * self.wait;
        let others = self.at.iter().filter(|at| now.saturating_duration_since(**at) < WINDOW).count();
        self.wait = if is_soon || others >= CHANGES {
            (2 * self.wait).clamp(FIRST_WAIT, LONGEST_WAIT)
        } else {
            Some(self.wait / 2).filter(|half| *half >= FIRST_WAIT).unwrap_or_default()
        };
        if self.at.len() == CHANGES {
            self.at.remove(0);
        }
        self.at.push(now);
    }

    /// Counts a field that changed, and returns how often it did and its earlier value. Beyond [`FIELDS`] it takes the
    /// place of the one that changed least often, with its count.
    fn count(&mut self, field: u64, value: u64) -> (u32, Option<u64>) {
        if let Some(known) = self.fields.iter_mut().find(|known| known.field == field) {
            known.count = known.count.saturating_add(1);
            return (known.count, Some(std::mem::replace(&mut known.value, value)));
        }
        let is_full = self.fields.len() == FIELDS;
        match self.fields.iter_mut().filter(|_| is_full).min_by_key(|known| known.count) {
            Some(least) => *least = ChangedField { field, value, count: least.count.saturating_add(1) },
            None => self.fields.push(ChangedField { field, value, count: 1 }),
        }
        (1, None)
    }
}

impl Pods {
    fn changed(&mut self, id: Id, fields: &[(u64, u64)], now: Instant) -> Option<Tripped> {
        self.numbers += 1;
        let number = self.numbers;
        let Some(changes) = self.changes.get_mut(&id) else {
            let order = (id.lane, now + WINDOW, number);
            let at = SmallVec::from_elem(now, 1);
            let wait = Duration::ZERO;
            let mut changes = Changes { at, wait, fields: SmallVec::new(), order };
            fields.iter().for_each(|(field, value)| _ = changes.count(*field, *value));
            self.order.insert(order, id.clone());
            let count = self.counts.entry(id.lane).or_default();
            count.pods += 1;
            let is_full = count.pods > MAX_PODS;
            let first = self.order.range((id.lane, now, 0)..).next().filter(|_| is_full).map(|(_, id)| id.clone());
            self.changes.insert(id, changes);
            first.iter().for_each(|id| self.remove(id));
            return None;
        };
        let before = changes.wait;
        changes.add(now);
        let counted = fields.iter().map(|(field, value)| (changes.count(*field, *value), *field));
        let most = counted.max_by_key(|((count, _), _)| *count);
        if let Some(counts) = self.counts.get_mut(&id.lane) {
            match (before.is_zero(), changes.wait.is_zero()) {
                (true, false) => counts.open += 1,
                (false, true) => counts.close(&id),
                _ => {}
            }
        }
        let trips = before.is_zero() && !changes.wait.is_zero();
        self.order.remove(&changes.order);
        changes.order = (id.lane, now + changes.wait + WINDOW, number);
        self.order.insert(changes.order, id);
        most.filter(|_| trips).map(|((_, earlier), field)| Tripped { field, earlier })
    }

    /// Forgets the Pods that this plugin did not change for a minute after their wait, and those of one other.
    fn forget_old(&mut self, lane: Lane, now: Instant) {
        let after = self.swept.map_or(Unbounded, Excluded);
        let next = self.counts.range((after, Unbounded)).next().or_else(|| self.counts.first_key_value());
        self.swept = next.map(|(lane, _)| *lane);
        [Some(lane), self.swept].into_iter().flatten().for_each(|lane| self.forget_old_of(lane, now));
    }

    fn forget_old_of(&mut self, lane: Lane, now: Instant) {
        while let Some((_, id)) = self.order.range(..=(lane, now, u64::MAX)).next_back().filter(|(of, _)| of.0 == lane)
        {
            let id = id.clone();
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &Id) {
        let Some(changes) = self.changes.remove(id) else { return };
        self.order.remove(&changes.order);
        if let Some(counts) = self.counts.get_mut(&id.lane) {
            counts.pods -= 1;
            if !changes.wait.is_zero() {
                counts.close(id);
            }
            if counts.pods == 0 {
                self.counts.remove(&id.lane);
            }
        }
    }
}

impl Counts {
    /// A Pod has no wait any more.
    fn close(&mut self, id: &Id) {
        self.open -= 1;
        self.names.remove(&id.uid);
    }
}

#[cfg(test)]
mod tests;
