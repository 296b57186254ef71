//! [`Outbox`]: the records of runs that are to be traced, until they are sent. Bounded: what does not fit is dropped
//! and counted.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_engine::dispatch::RunRecord;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{shares::Shares, spans::count};

/// How often records are sent.
const EVERY: Duration = Duration::from_secs(5);
/// The spans with which records are sent at once, and about the most of one request.
const SPANS: usize = 512;
/// The most records that wait: what a collector that answers at the end of its deadline leaves in half a minute.
const RECORDS: usize = 2_048;
/// The most bytes of records that wait. Those that are kept as run records too count here and there.
const BYTES: usize = 4 << 20;

/// The records that wait, and the counts of those that do no longer.
#[derive(Debug, Default)]
pub struct Outbox {
    inner: Mutex<Inner>,
    is_full: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    records: VecDeque<Arc<RunRecord>>,
    bytes: usize,
    spans: usize,
    shares: Shares,
    figures: TraceFigures,
}

/// The numbers of traces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceFigures {
    /// Those that a collector accepted.
    pub exported: u64,
    /// Those beyond the rate, or beyond the tenant's share of it.
    pub rate: u64,
    /// Those for which too many others waited.
    pub queue_full: u64,
    /// Those that could not be sent.
    pub export_failed: u64,
}

impl Outbox {
    /// Adds a record, if the share of its tenant and the bounds permit it.
    pub fn keep(&self, record: Arc<RunRecord>) {
        let inner = &mut *self.inner.lock();
        if !inner.shares.take(record.plugin.payer(), Instant::now()) {
            inner.figures.rate += 1;
            return;
        }
        let bytes = inner.bytes + record.bytes();
        if inner.records.len() >= RECORDS || bytes > BYTES {
            inner.figures.queue_full += 1;
            return;
        }
        inner.bytes = bytes;
        inner.spans += count(&record);
        inner.records.push_back(record);
        if inner.spans >= SPANS {
            self.is_full.notify_one();
        }
    }

    /// Returns the numbers of traces since the start.
    #[must_use]
    pub fn figures(&self) -> TraceFigures {
        self.inner.lock().figures
    }

    /// Waits until records are to be sent: since the last time for as long as records may wait, or until they are many.
    pub(super) async fn due(&self, last: Instant) {
        tokio::select! {
            () = sleep_until(last + EVERY) => {}
            () = self.is_full.notified() => {}
        }
    }

    /// Returns the records of one request, those that came first.
    pub(super) fn take(&self) -> Vec<Arc<RunRecord>> {
        let inner = &mut *self.inner.lock();
        let mut taken = Vec::new();
        let mut spans = 0;
        while spans < SPANS
            && let Some(record) = inner.records.pop_front()
        {
            spans += count(&record);
            inner.bytes -= record.bytes();
            taken.push(record);
        }
        inner.spans -= spans;
        if inner.spans >= SPANS {
            self.is_full.notify_one();
        }
        taken
    }

    /// Counts the records of a request.
    pub(super) fn sent(&self, records: usize, is_accepted: bool) {
        let figures = &mut self.inner.lock().figures;
        let count = if is_accepted { &mut figures.exported } else { &mut figures.export_failed };
        *count += records as u64;
    }
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::PluginId;

    use super::{super::record, *};

    #[tokio::test(start_paused = true)]
    async fn records_beyond_the_rate_and_the_bounds_are_counted_by_reason() {
        let outbox = Outbox::default();
        let add = |tenant: usize| {
            let plugin = PluginId { namespace: Some(tenant.to_string().into()), name: "tidy".into() };
            outbox.keep(Arc::new(RunRecord { plugin, ..record() }));
        };
        (0..1_000).for_each(|_| add(0));
        assert_eq!(outbox.figures(), TraceFigures { rate: 800, ..TraceFigures::default() });
        // Each tenant may have one trace at once.
        (1..=RECORDS).for_each(add);
        assert_eq!(outbox.figures().queue_full, 200);
        assert!(outbox.inner.lock().bytes <= BYTES);
        let mut all = 0;
        while let taken @ 1.. = outbox.take().len() {
            assert!(taken * count(&record()) < SPANS + count(&record()), "{taken}");
            all += taken;
        }
        assert_eq!(all, RECORDS);
        let inner = outbox.inner.lock();
        assert_eq!((inner.bytes, inner.spans), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn large_records_are_bounded_by_their_bytes() {
        let outbox = Outbox::default();
        let large = RunRecord { writes: vec![record().writes[0].clone(); 1_000], ..record() };
        for tenant in 0..RECORDS {
            let plugin = PluginId { namespace: Some(tenant.to_string().into()), name: "tidy".into() };
            outbox.keep(Arc::new(RunRecord { plugin, ..large.clone() }));
        }
        assert!(outbox.figures().queue_full > 0);
        assert!(outbox.inner.lock().bytes <= BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_due_after_five_seconds_or_when_they_are_many() {
        let outbox = Outbox::default();
        let began = Instant::now();
        outbox.keep(Arc::new(record()));
        outbox.due(began).await;
        assert_eq!(began.elapsed(), EVERY);
        (0..SPANS / count(&record())).for_each(|_| outbox.keep(Arc::new(record())));
        let before = Instant::now();
        outbox.due(before).await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
