//! An ordered set of Pods, stored as their slots. The caller defines the order, because only the caller knows which Pod
//! is in a slot.
//!
//! A first list assigns consecutive slots in name order, so the Pods of a workload are one range: eight bytes, whatever
//! their number. A slot that continues no range takes four bytes.
//!
//! Persistent: a clone shares everything; a change copies one chunk and the list of chunks.

use std::{cmp::Ordering, iter, ops::Range, sync::Arc};

/// The index of a Pod in the store. All slots are below [`RUN`]: no cache has as many Pods.
pub(super) type Slot = u32;

/// Marks an entry as the last slot of the range that begins with the entry before it: `[a, b | RUN]` is every slot of
/// `a..=b`, in this order. Any other entry is one slot.
const RUN: Slot = 1 << 31;

/// Entries in order. Each range is as long as possible within its chunk, so a chunk's slots have only one
/// representation.
type Chunk = Arc<[Slot]>;

/// The most entries of a chunk. A larger chunk is split; an empty chunk is removed.
const MAX_CHUNK: usize = 128;
/// The entries of the left part of a split, which leaves room for more.
const FULL_CHUNK: usize = MAX_CHUNK * 7 / 8;

#[derive(Debug, Clone, Default)]
pub(super) enum Members {
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

impl Members {
    /// Builds a set from slots that are in order.
    pub(super) fn of(slots: &[Slot]) -> Self {
        let mut members = Self::None;
        members.rewrite(0, &extended(&[], slots.iter().map(|slot| *slot..*slot + 1)), slots.len());
        members
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Many(_, len) => *len as usize,
            few => runs(few.chunk(0)).map(|run| run.len()).sum(),
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
        let grown = extended(head, [left, slot..slot + 1, right].into_iter().chain(runs(tail)));
        self.rewrite(at, &grown, self.len() + 1);
    }

    /// Removes a slot, if the set contains it.
    pub(super) fn remove(&mut self, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        let at = self.chunk_at(|other| place(other) != Ordering::Greater);
        let chunk = self.chunk(at);
        if !runs(chunk).any(|run| run.contains(&slot)) {
            return;
        }
        let left = runs(chunk)
            .flat_map(|run| if run.contains(&slot) { [run.start..slot, slot + 1..run.end] } else { [run, 0..0] });
        self.rewrite(at, &extended(&[], left), self.len() - 1);
    }

    /// Returns the slots in order, from the first for which `before` is false.
    pub(super) fn iter_from(&self, before: impl Fn(Slot) -> bool) -> impl Iterator<Item = Slot> {
        let at = self.chunk_at(&before);
        let (_, [_, right], tail) = cut(self.chunk(at), before);
        let behind = self.chunks().skip(at + 1);
        iter::once(right).chain(runs(tail)).chain(behind.flat_map(runs)).flatten()
    }

    /// Returns the number of slots from the first for which `before` is false to the last for which `within` is true;
    /// of these slots, `within` must be true for a prefix only. Takes a few comparisons, and time for the entries in
    /// between, but not for the others.
    pub(super) fn count_within(&self, before: impl Fn(Slot) -> bool, within: impl Fn(Slot) -> bool) -> usize {
        let at = self.chunk_at(&before);
        let (_, [_, right], tail) = cut(self.chunk(at), before);
        let (mut count, mut ended) = (0, false);
        let behind = self.chunks().skip(at + 1);
        let mut runs = iter::once(right).chain(runs(tail)).chain(behind.flat_map(runs)).filter(|run| !run.is_empty());
        while !ended && let Some(run) = runs.next() {
            let inside = inside(&run, &within);
            ended = inside < run.len();
            count += inside;
        }
        count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.chunks().flat_map(runs).flatten()
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

fn runs(entries: &[Slot]) -> impl Iterator<Item = Range<Slot>> {
    let runs = entries.chunk_by(|_, next| next & RUN != 0);
    runs.map(|run| run[0]..(run[run.len() - 1] & !RUN) + 1)
}

/// Appends ranges to entries. A range that continues the last one is merged with it; empty ranges are skipped.
fn extended(head: &[Slot], runs: impl Iterator<Item = Range<Slot>>) -> Vec<Slot> {
    // A change adds at most three entries: it splits a range in two and puts a slot in between.
    let mut entries = Vec::with_capacity(MAX_CHUNK + 3);
    entries.extend_from_slice(head);
    for run in runs.filter(|run| !run.is_empty()) {
        debug_assert!(run.end <= RUN, "{run:?} are not slots");
        match entries.last() {
            Some(end) if (end & !RUN) + 1 == run.start => _ = entries.pop_if(|end| *end & RUN != 0),
            _ => entries.push(run.start),
        }
        // The last entry is now the first slot of the range, and may be its only one.
        if entries.last() != Some(&(run.end - 1)) {
            entries.push((run.end - 1) | RUN);
        }
    }
    entries
}

/// Returns the entries before the first slot for which `before` is false, and those from it on. A range that contains
/// slots of both kinds is in neither; its two parts are returned between them.
fn cut(entries: &[Slot], before: impl Fn(Slot) -> bool) -> (&[Slot], [Range<Slot>; 2], &[Slot]) {
    // The Pods of a list arrive in order, so the end is checked first.
    let at = match entries.last() {
        Some(last) if before(last & !RUN) => entries.len(),
        _ => entries.partition_point(|entry| before(entry & !RUN)),
    };
    let Some(last) = entries.get(at).filter(|entry| *entry & RUN != 0) else {
        return (&entries[..at], [0..0, 0..0], &entries[at..]);
    };
    let (first, last) = (entries[at - 1], last & !RUN);
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
fn inside(run: &Range<Slot>, within: impl Fn(Slot) -> bool) -> usize {
    if run.end.checked_sub(1).is_none_or(&within) {
        return run.len();
    }
    let (mut low, mut high) = (run.start, run.end - 1);
    while low < high {
        let middle = low + ((high - low) / 2);
        if within(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (low - run.start) as usize
}

fn split(mut entries: &[Slot]) -> impl Iterator<Item = Chunk> {
    iter::from_fn(move || {
        let (chunk, rest) = entries.split_at(match entries.len() {
            len @ ..=MAX_CHUNK => len,
            // Most entries go to the left, so that slots inserted in order fill chunks instead of halving them. No
            // range is split.
            _ if entries[FULL_CHUNK] & RUN != 0 => FULL_CHUNK - 1,
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

    fn entries(members: &Members) -> usize {
        members.chunks().map(<[Slot]>::len).sum()
    }

    /// Checks that the set has the slots of the model, in their only representation.
    fn check(members: &Members, model: &BTreeMap<u32, Slot>) -> Result<(), TestCaseError> {
        prop_assert!(members.iter().eq(model.values().copied()));
        prop_assert_eq!((members.len(), members.is_empty()), (model.len(), model.is_empty()));
        let (least, most) = match members {
            Members::None => (0, 0),
            Members::One(_) => (1, 1),
            Members::Two(_) => (2, 2),
            Members::Few(_) => (3, MAX_CHUNK),
            Members::Many(chunks, _) => (1 + (MAX_CHUNK * usize::from(chunks.len() < 2)), MAX_CHUNK),
        };
        for chunk in members.chunks() {
            prop_assert!((least..=most).contains(&chunk.len()), "{chunk:x?}");
            prop_assert!(chunk.first().is_none_or(|first| first & RUN == 0), "{chunk:x?}");
            let fits = |one, next| if next & RUN == 0 { (one & !RUN) + 1 != next } else { one < next & !RUN };
            prop_assert!(chunk.windows(2).all(|pair| fits(pair[0], pair[1])), "{chunk:x?}");
        }
        Ok(())
    }

    /// Applies the steps to a set and to a model, and compares each version of both. A step inserts or removes a number
    /// of consecutive slots; at the end all slots are removed.
    fn follow(order: Order, first: &[Slot], steps: &[(Slot, u32, bool)], from: Slot) -> Result<(), TestCaseError> {
        let mut model: BTreeMap<_, _> = first.iter().map(|slot| (order(*slot), *slot)).collect();
        let mut members = Members::of(&model.values().copied().collect::<Vec<_>>());
        let mut versions = vec![(members.clone(), model.clone())];
        for (first, count, add) in steps.iter().copied().chain((0..20).map(|part| (50 * part, 50, false))) {
            for slot in first..first + count {
                let key = order(slot);
                let place = |other| {
                    assert!(model.contains_key(&order(other)), "{other} is no member");
                    order(other).cmp(&key)
                };
                match add {
                    true if model.contains_key(&key) => continue,
                    true => (members.insert(slot, place), model.insert(key, slot)),
                    false => (members.remove(slot, place), model.remove(&key)),
                };
            }
            versions.push((members.clone(), model.clone()));
        }
        for (members, model) in versions {
            check(&members, &model)?;
            let rest = members.iter_from(|slot| order(slot) < order(from));
            prop_assert!(rest.eq(model.range(order(from)..).map(|(_, slot)| *slot)));
            let to = order(from).saturating_add(1 << 20);
            let counted = members.count_within(|slot| order(slot) < order(from), |slot| order(slot) < to);
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
        let of = |slots: &mut dyn Iterator<Item = Slot>| entries(&Members::of(&Vec::from_iter(slots)));
        assert_eq!(of(&mut (0..100_000)), 2);
        assert_eq!(of(&mut (0..1_000).step_by(2)), 500);
        assert_eq!(of(&mut (0..1_000).rev()), 1_000, "in descending order");
        let mut members = Members::default();
        for slot in (0..100).step_by(2).chain((1..100).step_by(2)) {
            members.insert(slot, |other| other.cmp(&slot));
        }
        assert_eq!(entries(&members), 2, "slots in between join both sides");
    }

    #[test]
    fn a_position_in_a_long_range_is_found_in_few_comparisons() {
        let (mut members, looks) = (Members::of(&Vec::from_iter(0..100_000)), Cell::new(0));
        let look = |slot: Slot, at| {
            looks.set(looks.get() + 1);
            slot.cmp(&at)
        };
        assert_eq!(members.iter_from(|slot| look(slot, 70_000).is_lt()).count(), 30_000);
        assert!(looks.take() < 25);
        members.insert(100_000, |slot| look(slot, 100_000));
        assert_eq!((entries(&members), looks.take()), (2, 1), "at the end");
        let counted = members.count_within(|slot| look(slot, 30_000).is_lt(), |slot| look(slot, 40_000).is_lt());
        assert_eq!(counted, 10_000);
        assert!(looks.take() < 50);
    }
}
