//! An ordered set of Pods, stored as their slots. The caller defines the order, because only the caller knows which Pod
//! is in a slot.
//!
//! A first list assigns consecutive slots in name order, so the Pods of a workload are one range: eight bytes, whatever
//! their number. A slot that continues no range takes four bytes.
//!
//! Persistent: a clone shares everything; a change copies one chunk and the list of chunks.

use std::{cmp::Ordering, iter, ops::Range, sync::Arc};

/// The index of a Pod in the store. All slots are below [`RANGE_END`]: no cache has as many Pods.
pub(super) type Slot = u32;

/// Marks an entry as the last slot of the range that begins with the entry before it: `[a, b | RANGE_END]` is every
/// slot of `a..=b`, in this order. Any other entry is one slot.
const RANGE_END: Slot = 1 << 31;

/// Entries in order. Each range is as long as possible within its chunk, so a chunk's slots have only one
/// representation.
type Chunk = Arc<[Slot]>;

/// The most entries of a chunk. A larger chunk is split; an empty chunk is removed.
const MAX_CHUNK: usize = 128;
/// The entries of the left part of a split, which leaves room for more.
const FULL_CHUNK: usize = MAX_CHUNK * 7 / 8;

#[derive(Debug, Clone, Default)]
pub(super) enum SlotSet {
    #[default]
    None,
    /// One entry: one slot.
    One([Slot; 1]),
    /// Two entries. Most sets are the Pods of one workload, and so one range.
    Two([Slot; 2]),
    /// One chunk with more entries.
    Few(Chunk),
    /// Several chunks, none empty, and the number of slots in all of them.
    Many(Arc<Vec<Chunk>>, u32),
}

impl SlotSet {
    /// Builds a set from slots that are in order.
    pub(super) fn from_ordered(slots: &[Slot]) -> Self {
        let mut set = Self::None;
        set.rewrite(0, &extended(&[], slots.iter().map(|slot| *slot..*slot + 1)), slots.len());
        set
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Many(_, len) => *len as usize,
            few => ranges(few.chunk(0)).map(|range| range.len()).sum(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Inserts a slot that is not in the set. `place` compares the Pod of another slot with the Pod of this one.
    pub(super) fn insert(&mut self, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        let before = |other| place(other) == Ordering::Less;
        let at = self.chunk_at(before);
        let (head, [left, right], tail) = cut(self.chunk(at), before);
        let grown = extended(head, [left, slot..slot + 1, right].into_iter().chain(ranges(tail)));
        self.rewrite(at, &grown, self.len() + 1);
    }

    /// Removes a slot, if the set contains it.
    pub(super) fn remove(&mut self, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        let at = self.chunk_at(|other| place(other) != Ordering::Greater);
        let chunk = self.chunk(at);
        if !ranges(chunk).any(|range| range.contains(&slot)) {
            return;
        }
        let left = ranges(chunk).flat_map(|range| {
            if range.contains(&slot) { [range.start..slot, slot + 1..range.end] } else { [range, 0..0] }
        });
        self.rewrite(at, &extended(&[], left), self.len() - 1);
    }

    /// Returns the slots in order, from the first for which `before` is false.
    pub(super) fn iter_from(&self, before: impl Fn(Slot) -> bool) -> impl Iterator<Item = Slot> {
        let at = self.chunk_at(&before);
        let (_, [_, right], tail) = cut(self.chunk(at), before);
        let after = self.chunks().skip(at + 1);
        iter::once(right).chain(ranges(tail)).chain(after.flat_map(ranges)).flatten()
    }

    /// Returns the number of slots from the first for which `before` is false to the last for which `within` is true;
    /// of these slots, `within` must be true for a prefix only. Takes a few comparisons, and time for the entries in
    /// between, but not for the others.
    pub(super) fn count_within(&self, before: impl Fn(Slot) -> bool, within: impl Fn(Slot) -> bool) -> usize {
        let at = self.chunk_at(&before);
        let (_, [_, right], tail) = cut(self.chunk(at), before);
        let (mut count, mut ended) = (0, false);
        let after = self.chunks().skip(at + 1);
        let mut ranges =
            iter::once(right).chain(ranges(tail)).chain(after.flat_map(ranges)).filter(|range| !range.is_empty());
        while !ended && let Some(range) = ranges.next() {
            let inside = inside(&range, &within);
            ended = inside < range.len();
            count += inside;
        }
        count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.chunks().flat_map(ranges).flatten()
    }

    /// Replaces the entries of a chunk; the set then has `new_len` slots.
    fn rewrite(&mut self, at: usize, entries: &[Slot], new_len: usize) {
        let Self::Many(chunks, len) = self else {
            *self = match entries {
                [] => Self::None,
                [one] => Self::One([*one]),
                [one, two] => Self::Two([*one, *two]),
                _ if entries.len() <= MAX_CHUNK => Self::Few(entries.into()),
                _ => Self::Many(Arc::new(split(entries).collect()), new_len as u32),
            };
            return;
        };
        *len = new_len as u32;
        let chunks = Arc::make_mut(chunks);
        chunks.splice(at..=at, split(entries));
        if let [only] = &**chunks {
            let only = Arc::clone(only);
            *self = Self::None;
            self.rewrite(0, &only, new_len);
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &[Slot]> {
        let count = match self {
            Self::Many(chunks, _) => chunks.len(),
            _ => 1,
        };
        (0..count).map(|at| self.chunk(at))
    }

    /// Returns the entries of a chunk, or none if the chunk does not exist.
    fn chunk(&self, at: usize) -> &[Slot] {
        match self {
            Self::Many(chunks, _) => chunks.get(at).map(|chunk| &**chunk).unwrap_or_default(),
            Self::None => &[],
            Self::One(entries) => entries,
            Self::Two(entries) => entries,
            Self::Few(entries) => entries,
        }
    }

    /// Returns the index of the last chunk for whose first slot `before` is true, or of the first chunk if there is
    /// none.
    fn chunk_at(&self, before: impl Fn(Slot) -> bool) -> usize {
        match self {
            Self::Many(chunks, _) => chunks[1..].partition_point(|chunk| before(chunk[0])),
            _ => 0,
        }
    }
}

fn ranges(entries: &[Slot]) -> impl Iterator<Item = Range<Slot>> {
    let ranges = entries.chunk_by(|_, next| next & RANGE_END != 0);
    ranges.map(|range| range[0]..(range[range.len() - 1] & !RANGE_END) + 1)
}

/// Appends ranges to entries. A range that continues the last one is merged with it; empty ranges are skipped.
fn extended(head: &[Slot], ranges: impl Iterator<Item = Range<Slot>>) -> Vec<Slot> {
    // A change adds at most three entries: it splits a range in two and inserts a slot between them.
    let mut entries = Vec::with_capacity(MAX_CHUNK + 3);
    entries.extend_from_slice(head);
    for range in ranges.filter(|range| !range.is_empty()) {
        debug_assert!(range.end <= RANGE_END, "{range:?} are not slots");
        match entries.last() {
            Some(end) if (end & !RANGE_END) + 1 == range.start => _ = entries.pop_if(|end| *end & RANGE_END != 0),
            _ => entries.push(range.start),
        }
        // The last entry is now the first slot of the range, and may be its only one.
        if entries.last() != Some(&(range.end - 1)) {
            entries.push((range.end - 1) | RANGE_END);
        }
    }
    entries
}

/// Returns the entries before the first slot for which `before` is false, and those from it on. A range that contains
/// slots of both kinds is in neither; its two parts are returned between them.
fn cut(entries: &[Slot], before: impl Fn(Slot) -> bool) -> (&[Slot], [Range<Slot>; 2], &[Slot]) {
    // The Pods of a list arrive in order, so the end is checked first.
    let at = match entries.last() {
        Some(last) if before(last & !RANGE_END) => entries.len(),
        _ => entries.partition_point(|entry| before(entry & !RANGE_END)),
    };
    let Some(last) = entries.get(at).filter(|entry| *entry & RANGE_END != 0) else {
        return (&entries[..at], [0..0, 0..0], &entries[at..]);
    };
    let (first, last) = (entries[at - 1], last & !RANGE_END);
    // `before` is true for the first slot of the range and false for its last.
    let (mut low, mut high) = (first + 1, last);
    while low < high {
        let middle = low + ((high - low) / 2);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (&entries[..at - 1], [first..low, low..last + 1], &entries[at + 1..])
}

/// Returns the number of slots at the beginning of a range for which `within` is true.
fn inside(range: &Range<Slot>, within: impl Fn(Slot) -> bool) -> usize {
    if range.end.checked_sub(1).is_none_or(&within) {
        return range.len();
    }
    let (mut low, mut high) = (range.start, range.end - 1);
    while low < high {
        let middle = low + ((high - low) / 2);
        if within(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (low - range.start) as usize
}

fn split(mut entries: &[Slot]) -> impl Iterator<Item = Chunk> {
    iter::from_fn(move || {
        let (chunk, rest) = entries.split_at(match entries.len() {
            len @ ..=MAX_CHUNK => len,
            // Most entries go to the left, so that slots inserted in order fill chunks instead of halving them. No
            // range is split.
            _ if entries[FULL_CHUNK] & RANGE_END != 0 => FULL_CHUNK - 1,
            _ => FULL_CHUNK,
        });
        entries = rest;
        (!chunk.is_empty()).then(|| chunk.into())
    })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeMap};

    use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestCaseError};

    use super::*;

    /// The position of a slot's Pod in the order.
    type Order = fn(Slot) -> u32;

    const ORDERS: [Order; 6] = [
        |slot| slot,
        |slot| !slot,
        |slot| slot.reverse_bits(),
        |slot| (slot * 7919) % 10_007,
        // In ranges of eight.
        |slot| (slot / 8).reverse_bits() | (slot % 8),
        // A first list of 600 slots; later slots are anywhere between them.
        |slot| if slot < 600 { slot << 16 } else { (((slot * 7919) % 600) << 16) | slot },
    ];

    fn entries(set: &SlotSet) -> usize {
        set.chunks().map(<[Slot]>::len).sum()
    }

    /// Checks that the set has the slots of the model, in their only representation.
    fn check(set: &SlotSet, model: &BTreeMap<u32, Slot>) -> Result<(), TestCaseError> {
        prop_assert!(set.iter().eq(model.values().copied()));
        prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
        let (least, most) = match set {
            SlotSet::None => (0, 0),
            SlotSet::One(_) => (1, 1),
            SlotSet::Two(_) => (2, 2),
            SlotSet::Few(_) => (3, MAX_CHUNK),
            SlotSet::Many(chunks, _) => (1 + (MAX_CHUNK * usize::from(chunks.len() < 2)), MAX_CHUNK),
        };
        for chunk in set.chunks() {
            prop_assert!((least..=most).contains(&chunk.len()), "{chunk:x?}");
            prop_assert!(chunk.first().is_none_or(|first| first & RANGE_END == 0), "{chunk:x?}");
            let fits = |one, next| {
                if next & RANGE_END == 0 { (one & !RANGE_END) + 1 != next } else { one < next & !RANGE_END }
            };
            prop_assert!(chunk.windows(2).all(|pair| fits(pair[0], pair[1])), "{chunk:x?}");
        }
        Ok(())
    }

    /// Applies the steps to a set and to a model, and compares each version of both. A step inserts or removes a number
    /// of consecutive slots; at the end all slots are removed.
    fn follow(order: Order, first: &[Slot], steps: &[(Slot, u32, bool)], from: Slot) -> Result<(), TestCaseError> {
        let mut model: BTreeMap<_, _> = first.iter().map(|slot| (order(*slot), *slot)).collect();
        let mut set = SlotSet::from_ordered(&model.values().copied().collect::<Vec<_>>());
        let mut versions = vec![(set.clone(), model.clone())];
        for (first, count, add) in steps.iter().copied().chain((0..20).map(|part| (50 * part, 50, false))) {
            for slot in first..first + count {
                let key = order(slot);
                let place = |other| {
                    assert!(model.contains_key(&order(other)), "{other} is no member");
                    order(other).cmp(&key)
                };
                match add {
                    true if model.contains_key(&key) => continue,
                    true => (set.insert(slot, place), model.insert(key, slot)),
                    false => (set.remove(slot, place), model.remove(&key)),
                };
            }
            versions.push((set.clone(), model.clone()));
        }
        for (set, model) in versions {
            check(&set, &model)?;
            let rest = set.iter_from(|slot| order(slot) < order(from));
            prop_assert!(rest.eq(model.range(order(from)..).map(|(_, slot)| *slot)));
            let to = order(from).saturating_add(1 << 20);
            let counted = set.count_within(|slot| order(slot) < order(from), |slot| order(slot) < to);
            prop_assert_eq!(counted, model.range(order(from)..to).count());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_set_is_built_from_ordered_slots(
            (count, apart) in (0..300_u32, 1..4_u32),
            steps in vec((0..1_000_u32, Just(1), any::<bool>()), 0..100),
        ) {
            let slots: Vec<_> = (0..count).map(|slot| apart * slot).collect();
            follow(|slot| slot, &slots, &steps, 500)?;
        }

        #[test]
        fn a_slot_set_is_ordered_and_its_versions_do_not_change(
            order in select(&ORDERS),
            count in 0..=600_u32,
            steps in vec((0..970_u32, 1..30_u32, prop::bool::weighted(0.6)), 0..60),
            from in 0..1_000_u32,
        ) {
            follow(order, &Vec::from_iter(0..count), &steps, from)?;
        }
    }

    #[test]
    fn a_range_takes_two_entries_and_a_single_slot_one() {
        let entries_of =
            |slots: &mut dyn Iterator<Item = Slot>| entries(&SlotSet::from_ordered(&Vec::from_iter(slots)));
        assert_eq!(entries_of(&mut (0..100_000)), 2);
        assert_eq!(entries_of(&mut (0..1_000).step_by(2)), 500);
        assert_eq!(entries_of(&mut (0..1_000).rev()), 1_000, "in descending order");
        let mut set = SlotSet::default();
        for slot in (0..100).step_by(2).chain((1..100).step_by(2)) {
            set.insert(slot, |other| other.cmp(&slot));
        }
        assert_eq!(entries(&set), 2, "slots in between join both sides");
    }

    #[test]
    fn a_position_in_a_long_range_is_found_in_few_comparisons() {
        let (mut set, comparisons) = (SlotSet::from_ordered(&Vec::from_iter(0..100_000)), Cell::new(0));
        let compare = |slot: Slot, at| {
            comparisons.set(comparisons.get() + 1);
            slot.cmp(&at)
        };
        assert_eq!(set.iter_from(|slot| compare(slot, 70_000).is_lt()).count(), 30_000);
        assert!(comparisons.take() < 25);
        set.insert(100_000, |slot| compare(slot, 100_000));
        assert_eq!((entries(&set), comparisons.take()), (2, 1), "at the end");
        let counted = set.count_within(|slot| compare(slot, 30_000).is_lt(), |slot| compare(slot, 40_000).is_lt());
        assert_eq!(counted, 10_000);
        assert!(comparisons.take() < 50);
    }
}
