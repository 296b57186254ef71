//! [`Breaker`]: a field of a Pod to which a plugin sends values again and again gets them less and less often.
//!
//! Values that were sent are counted, by plugin, Pod and field. After more than [`VALUES`] within a minute the next one
//! waits 1 s, and each further one twice as long, up to 1 min. Why the plugin ran does not matter, so a plugin that
//! wakes itself, two plugins that undo each other's values, a cycle of plugins, and a plugin against a client that the
//! host does not know are one case. A value that is not sent is not counted: neither one that would change nothing, nor
//! one that the API server refused, whose key has a back-off.
//!
//! Memory: about 300 bytes for a field, and [`MAX_FIELDS`] for each plugin, so 5 MB for a plugin that writes to that
//! many fields within a minute. Beyond that the field is forgotten that would be forgotten soonest. Names are stored
//! only of fields whose values wait, of at most 64 for each plugin.

mod field;
mod open;

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

pub(super) use field::{Field, present, would_change};
use open::Names;
pub use open::{OpenLoop, OpenLoops};
use parking_lot::Mutex;
use podium_vocabulary::PodKey;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::Lane;

/// The most values of one field within [`WINDOW`] that do not wait. A controller that leads a Pod through steps, or
/// that reports progress in a condition, writes less.
const VALUES: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The most fields of one plugin. A request of a loop takes at least a millisecond, so a plugin that writes in a loop
/// to more fields than this writes to each of them less often than the limit.
const MAX_FIELDS: usize = 16_384;

/// The fields to which plugins sent values in the last minute, or for which values wait.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    fields: Mutex<Fields>,
}

#[derive(Debug, Default)]
struct Fields {
    sends: BTreeMap<Id, SentValues>,
    /// By plugin, and then in the order in which the fields are forgotten.
    order: BTreeMap<Order, Id>,
    /// The numbers of fields of each plugin that has any.
    counts: BTreeMap<Lane, Counts>,
    numbers: u64,
    /// The plugin whose fields were looked through for those to forget.
    swept: Option<Lane>,
}

/// The fields of one plugin.
#[derive(Debug, Default)]
struct Counts {
    fields: usize,
    /// Those with a wait.
    open: usize,
    names: Names,
}

/// A field of a Pod, as written by a plugin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    uid: Arc<str>,
    lane: Lane,
    /// A digest of the field's kind and name.
    field: u64,
}

type Order = (Lane, Instant, u64);

#[derive(Debug)]
struct SentValues {
    /// The latest ones, at most [`VALUES`]; never empty.
    at: SmallVec<[Instant; 1]>,
    /// How long after the latest one the next may be sent.
    wait: Duration,
    /// A digest of the latest value.
    value: u64,
    order: Order,
}

/// A field whose values wait from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tripped {
    /// A digest of the value that the plugin sent before the latest one.
    pub(super) earlier: u64,
}

impl Breaker {
    /// Returns how long the plugin's next value of the field has to wait; `None` if it may be sent.
    pub(super) fn wait(&self, lane: Lane, uid: &Arc<str>, field: u64, now: Instant) -> Option<Duration> {
        let fields = self.fields.lock();
        if fields.sends.is_empty() {
            return None;
        }
        let sends = fields.sends.get(&Id { uid: uid.clone(), lane, field })?;
        let left = (sends.latest() + sends.wait).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Counts a value that was sent. Returns whether further values of the field wait because of it and did not before.
    pub(super) fn sent(&self, lane: Lane, uid: &Arc<str>, field: u64, value: u64, now: Instant) -> Option<Tripped> {
        let mut fields = self.fields.lock();
        fields.forget_old(lane, now);
        fields.sent(Id { uid: uid.clone(), lane, field }, value, now)
    }

    /// Stores the names of a field whose values wait, for [`Self::open`].
    pub(super) fn name(&self, lane: Lane, pod: &PodKey, field: &Field, counterpart: &str) {
        let mut fields = self.fields.lock();
        let id = Id { uid: pod.uid.clone(), lane, field: field.digest() };
        if fields.sends.get(&id).is_some_and(|sends| !sends.wait.is_zero())
            && let Some(counts) = fields.counts.get_mut(&lane)
        {
            counts.names.insert(&id, pod, field, counterpart);
        }
    }

    /// Returns the fields with a wait. Forgets those that are due to be forgotten.
    pub(super) fn open(&self, now: Instant) -> OpenLoops {
        let mut fields = self.fields.lock();
        let lanes: Vec<_> = fields.counts.keys().copied().collect();
        lanes.iter().for_each(|lane| fields.forget_old_of(*lane, now));
        let mut open = OpenLoops { loops: Vec::new(), total: 0 };
        for (lane, counts) in &fields.counts {
            open.total += counts.open;
            let wait = |uid: &Arc<str>, field: u64| {
                let sends = fields.sends.get(&Id { uid: uid.clone(), lane: *lane, field })?;
                Some((sends.latest() + sends.wait).saturating_duration_since(now))
            };
            open.loops.extend(counts.names.list(*lane, wait));
        }
        open
    }

    /// Returns the other plugin that sent this value to the field last.
    pub(super) fn sender_of(&self, value: u64, lane: Lane, uid: &Arc<str>, field: u64) -> Option<Lane> {
        let fields = self.fields.lock();
        let mut of_pod = fields.sends.range(Id::all_of(uid));
        let other = of_pod.find(|(id, sends)| id.field == field && id.lane != lane && sends.value == value);
        other.map(|(id, _)| id.lane)
    }

    /// Forgets a Pod that is gone.
    pub(super) fn seen_gone(&self, uid: &str) {
        let mut fields = self.fields.lock();
        if !fields.sends.is_empty() {
            let gone: Vec<_> = fields.sends.range(Id::all_of(&uid.into())).map(|(id, _)| id.clone()).collect();
            gone.iter().for_each(|id| fields.remove(id));
        }
    }

    /// Forgets a plugin that was unloaded.
    pub(super) fn forget_lane(&self, lane: Lane) {
        let mut fields = self.fields.lock();
        fields.sends.retain(|id, _| id.lane != lane);
        fields.order.retain(|(of, ..), _| *of != lane);
        fields.counts.remove(&lane);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let fields = self.fields.lock();
        assert_eq!(fields.sends.len(), fields.order.len());
        assert_eq!(fields.sends.len(), fields.counts.values().map(|counts| counts.fields).sum::<usize>());
        let open = fields.sends.values().filter(|sends| !sends.wait.is_zero()).count();
        assert_eq!(open, fields.counts.values().map(|counts| counts.open).sum::<usize>());
        assert!(fields.counts.values().all(|counts| counts.names.len() <= counts.open));
        fields.sends.len()
    }
}

impl Id {
    /// Returns the range of all fields of a Pod.
    fn all_of(uid: &Arc<str>) -> std::ops::RangeInclusive<Self> {
        let id = |lane, field| Self { uid: uid.clone(), lane, field };
        id(Lane(0), 0)..=id(Lane(u32::MAX), u64::MAX)
    }
}

impl SentValues {
    fn latest(&self) -> Instant {
        // Never empty; the default is the time at which nothing waits any more.
        self.at.last().copied().unwrap_or(self.order.1)
    }

    /// Adds a value, and determines how long the next one waits. A value that comes when the wait is just over, or one
    /// too many within the window, doubles the wait; one that comes later halves it.
    fn add(&mut self, value: u64, now: Instant) {
        let is_soon = !self.wait.is_zero() && now < self.latest() + 2 * self.wait;
        let others = self.at.iter().filter(|at| now.saturating_duration_since(**at) < WINDOW).count();
        self.wait = if is_soon || others >= VALUES {
            (2 * self.wait).clamp(FIRST_WAIT, LONGEST_WAIT)
        } else {
            Some(self.wait / 2).filter(|half| *half >= FIRST_WAIT).unwrap_or_default()
        };
        if self.at.len() == VALUES {
            self.at.remove(0);
        }
        self.at.push(now);
        self.value = value;
    }
}

impl Fields {
    fn sent(&mut self, id: Id, value: u64, now: Instant) -> Option<Tripped> {
        self.numbers += 1;
        let number = self.numbers;
        let Some(sends) = self.sends.get_mut(&id) else {
            let order = (id.lane, now + WINDOW, number);
            let sends = SentValues { at: SmallVec::from_elem(now, 1), wait: Duration::ZERO, value, order };
            self.order.insert(order, id.clone());
            let count = self.counts.entry(id.lane).or_default();
            count.fields += 1;
            let is_full = count.fields > MAX_FIELDS;
            let first = self.order.range((id.lane, now, 0)..).next().filter(|_| is_full).map(|(_, id)| id.clone());
            self.sends.insert(id, sends);
            first.iter().for_each(|id| self.remove(id));
            return None;
        };
        let (before, earlier) = (sends.wait, sends.value);
        sends.add(value, now);
        if let Some(counts) = self.counts.get_mut(&id.lane) {
            match (before.is_zero(), sends.wait.is_zero()) {
                (true, false) => counts.open += 1,
                (false, true) => counts.close(&id),
                _ => {}
            }
        }
        self.order.remove(&sends.order);
        sends.order = (id.lane, now + sends.wait + WINDOW, number);
        self.order.insert(sends.order, id);
        (before.is_zero() && !sends.wait.is_zero()).then_some(Tripped { earlier })
    }

    /// Forgets the fields of this plugin to which nothing was sent for a minute after their wait, and those of one
    /// other.
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
        let Some(sends) = self.sends.remove(id) else { return };
        self.order.remove(&sends.order);
        if let Some(counts) = self.counts.get_mut(&id.lane) {
            counts.fields -= 1;
            if !sends.wait.is_zero() {
                counts.close(id);
            }
            if counts.fields == 0 {
                self.counts.remove(&id.lane);
            }
        }
    }
}

impl Counts {
    /// A field has no wait any more.
    fn close(&mut self, id: &Id) {
        self.open -= 1;
        self.names.remove(id);
    }
}

#[cfg(test)]
mod tests;
