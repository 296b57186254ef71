//! Reports of writes that did not settle, kept for the next run of the key.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use podium_vocabulary::WriteReport;

use super::Lane;
use crate::queue::Done;

/// The most bytes of texts for one plugin. The API server chooses them, and may quote the plugin's own writes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The most reports of one plugin, of some 60 bytes each; beyond it, one of each Pod. Otherwise a plugin whose runs
/// stage 1,000 writes that fail would make the host keep 60 KB for each Pod.
const MAX_REPORTS: usize = 10_000;

/// The writes of one run that did not settle.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) reports: Vec<WriteReport>,
    /// As [`RunWrites::attempts`](super::RunWrites::attempts) returns them.
    pub(super) attempts: u32,
}

#[derive(Debug, Default)]
pub(super) struct Unsettled {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner(BTreeMap<Lane, Held>);

/// The reports of one plugin, by uid.
#[derive(Debug, Default)]
struct Held {
    of_pods: BTreeMap<Arc<str>, Reports>,
    reports: usize,
    /// The size of the reports' texts.
    bytes: usize,
}

fn bytes_of(reports: &[WriteReport]) -> usize {
    reports.iter().map(|report| report.description.len() + report.result.text().len()).sum()
}

impl Unsettled {
    /// Returns a job to the queue by `end`, and stores the reports if the key runs again. The next run reads them under
    /// the same lock, so it cannot start before they are stored.
    pub(super) fn end<T>(
        &self,
        lane: Lane,
        uid: &Arc<str>,
        reports: Reports,
        end: impl FnOnce() -> (Done, T),
    ) -> (Done, T) {
        let mut inner = self.inner.lock();
        let ended = end();
        match ended.0 {
            Done::Kept => inner.put(lane, uid, reports),
            Done::Forgotten | Done::Orphaned => drop(inner.take(lane, uid)),
        }
        ended
    }

    pub(super) fn take(&self, lane: Lane, uid: &Arc<str>) -> Reports {
        self.inner.lock().take(lane, uid)
    }

    /// Forgets a plugin that was unloaded.
    pub(super) fn forget_lane(&self, lane: Lane) {
        self.inner.lock().0.remove(&lane);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.inner.lock().0.values().map(|held| held.of_pods.len()).sum()
    }
}

impl Inner {
    /// Replaces the reports of a plugin about a Pod. Beyond [`MAX_REPORTS`] only the first stays. Beyond
    /// [`MAX_TEXT_BYTES`] for the plugin a report loses its texts; the result of the write stays.
    fn put(&mut self, lane: Lane, uid: &Arc<str>, Reports { mut reports, attempts }: Reports) {
        self.take(lane, uid);
        if reports.is_empty() && attempts == 0 {
            return;
        }
        let held = self.0.entry(lane).or_default();
        reports.truncate(MAX_REPORTS.saturating_sub(held.reports).max(1));
        reports.shrink_to_fit();
        held.reports += reports.len();
        for report in &mut reports {
            let wanted = bytes_of(std::slice::from_ref(report));
            if held.bytes + wanted > MAX_TEXT_BYTES {
                report.description = String::new();
                if let Some(text) = report.result.text_mut() {
                    *text = String::new();
                }
            } else {
                held.bytes += wanted;
            }
        }
        held.of_pods.insert(uid.clone(), Reports { reports, attempts });
    }

    fn take(&mut self, lane: Lane, uid: &Arc<str>) -> Reports {
        let Some(held) = self.0.get_mut(&lane) else { return Reports::default() };
        let reports = held.of_pods.remove(uid).unwrap_or_default();
        held.reports -= reports.reports.len();
        held.bytes -= bytes_of(&reports.reports);
        if held.of_pods.is_empty() {
            self.0.remove(&lane);
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::WriteResult;

    use super::*;

    fn report(bytes: usize) -> Reports {
        let result = WriteResult::Invalid("x".repeat(bytes));
        Reports { reports: vec![WriteReport { id: 7, description: "set label".into(), result }], attempts: 1 }
    }

    #[test]
    fn reports_are_bounded_and_each_pod_keeps_one() {
        let unsettled = Unsettled::default();
        let lane = Lane(1);
        let uid = |index: usize| -> Arc<str> { format!("u{index}").into() };
        let many = || Reports { reports: (0..1_000).flat_map(|_| report(0).reports).collect(), attempts: 1 };
        for index in (0..200).chain(0..200) {
            unsettled.inner.lock().put(lane, &uid(index), many());
        }
        let kept: Vec<_> = (0..200).map(|index| unsettled.take(lane, &uid(index)).reports.len()).collect();
        assert!(kept.iter().all(|reports| *reports >= 1), "{kept:?}");
        assert!((10_000..=10_200).contains(&kept.iter().sum::<usize>()), "{kept:?}");
        unsettled.inner.lock().put(lane, &uid(0), many());
        assert_eq!(unsettled.take(lane, &uid(0)).reports.len(), 1_000);
        assert!(unsettled.inner.lock().0.is_empty());
    }

    #[test]
    fn a_plugins_reports_have_at_most_64_kib_of_text() {
        let unsettled = Unsettled::default();
        let lane = Lane(1);
        let other = Lane(2);
        let uid = |index: usize| -> Arc<str> { format!("u{index}").into() };
        for index in 0..10_000 {
            unsettled.inner.lock().put(lane, &uid(index), report(1_000));
        }
        unsettled.inner.lock().put(other, &uid(0), report(1_000));
        assert_eq!(bytes_of(&unsettled.take(other, &uid(0)).reports), 1_009, "each plugin by itself");
        let all: Vec<_> = (0..10_000).flat_map(|index| unsettled.take(lane, &uid(index)).reports).collect();
        assert!(all.iter().all(|report| report.id == 7 && report.result.name() == "invalid"));
        assert!(bytes_of(&all) <= MAX_TEXT_BYTES && bytes_of(&all) > MAX_TEXT_BYTES - 2_000);
        assert!(unsettled.inner.lock().0.is_empty());
        unsettled.inner.lock().put(lane, &uid(0), report(1_000));
        unsettled.inner.lock().put(lane, &uid(0), report(500));
        unsettled.inner.lock().put(other, &uid(0), report(1));
        let figures = |lane| unsettled.inner.lock().0.get(&lane).map(|held| (held.reports, held.bytes));
        assert_eq!((figures(lane), figures(other)), (Some((1, 509)), Some((1, 10))));
        unsettled.forget_lane(lane);
        assert_eq!((figures(lane), figures(other)), (None, Some((1, 10))));
    }
}
