//! A page: sixteen Pods in two allocations. A page is never changed; a new state of a Pod makes a new page.
//!
//! With one allocation for each Pod, the allocator's rounding would take more memory than the record itself after many
//! events. Only a record of more than 4 KiB has its own allocation, which pages share: an event of one Pod copies the
//! records of its fifteen neighbours, which may be another tenant's.

use std::{ops::Range, sync::Arc};

use podium_encoding::Shared;
use podium_sync::Mutex;
use smallvec::SmallVec;

use crate::pod::{CachedPod, Record, RecordRef};

/// The capacity of a page is a multiple of this, in bytes. Records grow and shrink by a few bytes with each event:
/// with few sizes, an allocation reuses the block that was freed last; with arbitrary sizes it would leave gaps.
const STEP: usize = 64;
/// Pods in a page.
pub(super) const PODS: usize = 16;
/// The length of a record, in bytes, above which it is stored outside the page's bytes.
const LONG: usize = 4 << 10;
const _: () = assert!(LONG <= u16::MAX as usize, "lengths of short records are stored as u16");

/// The long records of a page, each at the position of its Pod.
type LongRecords = [Option<Arc<[u8]>>; PODS];

/// A pool of the buffers of dropped pages. Each change drops one page and makes another: the buffer that was freed last
/// is still in the processor's cache, and an allocator would search long for a block of some kilobytes.
///
/// The last owner of a page may be a reader. The pool's lock is only tried: on contention the buffer is freed or
/// allocated normally, so neither side ever blocks.
#[derive(Debug)]
pub(super) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl Default for BufferPool {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl BufferPool {
    /// The most buffers in the pool: as many as the pages of a batch.
    const MAX_BUFFERS: usize = 64;

    fn take(&self, length: usize) -> Vec<u8> {
        let wanted = length.next_multiple_of(STEP);
        let reused = self.0.try_lock().and_then(|mut buffers| {
            let at = buffers.iter().rposition(|bytes| bytes.capacity() == wanted)?;
            Some(buffers.remove(at))
        });
        reused.unwrap_or_else(|| Vec::with_capacity(wanted))
    }

    fn put(&self, mut bytes: Vec<u8>) {
        if bytes.capacity() == 0 {
            return;
        }
        bytes.clear();
        if let Some(mut buffers) = self.0.try_lock() {
            if buffers.len() == Self::MAX_BUFFERS {
                buffers.remove(0);
            }
            buffers.push(bytes);
        }
    }
}

/// The parts that the Pods of a page share. Adjacent Pods are mostly of one workload and have the same; with a
/// reference for each Pod, every new page would change sixteen reference counts.
type PageShared = SmallVec<[Shared; 4]>;
/// The number at a position without a Pod.
const VACANT: u8 = u8::MAX;

#[derive(Debug)]
pub(super) struct Page {
    shared: PageShared,
    /// The index in `shared` of what each Pod shares.
    numbers: [u8; PODS],
    /// The length of each record in `bytes`.
    lengths: [u16; PODS],
    /// The records, one after the other. The capacity is a multiple of [`STEP`].
    bytes: Vec<u8>,
    /// Long records have no bytes in `bytes`.
    long: Option<Box<LongRecords>>,
    /// The pool to which `bytes` returns.
    buffers: Arc<BufferPool>,
}

impl Drop for Page {
    fn drop(&mut self) {
        self.buffers.put(std::mem::take(&mut self.bytes));
    }
}

impl Page {
    pub(super) fn get(&self, at: usize) -> Option<RecordRef<'_>> {
        let shared = self.shared.get(usize::from(*self.numbers.get(at)?))?;
        let record = match self.long(at) {
            Some(record) => record,
            None => &self.bytes[self.range(at)],
        };
        Some(RecordRef::open(shared, record))
    }

    fn long(&self, at: usize) -> Option<&Arc<[u8]>> {
        self.long.as_ref()?.get(at)?.as_ref()
    }

    /// Builds a page with Pods at its first positions.
    pub(super) fn from_records(pods: &[Record], buffers: &Arc<BufferPool>) -> Self {
        let length = pods.iter().map(|pod| pod.bytes().len()).filter(|length| *length <= LONG).sum();
        let bytes = buffers.take(length);
        let shared = PageShared::new();
        let numbers = [VACANT; PODS];
        let mut page = Self { shared, numbers, lengths: [0; PODS], bytes, long: None, buffers: Arc::clone(buffers) };
        for (at, pod) in pods.iter().take(PODS).enumerate() {
            if pod.bytes().len() > LONG {
                page.long.get_or_insert_default()[at] = Some(pod.bytes().into());
            } else {
                page.bytes.extend_from_slice(pod.bytes());
                page.lengths[at] = pod.bytes().len() as u16;
            }
            page.numbers[at] = number_of(&mut page.shared, pod.shared());
        }
        page
    }

    /// Creates a page without Pods.
    pub(super) fn empty(buffers: &Arc<BufferPool>) -> Self {
        Self::from_records(&[], buffers)
    }

    /// Returns the range of a short record.
    fn range(&self, at: usize) -> Range<usize> {
        let start = self.lengths[..at].iter().map(|length| usize::from(*length)).sum();
        start..start + usize::from(self.lengths[at])
    }

    /// Returns the page with another state of one Pod, or without this Pod. Overwrites the buffer `record`.
    pub(super) fn with(&self, at: usize, pod: Option<&CachedPod>, record: &mut Vec<u8>) -> Self {
        record.clear();
        let put = pod.map(|pod| pod.store(record));
        let mut long = self.long.clone();
        if record.len() > LONG {
            long.get_or_insert_default()[at] = Some((&**record).into());
            record.clear();
        } else if let Some(records) = &mut long {
            records[at] = None;
            long = long.filter(|records| records.iter().any(Option::is_some));
        }
        let Range { start, end } = self.range(at);
        let length = start + record.len() + self.bytes.len() - end;
        let mut bytes = self.buffers.take(length);
        bytes.extend_from_slice(&self.bytes[..start]);
        bytes.extend_from_slice(record);
        bytes.extend_from_slice(&self.bytes[end..]);
        let mut shared = PageShared::new();
        let mut numbers = [VACANT; PODS];
        let mut lengths = self.lengths;
        // A long record was cleared above.
        lengths[at] = record.len() as u16;
        for (other, number) in numbers.iter_mut().enumerate() {
            let present = match other == at {
                true => put,
                false => self.shared.get(usize::from(self.numbers[other])),
            };
            *number = present.map_or(VACANT, |present| number_of(&mut shared, present));
        }
        Self { shared, numbers, lengths, bytes, long, buffers: Arc::clone(&self.buffers) }
    }
}

/// Returns the index of `one` in `shared`, and appends it if it is missing.
fn number_of(shared: &mut PageShared, one: &Shared) -> u8 {
    let known = shared.iter().position(|known| Arc::ptr_eq(known, one));
    // A page has at most as many as Pods.
    known.unwrap_or_else(|| {
        shared.push(Arc::clone(one));
        shared.len() - 1
    }) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reuses_the_last_freed_buffer_of_its_size() {
        let buffers = Arc::<BufferPool>::default();
        let pages = [1, 2, 2].map(|steps| buffers.take(steps * STEP));
        let addresses = pages.each_ref().map(|bytes| bytes.as_ptr());
        pages.into_iter().for_each(|bytes| buffers.put(bytes));
        let taken = [2, 1, 2].map(|steps| buffers.take(steps * STEP - 1));
        assert_eq!(taken.each_ref().map(|bytes| bytes.as_ptr()), [addresses[2], addresses[0], addresses[1]]);
        assert!(taken.iter().all(Vec::is_empty) && buffers.0.lock().is_empty());
    }

    #[test]
    fn a_long_record_is_shared_by_the_pages_that_have_it() {
        let buffers = Arc::<BufferPool>::default();
        let pod = |at: usize, length: usize| {
            let mut pod = podium_wire::Pod::default();
            pod.header.namespace = "shop".into();
            pod.header.name = format!("p{at:02}");
            pod.header.uid = "u".into();
            pod.header.resource_version = "1".to_owned();
            pod.annotations.insert("text".into(), "x".repeat(length));
            let json = podium_wire::Record::open(
                podium_wire::SectionBytes::encode(&pod)
                    .unwrap()
                    .record(&pod.header, podium_wire::SectionSet::ALL)
                    .unwrap(),
            );
            let json = podium_wire::json::render(&json.unwrap()).unwrap().to_string();
            let pool = podium_encoding::Pool::new(1);
            let mut scratch = podium_encoding::Scratch::default();
            // The text becomes a value after three Pods of one workload.
            let mut last = None;
            for own in ["a", "b", ""] {
                let json = json.replace(&"x".repeat(length), &format!("{own}{}", "x".repeat(length)));
                last = Some(CachedPod::read(json.as_bytes(), &pool, &mut scratch, |_, _| None).unwrap().0);
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
        let page = Page::from_records(&records, &buffers);
        assert!(page.bytes.len() < 1_000);
        let mut buffer = Vec::new();
        let next = page.with(0, Some(&pod(0, 30)), &mut buffer);
        assert!(Arc::ptr_eq(page.long(1).unwrap(), next.long(1).unwrap()));
        assert_eq!([0, 1, 2].map(|at| annotation(&next, at)), [30, 5_000, 20]);
        // A long record becomes short, a short one becomes long, and finally the long one is removed.
        let next = next.with(1, Some(&pod(1, 40)), &mut buffer).with(2, Some(&pod(2, 6_000)), &mut buffer);
        assert_eq!([0, 1, 2].map(|at| annotation(&next, at)), [30, 40, 6_000]);
        let next = next.with(2, None, &mut buffer);
        assert!(next.long.is_none() && next.get(2).is_none());
        assert_eq!([0, 1].map(|at| annotation(&next, at)), [30, 40]);
    }

    #[test]
    fn the_pool_is_bounded_by_the_pages_of_a_batch() {
        let buffers = Arc::<BufferPool>::default();
        (0..1_000).for_each(|_| buffers.put(Vec::with_capacity(STEP)));
        assert_eq!(buffers.0.lock().len(), BufferPool::MAX_BUFFERS);
        drop(Page::empty(&buffers));
        assert_eq!(buffers.0.lock().len(), BufferPool::MAX_BUFFERS);
    }
}
