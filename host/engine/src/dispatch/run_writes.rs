//! [`RunWrites`]: what one run sent, by `commit` and at its end.
//!
//! It decides whether the events that came during a run are the run's own: if the Pod's new state is the state that the
//! run saw plus exactly the values that the run sent, the plugin learns nothing from another run, and a run that failed
//! keeps its back-off. Any other difference, such as an annotation that a webhook added, is a change by others.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_pods::pod::CachedPod;
use podium_vocabulary::{PodKey, Revision, WriteReport, json};
use podium_wire::Section;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    breaker::{Field, HeldPod},
    records::{self, TraceOfRun},
};
use crate::{
    ports::{Expectation, Shown, Subject, TRACED_WRITES, Trace, WriteTime},
    status::{ATTEMPTS, is_refusal},
};

/// The most refused writes of one run that are recorded as failures.
const NOTED_WRITES: usize = 8;

#[derive(Debug)]
pub(super) struct RunWrites {
    /// The state of the Pod with which the run began; `None` if it was gone.
    saw: Option<Arc<CachedPod>>,
    /// The attempts of the key since the API server refused one of its writes, without this run.
    attempts: u32,
    /// `None` if runs are not traced.
    trace: Option<Trace>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The digests of the values that the API server took for the run's own Pod.
    applied: BTreeMap<Field, u64>,
    /// When the first of the values may be sent that were withheld.
    until: Option<Instant>,
    /// The writes that the API server refused, by a commit or at the end, and that no later one of the run settled.
    refused: Vec<WriteReport>,
    /// The first results, and how many there are.
    results: (Vec<WriteReport>, u32),
    /// The revision of the run's Pod that its writes made; 0 without one.
    revision: Revision,
    /// The times of the first writes; empty if runs are not traced.
    times: Vec<WriteTime>,
}

impl RunWrites {
    pub(super) fn new(subject: &Subject, attempts: u32) -> Self {
        let saw = match subject {
            Subject::Present(pod) => Some(pod.clone()),
            Subject::Deleted(_) => None,
        };
        Self { saw, attempts, trace: None, inner: Mutex::default() }
    }

    /// Returns the same, with the trace of the run.
    pub(super) fn traced(self, trace: Option<Trace>) -> Self {
        Self { trace, ..self }
    }

    pub(super) fn trace(&self) -> Option<Trace> {
        self.trace
    }

    /// Returns the trace of the run with the times of its writes.
    pub(super) fn take_trace(&self) -> Option<TraceOfRun> {
        self.trace.map(|trace| TraceOfRun { id: trace.id, times: std::mem::take(&mut self.inner.lock().times) })
    }

    /// Records when writes were sent.
    pub(super) fn timed(&self, times: &[WriteTime]) {
        let first = times.iter().filter(|time| time.id < TRACED_WRITES);
        self.inner.lock().times.extend(first);
    }

    /// Records the results of writes that were sent.
    pub(super) fn sent(&self, reports: &[WriteReport]) {
        self.note(reports);
        let refused = &mut self.inner.lock().refused;
        for report in reports {
            refused.retain(|before| before.description != report.description);
            if is_refusal(&report.result) && refused.len() < NOTED_WRITES {
                refused.push(report.clone());
            }
        }
    }

    /// Records results for the run's record.
    pub(super) fn note(&self, reports: &[WriteReport]) {
        let (listed, count) = &mut self.inner.lock().results;
        *count = count.saturating_add(u32::try_from(reports.len()).unwrap_or(u32::MAX));
        listed.extend(reports.iter().take(records::WRITES.saturating_sub(listed.len())).map(|report| {
            let mut report = report.clone();
            records::cut(&mut report.description);
            report.result.text_mut().into_iter().for_each(records::cut);
            report
        }));
    }

    /// Records the revisions that writes to the run's own Pod made.
    pub(super) fn shown(&self, subject: &PodKey, written: &[Expectation]) {
        let inner = &mut *self.inner.lock();
        for Expectation { key, shown } in written {
            if let (true, Shown::Revision(revision)) = (key.uid == subject.uid, shown) {
                inner.revision = inner.revision.max(*revision);
            }
        }
    }

    /// Returns the first results of writes, how many there are, and the revision that the run's writes to its Pod made.
    pub(super) fn take_results(&self) -> (Vec<WriteReport>, u32, Revision) {
        let mut inner = self.inner.lock();
        let (listed, count) = std::mem::take(&mut inner.results);
        (listed, count, inner.revision)
    }

    /// Returns the revision of the Pod that the run read; 0 if it was gone.
    pub(super) fn read(&self) -> Revision {
        self.saw.as_ref().map_or(Revision(0), |pod| pod.revision)
    }

    /// Returns the attempts of the key since the API server refused one of its writes, this run included; 0 if it did
    /// not, or the run `settled` everything. Also returns the writes that are failures now: those that attempts did not
    /// settle, or that no attempt follows because the key is `done`.
    pub(super) fn attempts(&self, settled: bool, done: bool) -> (u32, Vec<WriteReport>) {
        let refused = std::mem::take(&mut self.inner.lock().refused);
        if refused.is_empty() && (self.attempts == 0 || settled) {
            return (0, refused);
        }
        let attempts = self.attempts.saturating_add(1);
        (attempts, if attempts >= ATTEMPTS || done { refused } else { Vec::new() })
    }

    /// Records a value of the run's own Pod that the API server took.
    pub(super) fn applied(&self, field: Field, value: u64) {
        self.inner.lock().applied.insert(field, value);
    }

    /// Records that a value is not sent before this time.
    pub(super) fn withheld(&self, until: Instant) {
        let earlier = &mut self.inner.lock().until;
        *earlier = Some(earlier.map_or(until, |earlier| earlier.min(until)));
    }

    /// Returns how long the key waits for the values that were withheld.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.inner.lock().until.map(|until| until.saturating_duration_since(now))
    }

    /// Returns true if this newer state of the Pod differs from the one that the run saw, and only by what it sent.
    pub(super) fn explain(&self, new: &Arc<CachedPod>) -> bool {
        let inner = self.inner.lock();
        let Some(old) = self.saw.as_ref().filter(|old| old.key == new.key && old.revision != new.revision) else {
            return false;
        };
        let held = HeldPod::from(Arc::clone(new));
        !inner.applied.is_empty()
            && inner.applied.iter().all(|(field, value)| held.value(field) == Some(*value))
            && json_without(old, &inner.applied).is_some_and(|old| Some(old) == json_without(new, &inner.applied))
    }
}

/// Returns the Pod's JSON without its revision and without these fields; `None` if its values take too much memory.
fn json_without(pod: &CachedPod, fields: &BTreeMap<Field, u64>) -> Option<Value> {
    let mut json = json::value(&pod.section_bytes(Section::Full)).ok()?;
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    fields.keys().for_each(|field| field.remove_from(&mut json));
    // A map or a list that has become empty equals one that is absent.
    for (parent, names) in [("metadata", &["labels", "annotations", "finalizers"][..]), ("status", &["conditions"])] {
        if let Some(parent) = json.get_mut(parent).and_then(Value::as_object_mut) {
            names.iter().for_each(|name| {
                let value = parent.get(*name);
                let is_empty_map = value.and_then(Value::as_object).is_some_and(Map::is_empty);
                let is_empty_list = value.and_then(Value::as_array).is_some_and(Vec::is_empty);
                if is_empty_map || is_empty_list {
                    parent.remove(*name);
                }
            });
        }
    }
    Some(json)
}
