//! [`RunRecord`]: one run, with its reasons and its results, kept for people who ask why a plugin did something.
//!
//! Each tenant has a ring of a fixed number of bytes, in which failed runs displace others for half of the bytes, so
//! that they are kept longest. A tenant displaces only its own records. A record is made when its run settles, by the
//! worker or the task of its delivery; a ring has a lock of its own, which is held for a few microseconds. It is kept
//! while a plugin of the tenant is configured, also a suspended one.

use std::{
    collections::{BTreeMap, VecDeque},
    mem::size_of,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use podium_vocabulary::{Payer, PluginId, PodKey, Revision, WriteReport, is_group};
use tokio::time::Instant;

use super::{Lane, LoadedPlugin, PodJob, RunWrites, job_key};
use crate::{
    ports::{Failure, Outcome, TRACED_WRITES, TraceId, Usage, WriteTime},
    queue::Why,
};

/// The most bytes of one tenant's records: about 150 runs.
pub const TENANT_BYTES: usize = 64 << 10;
/// The most bytes of all records. Beyond 256 tenants each has less than [`TENANT_BYTES`] from its next record on.
pub const HOST_BYTES: usize = 16 << 20;
/// The most writes that a record lists.
pub(super) const WRITES: usize = TRACED_WRITES as usize;
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
    /// The group that the plugin ran for; `None` for a plugin that runs for each Pod.
    pub group: Option<Box<PodKey>>,
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
    /// The lanes of the plugins of which the run has skipped changes, because it answered `stop`.
    pub stopped: Vec<Lane>,
    /// The trace that the run may have; `None` if runs are not traced.
    pub trace: Option<Box<TraceOfRun>>,
}

/// The part of a record that only a trace needs.
#[derive(Debug, Clone)]
pub struct TraceOfRun {
    /// Its id.
    pub id: TraceId,
    /// The times of the first writes that needed a request.
    pub times: Vec<WriteTime>,
}

impl RunRecord {
    /// Returns true if the run was for this Pod or this group.
    pub(super) fn is_for(&self, key: &PodKey) -> bool {
        self.group.as_deref().unwrap_or(&self.pod).uid == key.uid
    }

    /// Returns the record of a run that ends now, without a number.
    pub(super) fn new(
        job: &PodJob,
        plugin: &LoadedPlugin,
        key: &PodKey,
        run: &RunWrites,
        result: &Result<Outcome, Failure>,
    ) -> Self {
        let (mut writes, count, wrote) = run.take_results();
        let trace = run.take_trace().map(Box::new);
        writes.shrink_to_fit();
        let kept = |failure: &Failure| {
            let mut kept = failure.clone();
            cut(&mut kept.message);
            kept
        };
        Self {
            number: 0,
            plugin: plugin.spec.id.clone(),
            pod: key.clone(),
            group: is_group(&job.item).then(|| Box::new(job_key(job))),
            why: job.why,
            deleted: false,
            attempt: job.attempt,
            read: run.read(),
            wrote,
            waited: Duration::ZERO,
            took: Duration::ZERO,
            ended: Instant::now(),
            usage: Usage::default(),
            result: result.as_ref().copied().map_err(kept),
            unsettled: false,
            unlisted: count.saturating_sub(u32::try_from(writes.len()).unwrap_or(u32::MAX)),
            writes,
            stopped: Vec::new(),
            trace,
        }
    }

    /// Returns true if the run failed, or one of its writes did not settle.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.result.is_err() || self.unsettled
    }

    /// Returns the name of the run's result, or the reason of its failure.
    #[must_use]
    pub fn result_name(&self) -> &'static str {
        match &self.result {
            Err(failure) => failure.kind.name(),
            Ok(_) if self.unsettled => "unsettled",
            Ok(Outcome::Settled) => "settled",
            Ok(Outcome::Stop) => "stop",
            Ok(Outcome::RequeueAfter(_)) => "requeueAfter",
        }
    }

    /// Returns the bytes that the record counts for, with the names that it shares with others.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let PodKey { namespace, name, uid } = &self.pod;
        let names = namespace.len() + name.len() + uid.len() + self.plugin.name.len();
        let writes = self
            .writes
            .iter()
            .map(|write| size_of::<WriteReport>() + write.description.capacity() + write.result.text().len());
        let message = self.result.as_ref().err().map_or(0, |failure| failure.message.capacity());
        let group = self.group.as_ref().map_or(0, |group| size_of::<PodKey>() + group.name.len() + group.uid.len());
        let stopped = self.stopped.capacity() * size_of::<Lane>();
        let of_trace = |trace: &TraceOfRun| size_of::<TraceOfRun>() + trace.times.capacity() * size_of::<WriteTime>();
        let trace = self.trace.as_deref().map_or(0, of_trace);
        size_of::<Self>() + size_of::<Arc<Self>>() + trace + names + message + group + stopped + writes.sum::<usize>()
    }
}

/// Cuts a text at the bytes that a record has of it.
pub(super) fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT));
    text.shrink_to_fit();
}

/// The rings of the tenants that have a configured plugin.
#[derive(Debug, Default)]
pub(super) struct Records {
    tenants: BTreeMap<Payer, OfTenant>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct OfTenant {
    ring: Arc<Ring>,
    /// The plugins that have run, each as long as it is configured.
    plugins: BTreeMap<PluginId, Arc<()>>,
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
    /// Returns the book of a plugin, and creates the ring of its tenant at the first call.
    pub(super) fn book(&mut self, id: &PluginId) -> Book {
        let Self { tenants, shared } = self;
        let ring = || Arc::new(Ring { shared: shared.clone(), inner: Mutex::default() });
        let tenant = tenants.entry(id.payer()).or_insert_with(|| OfTenant { ring: ring(), plugins: BTreeMap::new() });
        let is_configured = Arc::downgrade(tenant.plugins.entry(id.clone()).or_default());
        let book = Book { ring: tenant.ring.clone(), is_configured };
        self.divide();
        book
    }

    /// Returns the ring of a plugin's tenant, if it has one.
    pub(super) fn find(&self, id: &PluginId) -> Option<Arc<Ring>> {
        self.tenants.get(&id.payer()).map(|tenant| tenant.ring.clone())
    }

    /// Returns all rings, and the latest number: each record up to it is in a ring, or was displaced.
    pub(super) fn all(&self) -> (Vec<Arc<Ring>>, u64) {
        (self.tenants.values().map(|tenant| tenant.ring.clone()).collect(), self.shared.numbers.load(Relaxed))
    }

    /// Ends the book of a plugin that is not configured any more. Returns the ring, from which the caller removes its
    /// records.
    pub(super) fn forget(&mut self, id: &PluginId) -> Option<Arc<Ring>> {
        let tenant = self.tenants.get_mut(&id.payer())?;
        let ring = tenant.ring.clone();
        tenant.plugins.remove(id);
        if tenant.plugins.is_empty() {
            self.tenants.remove(&id.payer());
            self.divide();
        }
        Some(ring)
    }

    /// Divides the bytes of the host among the tenants, in few steps. A ring that has more drops it with its next
    /// record, because plugins cannot run while this is done.
    fn divide(&self) {
        let share = TENANT_BYTES.min(HOST_BYTES / self.tenants.len().max(1).next_power_of_two());
        self.shared.share.store(share, Relaxed);
    }
}

/// Where the runs of one plugin are recorded.
#[derive(Debug)]
pub(super) struct Book {
    ring: Arc<Ring>,
    /// A plugin of the same name that is created later has another book.
    is_configured: Weak<()>,
}

impl Book {
    /// Adds a record, whose number it sets, and returns it; not one of a plugin that is not configured any more.
    pub(super) fn add(&self, mut record: RunRecord) -> Option<Arc<RunRecord>> {
        let is_failure = record.is_failure();
        record.stopped.shrink_to_fit();
        let mut inner = self.ring.inner.lock();
        if self.is_configured.strong_count() == 0 {
            return None;
        }
        record.number = self.ring.shared.numbers.fetch_add(1, Relaxed) + 1;
        let record = Arc::new(record);
        let half = if is_failure { &mut inner.failed } else { &mut inner.others };
        half.push(record.clone());
        inner.trim(self.ring.shared.share.load(Relaxed));
        Some(record)
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
    /// The number of the latest record that was displaced.
    displaced: u64,
}

impl Half {
    fn push(&mut self, record: Arc<RunRecord>) {
        self.bytes += record.bytes();
        self.records.push_back(record);
    }

    fn pop(&mut self) -> bool {
        let Some(oldest) = self.records.pop_front() else { return false };
        self.bytes -= oldest.bytes();
        self.displaced = oldest.number;
        true
    }

    fn remove(&mut self, id: &PluginId) {
        self.records.retain(|record| record.plugin != *id);
        self.bytes = self.records.iter().map(|record| record.bytes()).sum();
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
    /// Removes the records of a plugin.
    pub(super) fn remove(&self, id: &PluginId) {
        let mut inner = self.inner.lock();
        inner.failed.remove(id);
        inner.others.remove(id);
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

    /// Returns the latest record that meets a condition. If a later one may have been displaced, or there is none,
    /// returns the highest number that one may have.
    pub(super) fn last(&self, wanted: impl Fn(&RunRecord) -> bool) -> Result<Arc<RunRecord>, u64> {
        let inner = self.inner.lock();
        let Inner { failed, others } = &*inner;
        // Records of the other half may be displaced sooner.
        let found = [(failed, others), (others, failed)].into_iter().filter_map(|(half, other)| {
            let record = half.records.iter().rev().find(|record| wanted(record))?;
            Some((record, other.displaced))
        });
        match found.max_by_key(|(record, _)| record.number) {
            Some((record, displaced)) if record.number > displaced => Ok(record.clone()),
            Some((_, displaced)) => Err(displaced),
            None => Err(failed.displaced.max(others.displaced)),
        }
    }
}

#[cfg(test)]
mod tests;
