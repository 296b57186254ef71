//! [`Values`]: the fields that one delivery writes. Those of Pods whose changes have to wait are taken out of it
//! before it is sent; the Pods that it changed are counted, and a loop is reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use podium_pods::pod::PodView;
use podium_vocabulary::{
    Action, Event, EventType, PodKey, Write, WriteReport, WriteResult,
    authz::{Authorized, authorize},
    syntax::MAX_NOTE_BYTES,
    text,
};
use tokio::time::Instant;

use super::{
    Dispatch, Expectations, LoadedPlugin,
    breaker::{Field, HeldPod, Tripped},
    budget::not_sent,
    run_writes::RunWrites,
};
use crate::ports::{Closing, Sent, Staged, Taken};

/// The action of Events about writes that wait.
const DELAY: &str = "DelayWrites";

/// The fields that a delivery writes, with the writes to each, and the reports of the writes that are not sent.
#[must_use]
pub(super) struct Values {
    values: BTreeMap<(PodKey, Field), Value>,
    withheld: Vec<WriteReport>,
    until: Option<Instant>,
}

#[derive(Default)]
struct Value {
    /// The writes; the last one decides.
    ids: Vec<u32>,
    /// A digest of the value.
    value: u64,
    /// It never waits, because a Pod that is being deleted would wait too.
    is_removal: bool,
}

impl Values {
    /// Removes the writes from `staged` to Pods whose changes have to wait: for the breaker, or for the event of an
    /// earlier write, which may have made this change. A write stays that would not change its Pod, or that removes a
    /// finalizer, deletes or evicts.
    pub(super) fn withhold(
        expectations: &Expectations,
        plugin: &LoadedPlugin,
        subject: &PodKey,
        view: &dyn PodView,
        staged: &mut Staged,
        now: Instant,
    ) -> Self {
        let mut values: BTreeMap<_, Value> = BTreeMap::new();
        for Write { id, action } in staged.writes.iter().map(Authorized::get) {
            let (field, value) = Field::changed_by(action);
            let of = values.entry((action.pod().unwrap_or(subject).clone(), field)).or_default();
            of.ids.push(*id);
            of.value = value;
            of.is_removal = match action {
                Action::RemoveFinalizer { .. } | Action::DeletePod { .. } => true,
                Action::EvictPod { .. } => true,
                Action::DeleteObject { .. } | Action::Scale { .. } => false,
                Action::SetLabel { .. } | Action::RemoveLabel { .. } => false,
                Action::SetAnnotation { .. } | Action::RemoveAnnotation { .. } => false,
                Action::AddFinalizer { .. } | Action::ApplyObject { .. } => false,
                Action::SetCondition { .. } | Action::RemoveCondition { .. } => false,
            };
        }
        let mut stopped = BTreeSet::new();
        let mut wait = None::<Duration>;
        // How long changes of a Pod wait, and the Pod. The fields of one follow each other, and share it.
        let mut target: Option<(PodKey, Option<(Duration, HeldPod)>)> = None;
        values.retain(|(pod, field), value| {
            target.take_if(|(of, _)| of != pod);
            let (_, waits) = target.get_or_insert_with(|| {
                let looped = expectations.breaker.wait(plugin.lane, &counted(subject, pod), now);
                let left = looped.or_else(|| expectations.gates.unseen(plugin.lane, &pod.uid, view, now));
                (pod.clone(), left.map(|left| (left, HeldPod::new(view, pod))))
            });
            let Some((left, held)) = waits else { return true };
            if value.is_removal || !held.would_change(field, value.value) {
                return true;
            }
            stopped.extend(value.ids.iter().copied());
            wait = Some(wait.map_or(*left, |wait| wait.min(*left)));
            false
        });
        let mut withheld = Vec::new();
        if !stopped.is_empty() {
            let (stay, go): (Vec<_>, Vec<_>) =
                std::mem::take(&mut staged.writes).into_iter().partition(|write| !stopped.contains(&write.get().id));
            staged.writes = stay;
            if staged.writes.is_empty() {
                // Events beside writes depend on a change; the next run emits them again.
                staged.events.clear();
            }
            withheld = go.iter().map(not_sent).collect();
        }
        Self { values, withheld, until: wait.map(|wait| now + wait) }
    }
}

/// Returns the name under which changes of a Pod by runs on a subject are counted. Runs on many Pods may each write
/// to one Pod, such as a register, which is no loop.
fn counted(subject: &PodKey, pod: &PodKey) -> Arc<str> {
    if pod.uid == subject.uid { pod.uid.clone() } else { format!("{}/{}", subject.uid, pod.uid).into() }
}

impl Dispatch {
    /// Counts the Pods that were changed, and adds the writes that were withheld to the reports. Returns the Events
    /// that report loops and missing rights.
    pub(super) fn count(
        &self,
        plugin: &LoadedPlugin,
        subject: &PodKey,
        view: &dyn PodView,
        values: Values,
        sent: &mut Sent,
        run: &RunWrites,
    ) -> Vec<Authorized<Event>> {
        let now = Instant::now();
        let mut events = Vec::new();
        let Values { values, withheld, until } = values;
        let results: BTreeMap<u32, &WriteResult> =
            sent.reports.iter().map(|report| (report.id, &report.result)).collect();
        let mut changed: BTreeMap<PodKey, Vec<(Field, u64)>> = BTreeMap::new();
        for ((pod, field), Value { ids, value, .. }) in values {
            let result = ids.last().and_then(|id| results.get(id));
            if !matches!(result, Some(WriteResult::Applied | WriteResult::Unknown)) {
                continue;
            }
            if matches!(result, Some(WriteResult::Applied)) && pod == *subject {
                run.applied(field.clone(), value);
            }
            changed.entry(pod).or_default().push((field, value));
        }
        for (pod, fields) in changed {
            let digests: Vec<_> = fields.iter().map(|(field, value)| (field.digest(), *value)).collect();
            let tripped = self.expectations.breaker.changed(plugin.lane, &counted(subject, &pod), &digests, now);
            let field =
                |of: &Tripped| fields.iter().find(|(field, _)| field.digest() == of.field).map(|(field, _)| field);
            if let Some((tripped, field)) = tripped.and_then(|of| Some((of, field(&of)?))) {
                events.extend(self.report_loop(plugin, &pod, view, field, tripped));
            }
        }
        events.extend(sent.closings.iter().filter_map(|closing| report_closing(plugin, subject, closing)));
        events.extend(sent.taken.iter().filter_map(|taken| report_taken(plugin, subject, taken)));
        if let Some(until) = until {
            plugin.status.writes_withheld.add(withheld.len() as u64);
            run.withheld(until);
            // Another write that failed has its own back-off.
            if sent.reports.iter().all(|report| report.result.is_settled()) {
                sent.retry_after = sent.retry_after.max(Some(until.saturating_duration_since(now)));
            }
            sent.reports.extend(withheld);
            sent.reports.sort_by_key(|report| report.id);
        }
        events
    }

    /// Reports a Pod whose changes wait from now on. Returns the Event, if the plugin may send Events.
    fn report_loop(
        &self,
        plugin: &LoadedPlugin,
        pod: &PodKey,
        view: &dyn PodView,
        field: &Field,
        tripped: Tripped,
    ) -> Option<Authorized<Event>> {
        let counterpart = self.counterpart(plugin, pod, view, field, tripped);
        plugin.status.looped(field.kind.name(), &counterpart);
        self.expectations.breaker.name(plugin.lane, pod, field, &counterpart);
        tracing::warn!(
            object = %pod, field = %field, counterpart,
            "a plugin changed a Pod more than 10 times within a minute; further changes wait 1 s to 1 min"
        );
        let note = format!(
            "{} changed Pod {pod} more than 10 times within a minute, most often {field}, whose other values are from \
             {counterpart}. Further changes wait 1 s to 1 min.",
            plugin.spec.id,
        );
        warning(plugin, pod, "WriteLoop", DELAY, note)
    }

    /// Returns who sent the value that the plugin has just replaced.
    fn counterpart(
        &self,
        plugin: &LoadedPlugin,
        pod: &PodKey,
        view: &dyn PodView,
        field: &Field,
        tripped: Tripped,
    ) -> String {
        let replaced = HeldPod::new(view, pod).value(field);
        let Some(replaced) = replaced.filter(|replaced| Some(*replaced) != tripped.earlier) else {
            return "the plugin itself".to_owned();
        };
        let other = self.expectations.breaker.sender_of(replaced, plugin.lane, &pod.uid, field.digest());
        let other = other.and_then(|lane| self.registry.get(lane));
        other.map_or_else(|| "another manager".to_owned(), |other| other.spec.id.to_string())
    }
}

/// Reports that writes of one kind are not sent for a time because the plugin has no right to them. Returns the Event
/// about the first such time.
fn report_closing(plugin: &LoadedPlugin, subject: &PodKey, closing: &Closing) -> Option<Authorized<Event>> {
    let Closing { verb, resource, namespace, wait, is_first } = closing;
    let namespace = namespace.as_deref().unwrap_or_default();
    let seconds = wait.as_secs();
    plugin.status.closings.add(1);
    tracing::warn!(
        verb,
        resource,
        namespace,
        seconds,
        "the plugin's account has no right to a write; such writes are not sent for a time"
    );
    let note = format!("The account of {} may not {verb} {resource} in namespace {namespace:?}.", plugin.spec.id);
    is_first.then(|| warning(plugin, subject, "WriteForbidden", DELAY, note)).flatten()
}

/// Reports fields that an apply took from other managers. The Event for the same fields of an object is sent once.
fn report_taken(plugin: &LoadedPlugin, subject: &PodKey, taken: &Taken) -> Option<Authorized<Event>> {
    let Taken { object, message } = taken;
    let note = format!("{} applied {object} with force: {message}", plugin.spec.id);
    if let Some(count) = plugin.repeats.occurred("taken", &note, subject, Instant::now()) {
        tracing::warn!(object = %object, count, message, "an apply took fields of other managers (force: true)");
    }
    warning(plugin, subject, "FieldsTaken", "TakeFields", note)
}

/// Returns an Event of the plugin; `None` if it may not send Events.
fn warning(plugin: &LoadedPlugin, pod: &PodKey, reason: &str, action: &str, note: String) -> Option<Authorized<Event>> {
    let event = Event {
        target: pod.clone(),
        event_type: EventType::Warning,
        reason: reason.to_owned(),
        action: action.to_owned(),
        note: text::bounded(&note, MAX_NOTE_BYTES),
    };
    authorize(&plugin.spec.scope(), &plugin.spec.grants, event).ok()
}
