//! An ordered set of Pods by their slots. The order is the caller's, who knows what is in a slot.
//!
//! A first list puts Pods into consecutive slots by name, so that the Pods of a workload are one run: eight bytes,
//! however many they are. A slot that continues none takes four.
//!
//! Persistent: a clone shares everything; a change copies one chunk and the list of chunks.

use std::{cmp::Ordering, iter, ops::Range, sync::Arc};

/// Where a Pod is in the store. All are below [`RUN`]: no cache has as many Pods.
pub(super) type Slot = u32;

/// Marks the end of a run that the entry before it began: `[a, b | RUN]` is every slot of `a..=b`, in this order. Any
/// other entry is one slot.
const RUN: Slot = 1 << 31;

/// Entries in order. A run is as long as it can be within its chunk, so that there is one way to write a set down.
type Chunk = Arc<[Slot]>;

/// A chunk that grows beyond this, in entries, is split; one that shrinks to nothing goes.
const MAX_CHUNK: usize = 128;
/// A chunk in which there is room yet.
const FULL_CHUNK: usize = MAX_CHUNK * 7 / 8;

#[derive(Debug, Clone, Default)]
pub(super) enum Members {
    #[default]
    None,
    /// One entry: one slot.
    One([Slot; 1]),
    /// Two entries. Most sets are those of one workload, and so one run.
    Two([Slot; 2]),
    /// One chunk of more.
    Few(Chunk),
    /// Several, none empty, and how many slots in all.
    Many(Arc<Vec<Chunk>>, u32),
}

impl Members {
    /// Of slots that are in order already.
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

    /// Adds a slot that is not there. `place` compares what is in another slot with it.
    pub(super) fn insert(&mut self, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        let before = |other| place(other) == Ordering::Less;
        let at = self.chunk_at(before);
        let (head, [left, right], tail) = cut(self.chunk(at), before);
        let grown = extended(head, [left, slot..slot + 1, right].into_iter().chain(runs(tail)));
        self.rewrite(at, &grown, self.len() + 1);
    }

    /// Takes a slot out; nothing happens where it is not there.
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

    /// All slots in order, from the first that `before` does not hold of.
    pub(super) fn iter_from(&self, before: impl Fn(Slot) -> bool) -> impl Iterator<Item = Slot> {
        let at = self.chunk_at(&before);
        let (_, [_, right], tail) = cut(self.chunk(at), before);
        let behind = self.chunks().skip(at + 1);
        iter::once(right).chain(runs(tail)).chain(behind.flat_map(runs)).flatten()
    }

    /// How many slots there are from the first that `before` does not hold of to the last that `within` holds of, where
    /// `within` holds of a beginning of those. Takes a few looks, and time by the entries in between, not by all.
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

    /// Puts entries in the place of a chunk, which makes `new_len` slots in all.
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

    /// Empty where there is none.
    fn chunk(&self, at: usize) -> &[Slot] {
        match self {
            Self::Many(chunks, _) => chunks.get(at).map(|chunk| &**chunk).unwrap_or_default(),
            Self::None => &[],
            Self::One(entries) => entries,
            Self::Two(entries) => entries,
            Self::Few(entries) => entries,
        }
    }

    /// The last chunk that `before` holds of the first slot of; the first chunk where there is none.
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

/// Entries and runs behind them: one that goes on where the last ends becomes one with it, an empty one is left out.
fn extended(head: &[Slot], runs: impl Iterator<Item = Range<Slot>>) -> Vec<Slot> {
    // A change adds three entries at most, by cutting a run in two for a slot between.
    let mut entries = Vec::with_capacity(MAX_CHUNK + 3);
    entries.extend_from_slice(head);
    for run in runs.filter(|run| !run.is_empty()) {
        debug_assert!(run.end <= RUN, "{run:?} are no slots");
        match entries.last() {
            Some(end) if (end & !RUN) + 1 == run.start => _ = entries.pop_if(|end| *end & RUN != 0),
            _ => entries.push(run.start),
        }
        // The entry that is last now begins the run, and may be all of it.
        if entries.last() != Some(&(run.end - 1)) {
            entries.push((run.end - 1) | RUN);
        }
    }
    entries
}

/// The entries up to the first slot that `before` does not hold of, and those from it on. Between them are the two
/// parts of the run that falls into both.
fn cut(entries: &[Slot], before: impl Fn(Slot) -> bool) -> (&[Slot], [Range<Slot>; 2], &[Slot]) {
    // Lists come in order: the end is looked at first.
    let at = match entries.last() {
        Some(last) if before(last & !RUN) => entries.len(),
        _ => entries.partition_point(|entry| before(entry & !RUN)),
    };
    let Some(last) = entries.get(at).filter(|entry| *entry & RUN != 0) else {
        return (&entries[..at], [0..0, 0..0], &entries[at..]);
    };
    let (first, last) = (entries[at - 1], last & !RUN);
    // The first of the run is before, its last is not.
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

/// How many slots at the beginning of a run `within` holds of.
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
            // Nearly all to the left: what comes in order fills chunks instead of halving them. No run is torn.
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

    /// What is in a slot.
    type Order = fn(Slot) -> u32;

    const ORDERS: [Order; 6] = [
        |slot| slot,
        |slot| !slot,
        |slot| slot.reverse_bits(),
        |slot| (slot * 7919) % 10_007,
        // In runs of eight.
        |slot| (slot / 8).reverse_bits() | (slot % 8),
        // A first list, and what came later is anywhere between.
        |slot| if slot < 600 { slot << 16 } else { (((slot * 7919) % 600) << 16) | slot },
    ];

    fn entries(members: &Members) -> usize {
        members.chunks().map(<[Slot]>::len).sum()
    }

    /// That it has the slots that it should have, and is written down in the one way.
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

    /// Each step adds slots or takes them out, so many in a row. All are taken out at last.
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
        fn what_is_in_order_is_taken_as_it_is(
            (count, apart) in (0..300_u32, 1..4_u32),
            steps in vec((0..1_000_u32, Just(1), any::<bool>()), 0..100),
        ) {
            let slots: Vec<_> = (0..count).map(|slot| apart * slot).collect();
            follow(|slot| slot, &slots, &steps, 500)?;
        }

        #[test]
        fn members_are_an_ordered_set_and_each_version_stays_what_it_was(
            order in select(&ORDERS),
            count in 0..=600_u32,
            steps in vec((0..970_u32, 1..30_u32, prop::bool::weighted(0.6)), 0..60),
            from in 0..1_000_u32,
        ) {
            follow(order, &Vec::from_iter(0..count), &steps, from)?;
        }
    }

    #[test]
    fn a_run_takes_two_entries_and_a_slot_alone_takes_one() {
        let of = |slots: &mut dyn Iterator<Item = Slot>| entries(&Members::of(&Vec::from_iter(slots)));
        assert_eq!(of(&mut (0..100_000)), 2);
        assert_eq!(of(&mut (0..1_000).step_by(2)), 500);
        assert_eq!(of(&mut (0..1_000).rev()), 1_000, "in an order against the numbers");
        let mut members = Members::default();
        for slot in (0..100).step_by(2).chain((1..100).step_by(2)) {
            members.insert(slot, |other| other.cmp(&slot));
        }
        assert_eq!(entries(&members), 2, "what is between joins both sides");
    }

    #[test]
    fn a_place_in_a_long_run_is_found_in_few_looks() {
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
