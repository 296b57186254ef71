//! [`RunRecord`]: one run, with its reasons and its results, kept for people who ask why a plugin did something.
//!
//! Each tenant has a ring of a fixed number of bytes, in which failed runs displace others for half of the bytes, so
//! that they are kept longest. A tenant displaces only its own records. A record is made when its run settles, by the
//! worker or the task of its delivery; a ring has a lock of its own, which is held for a few microseconds.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem::size_of,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use podium_vocabulary::{PluginId, PodKey, Revision, WriteReport};
use tokio::time::Instant;

use super::{LoadedPlugin, PodJob, RunWrites};
use crate::{
    ports::{Failure, Outcome, Usage},
    queue::Why,
};

/// The most bytes of one tenant's records: about 150 runs.
pub const TENANT_BYTES: usize = 64 << 10;
/// The most bytes of all records. Beyond 256 tenants each has less than [`TENANT_BYTES`].
pub const HOST_BYTES: usize = 16 << 20;
/// The most writes that a record lists.
pub(super) const WRITES: usize = 8;
/// The most bytes of each text in a record.
const TEXT: usize = 512;

/// One run that has settled, failed or been retried.
#[derive(Debug, Clone)]
pub struct RunRecord {
    /// Grows with each record of the host.
    pub number: u64,
    /// The plugin that ran.
    pub plugin: PluginId,
    /// The Pod that the run was about.
    pub pod: PodKey,
    /// The reasons of the run.
    pub why: Why,
    /// The Pod was gone.
    pub deleted: bool,
    /// 1 for a first attempt, and one more for each failure in a row.
    pub attempt: u32,
    /// The revision of the Pod that the run read; 0 if it was gone.
    pub read: Revision,
    /// The revision that the run's own writes to the Pod made; 0 if there is none.
    pub wrote: Revision,
    /// The time from the oldest event that the run answers to its start.
    pub waited: Duration,
    /// The time from the start to the API server's response to the last write.
    pub took: Duration,
    /// The end of the run.
    pub ended: Instant,
    /// The resources that the run used.
    pub usage: Usage,
    /// The plugin's answer, or the reason why there is none.
    pub result: Result<Outcome, Failure>,
    /// A write did not settle.
    pub unsettled: bool,
    /// The first writes that were sent or refused, also by commits, with their results.
    pub writes: Vec<WriteReport>,
    /// The writes that `writes` does not list.
    pub unlisted: u32,
}

impl RunRecord {
    /// Returns true if the run failed, or one of its writes did not settle.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.result.is_err() || self.unsettled
    }

    /// Returns the bytes that the record counts for, with the names that it shares with others.
    fn bytes(&self) -> usize {
        let PodKey { namespace, name, uid } = &self.pod;
        let names = namespace.len() + name.len() + uid.len() + self.plugin.name.len();
        let writes = self
            .writes
            .iter()
            .map(|write| size_of::<WriteReport>() + write.description.capacity() + write.result.text().len());
        let message = self.result.as_ref().err().map_or(0, |failure| failure.message.capacity());
        size_of::<Self>() + size_of::<Arc<Self>>() + names + message + writes.sum::<usize>()
    }
}

/// The end of a run, as dispatch knows it beside its key and its writes.
pub(super) struct RunEnd<'a> {
    pub(super) deleted: bool,
    pub(super) waited: Duration,
    pub(super) took: Duration,
    pub(super) ended: Instant,
    pub(super) usage: Usage,
    pub(super) result: &'a Result<Outcome, Failure>,
    pub(super) unsettled: bool,
}

impl RunEnd<'_> {
    /// Returns the record of the run, without a number.
    pub(super) fn record(self, job: &PodJob, plugin: &LoadedPlugin, key: &PodKey, run: &RunWrites) -> RunRecord {
        let Self { deleted, waited, took, ended, usage, result, unsettled } = self;
        let (writes, count, wrote) = run.take_results();
        let cut = |failure: &Failure| Failure { kind: failure.kind, message: cut(&failure.message) };
        RunRecord {
            number: 0,
            plugin: plugin.spec.id.clone(),
            pod: key.clone(),
            why: job.why,
            deleted,
            attempt: job.attempt,
            read: run.read(),
            wrote,
            waited,
            took,
            ended,
            usage,
            result: result.as_ref().copied().map_err(cut),
            unsettled,
            unlisted: count.saturating_sub(u32::try_from(writes.len()).unwrap_or(u32::MAX)),
            writes,
        }
    }
}

/// Cuts a text at the bytes that a record has of it.
pub(super) fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT)].to_owned()
}

/// The rings of all tenants, by number.
#[derive(Debug, Default)]
pub(super) struct Records {
    rings: BTreeMap<u32, Arc<Ring>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The most bytes of one ring.
    share: AtomicUsize,
    numbers: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self { share: AtomicUsize::new(TENANT_BYTES), numbers: AtomicU64::new(0) }
    }
}

impl Records {
    /// Returns the ring of a tenant, and creates it at the first call.
    pub(super) fn ring(&mut self, tenant: u32) -> Arc<Ring> {
        let Self { rings, shared } = self;
        let ring = rings.entry(tenant).or_insert_with(|| Arc::new(Ring::new(shared.clone()))).clone();
        self.divide();
        ring
    }

    /// Returns the ring of a tenant, if it has one.
    pub(super) fn find(&self, tenant: u32) -> Option<Arc<Ring>> {
        self.rings.get(&tenant).cloned()
    }

    /// Returns all rings, and the latest number: each record up to it is in a ring, or was displaced.
    pub(super) fn all(&self) -> (Vec<Arc<Ring>>, u64) {
        (self.rings.values().cloned().collect(), self.shared.numbers.load(Relaxed))
    }

    /// Forgets the records of all tenants except these.
    pub(super) fn retain(&mut self, tenants: &BTreeSet<u32>) {
        self.rings.retain(|tenant, _| tenants.contains(tenant));
        self.divide();
    }

    /// Divides the bytes of the host among the tenants, in few steps: each step looks at all rings.
    fn divide(&self) {
        let share = TENANT_BYTES.min(HOST_BYTES / self.rings.len().max(1).next_power_of_two());
        if self.shared.share.swap(share, Relaxed) > share {
            self.rings.values().for_each(|ring| ring.inner.lock().trim(share));
        }
    }
}

/// The records of one tenant.
#[derive(Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
    inner: Mutex<Inner>,
}

/// In the order in which the runs ended.
#[derive(Debug, Default)]
struct Inner {
    failed: Half,
    others: Half,
}

#[derive(Debug, Default)]
struct Half {
    records: VecDeque<Arc<RunRecord>>,
    bytes: usize,
}

impl Half {
    fn push(&mut self, record: Arc<RunRecord>) {
        self.bytes += record.bytes();
        self.records.push_back(record);
    }

    fn pop(&mut self) -> bool {
        let oldest = self.records.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, |record| record.bytes());
        oldest.is_some()
    }
}

impl Inner {
    fn trim(&mut self, share: usize) {
        while self.failed.bytes + self.others.bytes > share {
            let popped = if self.failed.bytes > share / 2 { self.failed.pop() } else { self.others.pop() };
            if !popped {
                return;
            }
        }
    }
}

impl Ring {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, inner: Mutex::default() }
    }

    /// Adds a record, whose number it sets.
    pub(super) fn add(&self, mut record: RunRecord) {
        let is_failure = record.is_failure();
        let mut inner = self.inner.lock();
        record.number = self.shared.numbers.fetch_add(1, Relaxed) + 1;
        let record = Arc::new(record);
        if is_failure {
            inner.failed.push(record)
        } else {
            inner.others.push(record)
        }
        inner.trim(self.shared.share.load(Relaxed));
    }

    /// Returns the latest `most` records that meet a condition, the latest first.
    pub(super) fn latest(&self, most: usize, wanted: impl Fn(&RunRecord) -> bool) -> Vec<Arc<RunRecord>> {
        let mut found: Vec<_> = {
            let inner = self.inner.lock();
            let all = inner.failed.records.iter().chain(&inner.others.records);
            all.filter(|record| wanted(record)).cloned().collect()
        };
        found.sort_unstable_by_key(|record| std::cmp::Reverse(record.number));
        found.truncate(most);
        found
    }
}

#[cfg(test)]
mod tests;
