//! A page: sixteen Pods in two allocations. A page is never changed; a new state of a Pod makes a new page.
//!
//! With one allocation for each Pod, the allocator's rounding would take more memory than the record itself after many
//! events. Only a record of more than 4 KiB has its own allocation, which pages share: an event of one Pod copies the
//! records of its fifteen neighbours, which may be another tenant's.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    pod::{CachedPod, Kept, Record, record},
    shape::Shape,
    sync::Mutex,
};

/// The capacity of a page is a multiple of this, in bytes. Records grow and shrink by a few bytes from event to event:
/// with few sizes, an allocation reuses the block that was freed last, and with any size it would leave a gap.
const STEP: usize = 256;
/// Pods in a page.
pub(super) const PODS: usize = 16;
/// The length of a record, in bytes, above which it is stored outside the page's bytes.
const LONG: usize = 4 << 10;

/// The long records of a page, each at the position of its Pod.
type LongRecords = [Option<Arc<[u8]>>; PODS];

/// A pool of the buffers of dropped pages. Each change drops one page and makes another: the buffer that was freed last
/// is still in the processor's cache, and an allocator would search long for a block of some kilobytes.
///
/// The last owner of a page may be a reader. The pool's lock is only tried: on contention the buffer is freed or
/// allocated normally, so neither side ever blocks.
#[derive(Debug)]
pub(super) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Default for Spare {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl Spare {
    /// The most buffers in the pool: as many as the pages of a batch.
    const MOST: usize = 64;

    fn take(&self, length: usize) -> Vec<u8> {
        let wanted = length.next_multiple_of(STEP);
        let kept = self.0.try_lock().and_then(|mut spare| {
            let at = spare.iter().rposition(|bytes| bytes.capacity() == wanted)?;
            Some(spare.remove(at))
        });
        kept.unwrap_or_else(|| Vec::with_capacity(wanted))
    }

    fn keep(&self, mut bytes: Vec<u8>) {
        if bytes.capacity() == 0 {
            return;
        }
        bytes.clear();
        if let Some(mut spare) = self.0.try_lock() {
            if spare.len() == Self::MOST {
                spare.remove(0);
            }
            spare.push(bytes);
        }
    }
}

/// The different shapes of a page. Adjacent Pods are mostly of one workload and have few shapes; with a reference for
/// each Pod, every new page would change sixteen reference counts.
type OfPage = SmallVec<[Arc<Shape>; 4]>;
/// The shape's number at a position without a Pod.
const NOBODY: u8 = u8::MAX;

#[derive(Debug)]
pub(super) struct Page {
    shapes: OfPage,
    /// The index of each Pod's shape in `shapes`.
    numbers: [u8; PODS],
    /// The end of each record in `bytes`.
    ends: [u32; PODS],
    /// The records, one after the other. The capacity is a multiple of [`STEP`].
    bytes: Vec<u8>,
    /// Long records have no bytes in `bytes`.
    long: Option<Box<LongRecords>>,
    /// The pool to which `bytes` returns.
    spare: Arc<Spare>,
}

impl Drop for Page {
    fn drop(&mut self) {
        self.spare.keep(std::mem::take(&mut self.bytes));
    }
}

impl Page {
    pub(super) fn get(&self, at: usize) -> Option<Kept<'_>> {
        let shape = self.shapes.get(usize::from(*self.numbers.get(at)?))?;
        let record = match self.long(at) {
            Some(record) => record,
            None => self.bytes.get(self.start(at)..self.ends[at] as usize)?,
        };
        Kept::of(shape, record)
    }

    fn long(&self, at: usize) -> Option<&Arc<[u8]>> {
        self.long.as_ref()?.get(at)?.as_ref()
    }

    /// Builds a page with Pods at its first positions.
    pub(super) fn of(pods: &[Record], spare: &Arc<Spare>) -> Self {
        let length = pods.iter().map(|pod| pod.bytes().len()).filter(|length| *length <= LONG).sum();
        let bytes = spare.take(length);
        let (shapes, numbers) = (OfPage::new(), [NOBODY; PODS]);
        let mut page = Self { shapes, numbers, ends: [0; PODS], bytes, long: None, spare: Arc::clone(spare) };
        let mut pods = pods.iter();
        for (at, (of, end)) in page.numbers.iter_mut().zip(&mut page.ends).enumerate() {
            if let Some(pod) = pods.next() {
                if pod.bytes().len() > LONG {
                    page.long.get_or_insert_default()[at] = Some(pod.bytes().into());
                } else {
                    page.bytes.extend_from_slice(pod.bytes());
                }
                *of = number(&mut page.shapes, pod.shape());
            }
            *end = u32::try_from(page.bytes.len()).unwrap_or(u32::MAX);
        }
        page
    }

    /// Creates a page without Pods.
    pub(super) fn empty(spare: &Arc<Spare>) -> Self {
        Self::of(&[], spare)
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// Returns the page with another state of one Pod, or without this Pod. Overwrites the buffer `record`.
    pub(super) fn with(&self, at: usize, pod: Option<&CachedPod>, record: &mut Vec<u8>) -> Self {
        record.clear();
        pod.inspect(|pod| record::put(pod, record));
        let mut long = self.long.clone();
        if record.len() > LONG {
            long.get_or_insert_default()[at] = Some((&**record).into());
            record.clear();
        } else if let Some(records) = &mut long {
            records[at] = None;
            long = long.filter(|records| records.iter().any(Option::is_some));
        }
        let (start, end) = (self.start(at), self.ends[at] as usize);
        let length = start + record.len() + self.bytes.len() - end;
        let mut bytes = self.spare.take(length);
        bytes.extend_from_slice(&self.bytes[..start]);
        bytes.extend_from_slice(record);
        bytes.extend_from_slice(&self.bytes[end..]);
        let (mut shapes, mut numbers, mut ends) = (OfPage::new(), [NOBODY; PODS], self.ends);
        for (other, of) in numbers.iter_mut().enumerate() {
            let shape = match other == at {
                true => pod.map(|pod| pod.packed().shape()),
                false => self.shapes.get(usize::from(self.numbers[other])),
            };
            *of = shape.map_or(NOBODY, |shape| number(&mut shapes, shape));
        }
        for of in &mut ends[at..] {
            // Sixteen records that are not long have at most 64 KiB.
            *of = u32::try_from(*of as usize - end + start + record.len()).unwrap_or(u32::MAX);
        }
        Self { shapes, numbers, ends, bytes, long, spare: Arc::clone(&self.spare) }
    }
}

/// Returns the index of a shape in `shapes`, and appends the shape if it is missing.
fn number(shapes: &mut OfPage, shape: &Arc<Shape>) -> u8 {
    let known = shapes.iter().position(|known| Arc::ptr_eq(known, shape));
    // A page has at most as many shapes as Pods.
    known.unwrap_or_else(|| {
        shapes.push(Arc::clone(shape));
        shapes.len() - 1
    }) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reuses_the_last_freed_buffer_of_its_size() {
        let spare = Arc::<Spare>::default();
        let pages = [1, 2, 2].map(|steps| spare.take(steps * STEP));
        let addresses = pages.each_ref().map(|bytes| bytes.as_ptr());
        pages.into_iter().for_each(|bytes| spare.keep(bytes));
        let taken = [2, 1, 2].map(|steps| spare.take(steps * STEP - 1));
        assert_eq!(taken.each_ref().map(|bytes| bytes.as_ptr()), [addresses[2], addresses[0], addresses[1]]);
        assert!(taken.iter().all(Vec::is_empty) && spare.0.lock().is_empty());
    }

    #[test]
    fn a_long_record_is_shared_by_the_pages_that_have_it() {
        let spare = Arc::<Spare>::default();
        let pod = |at: usize, length: usize| {
            let mut pod = podium_wire::Pod::default();
            (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), format!("p{at:02}"), "u".into());
            pod.header.resource_version = "1".to_owned();
            pod.annotations.insert("text".into(), "x".repeat(length));
            let json = podium_wire::Record::open(
                podium_wire::SectionBytes::encode(&pod)
                    .unwrap()
                    .record(&pod.header, podium_wire::SectionSet::ALL)
                    .unwrap(),
            );
            let json = podium_wire::json::render(&json.unwrap()).unwrap().to_string();
            let shapes = crate::shape::Shapes::new(1);
            let mut scratch = crate::shape::Scratch::default();
            // With three Pods of one workload the text is a value of each.
            let mut last = None;
            for own in ["a", "b", ""] {
                let json = json.replace(&"x".repeat(length), &format!("{own}{}", "x".repeat(length)));
                last = Some(CachedPod::read(json.as_bytes(), &shapes, &mut scratch, |_, _| None).unwrap().0);
            }
            last.unwrap()
        };
        let annotation = |page: &Page, at: usize| page.get(at).unwrap().pod().annotations().unwrap()["text"].len();
        let records: Vec<_> = [10, 5_000, 20]
            .into_iter()
            .enumerate()
            .map(|(at, length)| Record::from(Arc::new(pod(at, length))))
            .collect();
        assert!(records[1].bytes().len() > LONG, "{}", records[1].bytes().len());
        let page = Page::of(&records, &spare);
        assert!(page.bytes.len() < 1_000);
        let mut room = Vec::new();
        let next = page.with(0, Some(&pod(0, 30)), &mut room);
        assert!(Arc::ptr_eq(page.long(1).unwrap(), next.long(1).unwrap()));
        assert_eq!([0, 1, 2].map(|at| annotation(&next, at)), [30, 5_000, 20]);
        // A long record becomes short, a short one becomes long, and finally the long one is removed.
        let next = next.with(1, Some(&pod(1, 40)), &mut room).with(2, Some(&pod(2, 6_000)), &mut room);
        assert_eq!([0, 1, 2].map(|at| annotation(&next, at)), [30, 40, 6_000]);
        let next = next.with(2, None, &mut room);
        assert!(next.long.is_none() && next.get(2).is_none());
        assert_eq!([0, 1].map(|at| annotation(&next, at)), [30, 40]);
    }

    #[test]
    fn the_pool_is_bounded_by_the_pages_of_a_batch() {
        let spare = Arc::<Spare>::default();
        (0..1_000).for_each(|_| spare.keep(Vec::with_capacity(STEP)));
        assert_eq!(spare.0.lock().len(), Spare::MOST);
        drop(Page::empty(&spare));
        assert_eq!(spare.0.lock().len(), Spare::MOST);
    }
}
