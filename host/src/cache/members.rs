//! An ordered set of Pods by their slots: four bytes for each. The order is the caller's, who knows what is in a slot.
//!
//! Persistent: a clone shares everything; a change copies one chunk and the list of chunks.

use std::{cmp::Ordering, sync::Arc};

/// Where a Pod is in the store.
pub(super) type Slot = u32;

type Chunk = Arc<[Slot]>;

/// A chunk that grows beyond this is split, one that shrinks to nothing goes.
const MAX_CHUNK: usize = 128;
/// A chunk in which there is room yet.
const FULL_CHUNK: usize = MAX_CHUNK * 7 / 8;

#[derive(Debug, Clone, Default)]
pub(super) enum Members {
    #[default]
    None,
    /// One chunk.
    Few(Chunk),
    /// Several, none empty, and how many slots in all.
    Many(Arc<Vec<Chunk>>, u32),
}

impl Members {
    /// Of slots that are in order already.
    pub(super) fn of(slots: &[Slot]) -> Self {
        match slots {
            [] => Self::None,
            _ if slots.len() <= MAX_CHUNK => Self::Few(slots.into()),
            _ => Self::Many(Arc::new(slots.chunks(FULL_CHUNK).map(Chunk::from).collect()), slots.len() as u32),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Few(slots) => slots.len(),
            Self::Many(_, len) => *len as usize,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn chunks(&self) -> &[Chunk] {
        match self {
            Self::None => &[],
            Self::Few(slots) => std::slice::from_ref(slots),
            Self::Many(chunks, _) => chunks,
        }
    }

    /// Adds a slot that is not there. `place` compares what is in another slot with it.
    pub(super) fn insert(&mut self, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        let chunks = match self {
            Self::None => {
                *self = Self::Few(Arc::new([slot]));
                return;
            }
            Self::Few(slots) => {
                let grown = inserted(slots, slot, &place);
                *self = match split(&grown) {
                    Some((left, right)) => Self::Many(Arc::new(vec![left, right]), grown.len() as u32),
                    None => Self::Few(grown.into()),
                };
                return;
            }
            Self::Many(chunks, len) => {
                *len += 1;
                Arc::make_mut(chunks)
            }
        };
        // The last chunk whose first slot is not behind the new one; a list in order goes to the last.
        let at = chunks.partition_point(|chunk| place(chunk[0]) == Ordering::Less).saturating_sub(1);
        let grown = inserted(&chunks[at], slot, &place);
        match split(&grown) {
            Some((left, right)) => {
                chunks[at] = left;
                chunks.insert(at + 1, right);
            }
            None => chunks[at] = grown.into(),
        }
    }

    /// Takes a slot out; nothing happens where it is not there.
    pub(super) fn remove(&mut self, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        match self {
            Self::None => {}
            Self::Few(slots) => {
                let Some(at) = slots.iter().position(|other| *other == slot) else { return };
                let left = without(slots, at);
                *self = if left.is_empty() { Self::None } else { Self::Few(left) };
            }
            Self::Many(chunks, len) => {
                let at = chunks.partition_point(|chunk| place(chunk[0]) != Ordering::Greater).saturating_sub(1);
                let Some(within) = chunks[at].iter().position(|other| *other == slot) else { return };
                *len -= 1;
                let chunks = Arc::make_mut(chunks);
                let left = without(&chunks[at], within);
                if left.is_empty() {
                    chunks.remove(at);
                } else {
                    chunks[at] = left;
                }
                if let [only] = &**chunks {
                    *self = Self::Few(Arc::clone(only));
                }
            }
        }
    }

    /// All slots in order, from the first that `before` does not hold of.
    pub(super) fn iter_from(&self, before: impl Fn(Slot) -> bool) -> impl Iterator<Item = Slot> {
        let chunks = self.chunks();
        let at = chunks.partition_point(|chunk| before(chunk[0])).saturating_sub(1);
        let chunks = chunks.get(at..).unwrap_or_default();
        let skipped = chunks.first().map_or(0, |chunk| chunk.partition_point(|slot| before(*slot)));
        chunks.iter().flat_map(|chunk| chunk.iter().copied()).skip(skipped)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.chunks().iter().flat_map(|chunk| chunk.iter().copied())
    }
}

fn inserted(slots: &[Slot], slot: Slot, place: &impl Fn(Slot) -> Ordering) -> Vec<Slot> {
    // Lists come in order: the end is looked at first.
    let at = match slots.last() {
        Some(last) if place(*last) == Ordering::Less => slots.len(),
        _ => slots.partition_point(|other| place(*other) == Ordering::Less),
    };
    let mut grown = Vec::with_capacity(slots.len() + 1);
    grown.extend_from_slice(&slots[..at]);
    grown.push(slot);
    grown.extend_from_slice(&slots[at..]);
    grown
}

fn split(slots: &[Slot]) -> Option<(Chunk, Chunk)> {
    if slots.len() <= MAX_CHUNK {
        return None;
    }
    // Nearly all to the left: what comes in order fills chunks instead of halving them.
    let (left, right) = slots.split_at(FULL_CHUNK);
    Some((left.into(), right.into()))
}

fn without(slots: &[Slot], at: usize) -> Chunk {
    slots.iter().enumerate().filter(|(place, _)| *place != at).map(|(_, slot)| *slot).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_in_order_is_taken_as_it_is(count in 0..1_000_u32, more in prop::collection::vec(0..3_000_u32, 0..100)) {
            let slots: Vec<_> = (0..count).map(|slot| 3 * slot).collect();
            let (mut members, mut model) = (Members::of(&slots), BTreeSet::from_iter(slots));
            prop_assert_eq!(members.len(), model.len());
            for slot in more {
                if model.insert(slot) {
                    members.insert(slot, |other| other.cmp(&slot));
                } else {
                    model.remove(&slot);
                    members.remove(slot, |other| other.cmp(&slot));
                }
            }
            prop_assert_eq!(members.iter().collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn members_are_an_ordered_set_and_each_version_stays_what_it_was(
            steps in prop::collection::vec((0..600_u32, prop::bool::weighted(0.6)), 0..1_500),
            from in 0..700_u32,
        ) {
            // What is in a slot is its number, so that the order is that of numbers.
            let (mut members, mut model) = (Members::default(), BTreeSet::new());
            let mut versions = Vec::new();
            for (at, (slot, add)) in steps.into_iter().enumerate() {
                if !add {
                    members.remove(slot, |other| other.cmp(&slot));
                    model.remove(&slot);
                } else if model.insert(slot) {
                    members.insert(slot, |other| other.cmp(&slot));
                }
                if at % 100 == 0 {
                    versions.push((members.clone(), model.clone()));
                }
            }
            versions.push((members, model));
            for (members, model) in versions {
                prop_assert_eq!((members.len(), members.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(members.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
                let rest: Vec<_> = members.iter_from(|slot| slot < from).collect();
                prop_assert_eq!(rest, model.range(from..).copied().collect::<Vec<_>>());
            }
        }
    }
}
