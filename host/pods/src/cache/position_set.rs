//! An ordered set of Pods, stored as their positions. The caller defines the order, because only the caller knows
//! which Pod is in a position.
//!
//! A first list assigns consecutive positions in name order, so the Pods of a workload are one range, whatever their
//! number. Each range is stored as its distance from the one before it and its length, in one to five bytes each.
//!
//! Persistent: a clone shares everything; a change copies one chunk and the list of chunks.

use std::{cmp::Ordering, iter, ops::Range, sync::Arc};

use smallvec::SmallVec;

/// The index of a Pod in the store. All positions are below [`RANGE_END`]: no cache has as many Pods.
pub(super) type Position = u32;

/// Marks an entry as the last position of the range that begins with the entry before it: `[a, b | RANGE_END]` is every
/// position of `a..=b`, in this order. Any other entry is one position.
const RANGE_END: Position = 1 << 31;

/// Entries in order. Each range is as long as possible within its chunk, so a chunk's positions have only one
/// representation.
type Entries = SmallVec<[Position; MAX_CHUNK + 3]>;
/// Stored entries, see [`stored`].
type Chunk = Arc<[u8]>;

/// The most entries of a chunk. A larger chunk is split; an empty chunk is removed.
const MAX_CHUNK: usize = 128;
/// The entries of the left part of a split, which leaves space for more.
const FULL_CHUNK: usize = MAX_CHUNK * 7 / 8;
/// The most bytes of a set without an allocation: as many as the other variants take.
const INLINE: usize = 22;

#[derive(Debug, Clone)]
pub(super) enum PositionSet {
    /// The stored entries and their length. Most sets are the Pods of one workload, and so one range.
    Inline(u8, [u8; INLINE]),
    /// One chunk with more bytes.
    Few(Chunk),
    /// Several chunks, none empty, and the number of positions in all of them.
    Many(Arc<Vec<Chunk>>, u32),
}

impl Default for PositionSet {
    fn default() -> Self {
        Self::Inline(0, [0; INLINE])
    }
}

impl PositionSet {
    /// Builds a set from positions that are in order.
    pub(super) fn from_ordered(positions: &[Position]) -> Self {
        let mut set = Self::default();
        set.rewrite(0, &extended(&[], positions.iter().map(|position| *position..*position + 1)), |_| 0);
        set
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Many(_, len) => *len as usize,
            few => Ranges::new(few.chunk(0)).map(|range| range.len()).sum(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Inline(0, _))
    }

    /// Inserts a position that is not in the set. `place` compares the Pod of another position with the Pod of this
    /// one.
    pub(super) fn insert(&mut self, position: Position, place: impl Fn(Position) -> Ordering) {
        let before = |other| place(other) == Ordering::Less;
        let at = self.chunk_at(before);
        let chunk = entries(self.chunk(at));
        let (head, [left, right], tail) = cut(&chunk, before);
        let grown = extended(head, [left, position..position + 1, right].into_iter().chain(ranges(tail)));
        self.rewrite(at, &grown, |len| len + 1);
    }

    /// Removes a position, if the set contains it.
    pub(super) fn remove(&mut self, position: Position, place: impl Fn(Position) -> Ordering) {
        let at = self.chunk_at(|other| place(other) != Ordering::Greater);
        let chunk = entries(self.chunk(at));
        if !ranges(&chunk).any(|range| range.contains(&position)) {
            return;
        }
        let left = ranges(&chunk).flat_map(|range| {
            if range.contains(&position) { [range.start..position, position + 1..range.end] } else { [range, 0..0] }
        });
        self.rewrite(at, &extended(&[], left), |len| len - 1);
    }

    /// Returns the positions in order, from the first for which `before` is false.
    pub(super) fn iter_from(&self, before: impl Fn(Position) -> bool) -> impl Iterator<Item = Position> {
        self.ranges_from(before).flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Position> {
        self.chunks().flat_map(Ranges::new).flatten()
    }

    /// Returns the ranges from the first position for which `before` is false; the first may be empty.
    fn ranges_from(&self, before: impl Fn(Position) -> bool) -> impl Iterator<Item = Range<Position>> {
        let at = self.chunk_at(&before);
        let chunk = entries(self.chunk(at));
        let (_, [_, right], tail) = cut(&chunk, before);
        let first: SmallVec<[_; 4]> = iter::once(right).chain(ranges(tail)).collect();
        first.into_iter().chain(self.chunks().skip(at + 1).flat_map(Ranges::new))
    }

    /// Replaces the entries of a chunk. `len` returns the new number of positions of a set of several chunks.
    fn rewrite(&mut self, at: usize, entries: &[Position], len: impl Fn(u32) -> u32) {
        let Self::Many(chunks, all) = self else {
            *self = if entries.len() <= MAX_CHUNK {
                Self::few(&stored(entries))
            } else {
                let positions: usize = ranges(entries).map(|range| range.len()).sum();
                Self::Many(Arc::new(split(entries).collect()), positions as u32)
            };
            return;
        };
        *all = len(*all);
        let chunks = Arc::make_mut(chunks);
        chunks.splice(at..=at, split(entries));
        if let [only] = &**chunks {
            *self = Self::few(&Arc::clone(only));
        }
    }

    fn few(chunk: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match bytes.get_mut(..chunk.len()) {
            Some(inline) => {
                inline.copy_from_slice(chunk);
                Self::Inline(chunk.len() as u8, bytes)
            }
            None => Self::Few(chunk.into()),
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let count = match self {
            Self::Many(chunks, _) => chunks.len(),
            _ => 1,
        };
        (0..count).map(|at| self.chunk(at))
    }

    /// Returns the stored entries of a chunk, or none if the chunk does not exist.
    fn chunk(&self, at: usize) -> &[u8] {
        match self {
            Self::Many(chunks, _) => chunks.get(at).map(|chunk| &**chunk).unwrap_or_default(),
            Self::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Self::Few(chunk) => chunk,
        }
    }

    /// Returns the index of the last chunk for whose first position `before` is true, or of the first chunk if there is
    /// none.
    fn chunk_at(&self, before: impl Fn(Position) -> bool) -> usize {
        let is_before = |chunk: &Chunk| Ranges::new(chunk).next().is_some_and(|range| before(range.start));
        match self {
            Self::Many(chunks, _) => chunks[1..].partition_point(is_before),
            _ => 0,
        }
    }
}

/// Returns the stored form of entries: for each the distance from the last one, and whether it is the end of a range.
fn stored(entries: &[Position]) -> SmallVec<[u8; 2 * MAX_CHUNK]> {
    let mut bytes = SmallVec::new();
    let mut last = 0;
    for entry in entries {
        let position = i64::from(entry & !RANGE_END);
        let distance = position - last;
        // A range ends after its first position.
        let number = if entry & RANGE_END != 0 { (distance as u64) << 1 | 1 } else { zigzag(distance) << 1 };
        match u8::try_from(number) {
            Ok(short @ ..0x80) => bytes.push(short),
            _ => put_varint(number, &mut bytes),
        }
        last = position;
    }
    bytes
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a number, seven bits in each byte, the least significant first.
fn put_varint(mut number: u64, out: &mut impl Extend<u8>) {
    while number >= 0x80 {
        out.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    out.extend([number as u8]);
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, &bytes[end + 1..]))
}

/// Returns the entries of a chunk.
fn entries(chunk: &[u8]) -> Entries {
    Stored { bytes: chunk, last: 0 }.collect()
}

/// Yields the entries of a chunk.
#[derive(Clone)]
struct Stored<'a> {
    bytes: &'a [u8],
    last: i64,
}

impl Iterator for Stored<'_> {
    type Item = Position;

    #[inline]
    fn next(&mut self) -> Option<Position> {
        let (number, rest) = match self.bytes {
            [short @ ..0x80, rest @ ..] => (u64::from(*short), rest),
            bytes => varint(bytes)?,
        };
        self.bytes = rest;
        let is_end = number & 1 != 0;
        self.last += if is_end { (number >> 1) as i64 } else { unzigzag(number >> 1) };
        // `stored` wrote a position.
        Some(self.last as Position | if is_end { RANGE_END } else { 0 })
    }
}

/// Yields the ranges of a chunk.
struct Ranges<'a>(Stored<'a>);

impl<'a> Ranges<'a> {
    fn new(chunk: &'a [u8]) -> Self {
        Self(Stored { bytes: chunk, last: 0 })
    }
}

impl Iterator for Ranges<'_> {
    type Item = Range<Position>;

    fn next(&mut self) -> Option<Range<Position>> {
        let start = self.0.next()?;
        let mut rest = self.0.clone();
        Some(match rest.next() {
            Some(end) if end & RANGE_END != 0 => {
                self.0 = rest;
                start..(end & !RANGE_END) + 1
            }
            _ => start..start + 1,
        })
    }
}

fn ranges(entries: &[Position]) -> impl Iterator<Item = Range<Position>> {
    let ranges = entries.chunk_by(|_, next| next & RANGE_END != 0);
    ranges.map(|range| range[0]..(range[range.len() - 1] & !RANGE_END) + 1)
}

/// Appends ranges to entries. A range that continues the last one is merged with it; empty ranges are skipped.
fn extended(head: &[Position], ranges: impl Iterator<Item = Range<Position>>) -> Entries {
    // A change adds at most three entries: it splits a range in two and inserts a position between them.
    let mut entries = Entries::from_slice(head);
    for range in ranges.filter(|range| !range.is_empty()) {
        debug_assert!(range.end <= RANGE_END, "{range:?} are not positions");
        match entries.last() {
            Some(end) if (end & !RANGE_END) + 1 == range.start => {
                if end & RANGE_END != 0 {
                    entries.pop();
                }
            }
            _ => entries.push(range.start),
        }
        // The last entry is now the first position of the range, and may be its only one.
        if entries.last() != Some(&(range.end - 1)) {
            entries.push((range.end - 1) | RANGE_END);
        }
    }
    entries
}

/// Returns the entries before the first position for which `before` is false, and those from it on. A range that
/// contains positions of both kinds is in neither; its two parts are returned between them.
fn cut(entries: &[Position], before: impl Fn(Position) -> bool) -> (&[Position], [Range<Position>; 2], &[Position]) {
    // The Pods of a list arrive in order, so the end is checked first.
    let at = match entries.last() {
        Some(last) if before(last & !RANGE_END) => entries.len(),
        _ => entries.partition_point(|entry| before(entry & !RANGE_END)),
    };
    let Some(last) = entries.get(at).filter(|entry| *entry & RANGE_END != 0) else {
        return (&entries[..at], [0..0, 0..0], &entries[at..]);
    };
    let first = entries[at - 1];
    let last = last & !RANGE_END;
    // `before` is true for the first position of the range and false for its last.
    let mut low = first + 1;
    let mut high = last;
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

fn split(mut entries: &[Position]) -> impl Iterator<Item = Chunk> {
    iter::from_fn(move || {
        let (chunk, rest) = entries.split_at(match entries.len() {
            len @ ..=MAX_CHUNK => len,
            // Most entries go to the left, so that positions inserted in order fill chunks instead of halving them. No
            // range is split.
            _ if entries[FULL_CHUNK] & RANGE_END != 0 => FULL_CHUNK - 1,
            _ => FULL_CHUNK,
        });
        entries = rest;
        (!chunk.is_empty()).then(|| stored(chunk)[..].into())
    })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeMap};

    use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestCaseError};

    use super::*;

    /// The position of a position's Pod in the order.
    type Order = fn(Position) -> u32;

    const ORDERS: [Order; 6] = [
        |position| position,
        |position| !position,
        |position| position.reverse_bits(),
        |position| (position * 7919) % 10_007,
        // In ranges of eight.
        |position| (position / 8).reverse_bits() | (position % 8),
        // A first list of 600 positions; later positions are anywhere between them.
        |position| if position < 600 { position << 16 } else { (((position * 7919) % 600) << 16) | position },
    ];

    fn entries(set: &PositionSet) -> usize {
        set.chunks().map(|chunk| super::entries(chunk).len()).sum()
    }

    /// Checks that the set has the positions of the model, in their only representation.
    fn check(set: &PositionSet, model: &BTreeMap<u32, Position>) -> Result<(), TestCaseError> {
        prop_assert!(set.iter().eq(model.values().copied()));
        prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
        let (least, most) = match set {
            PositionSet::Inline(..) => (0, INLINE),
            PositionSet::Few(chunk) => (1 + MAX_CHUNK * usize::from(chunk.len() <= INLINE), MAX_CHUNK),
            PositionSet::Many(chunks, _) => (1 + (MAX_CHUNK * usize::from(chunks.len() < 2)), MAX_CHUNK),
        };
        for chunk in set.chunks().map(super::entries) {
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
    /// of consecutive positions; at the end all positions are removed.
    fn follow(
        order: Order,
        first: &[Position],
        steps: &[(Position, u32, bool)],
        from: Position,
    ) -> Result<(), TestCaseError> {
        let mut model: BTreeMap<_, _> = first.iter().map(|position| (order(*position), *position)).collect();
        let mut set = PositionSet::from_ordered(&model.values().copied().collect::<Vec<_>>());
        let mut versions = vec![(set.clone(), model.clone())];
        for (first, count, add) in steps.iter().copied().chain((0..20).map(|part| (50 * part, 50, false))) {
            for position in first..first + count {
                let key = order(position);
                let place = |other| {
                    assert!(model.contains_key(&order(other)), "{other} is no member");
                    order(other).cmp(&key)
                };
                match add {
                    true if model.contains_key(&key) => continue,
                    true => (set.insert(position, place), model.insert(key, position)),
                    false => (set.remove(position, place), model.remove(&key)),
                };
            }
            versions.push((set.clone(), model.clone()));
        }
        for (set, model) in versions {
            check(&set, &model)?;
            let rest = set.iter_from(|position| order(position) < order(from));
            prop_assert!(rest.eq(model.range(order(from)..).map(|(_, position)| *position)));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_set_is_built_from_ordered_positions(
            (count, apart) in (0..300_u32, 1..4_u32),
            steps in vec((0..1_000_u32, Just(1), any::<bool>()), 0..100),
        ) {
            let positions: Vec<_> = (0..count).map(|position| apart * position).collect();
            follow(|position| position, &positions, &steps, 500)?;
        }

        #[test]
        fn a_position_set_is_ordered_and_its_versions_do_not_change(
            order in select(&ORDERS),
            count in 0..=600_u32,
            steps in vec((0..970_u32, 1..30_u32, prop::bool::weighted(0.6)), 0..60),
            from in 0..1_000_u32,
        ) {
            follow(order, &Vec::from_iter(0..count), &steps, from)?;
        }
    }

    #[test]
    fn a_range_takes_two_entries_and_a_single_position_one() {
        let entries_of = |positions: &mut dyn Iterator<Item = Position>| {
            entries(&PositionSet::from_ordered(&Vec::from_iter(positions)))
        };
        assert_eq!(entries_of(&mut (0..100_000)), 2);
        assert_eq!(entries_of(&mut (0..1_000).step_by(2)), 500);
        assert_eq!(entries_of(&mut (0..1_000).rev()), 1_000, "in descending order");
        let mut set = PositionSet::default();
        for position in (0..100).step_by(2).chain((1..100).step_by(2)) {
            set.insert(position, |other| other.cmp(&position));
        }
        assert_eq!(entries(&set), 2, "positions in between join both sides");
    }

    #[test]
    fn a_position_takes_the_bytes_of_its_distance() {
        let bytes =
            |positions: &[Position]| PositionSet::from_ordered(positions).chunks().map(<[u8]>::len).sum::<usize>();
        assert_eq!(bytes(&[5, 6, 7, 8]), 2);
        assert_eq!(bytes(&Vec::from_iter((0..1_000).step_by(30))), 34);
        assert_eq!(bytes(&Vec::from_iter((0..100).map(|at| 400 * at))), 199);
        assert_eq!(bytes(&[RANGE_END - 1, 0]), 10);
        assert_eq!(size_of::<PositionSet>(), 24);
    }

    #[test]
    fn a_position_in_a_long_range_is_found_in_few_comparisons() {
        let mut set = PositionSet::from_ordered(&Vec::from_iter(0..100_000));
        let comparisons = Cell::new(0);
        let compare = |position: Position, at| {
            comparisons.set(comparisons.get() + 1);
            position.cmp(&at)
        };
        assert_eq!(set.iter_from(|position| compare(position, 70_000).is_lt()).count(), 30_000);
        assert!(comparisons.take() < 25);
        set.insert(100_000, |position| compare(position, 100_000));
        assert_eq!((entries(&set), comparisons.take()), (2, 1), "at the end");
    }
}
