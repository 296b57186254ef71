//! The environment behind the host calls: Pods, objects and state in memory, and the writes that the present run has
//! staged.

use std::{collections::BTreeMap, time::Duration};

use podium_vocabulary::{self as vocabulary, Action, ObjectOwner as Owned, Write as StagedWrite};
use podium_wire::{Owner, Pod, Section, SectionBytes, SectionSet, Timestamp, Workload, refusal};
use serde_json::{Value, json};

use super::{Emitted, LogLine, NOW, Write, authz, configuration::Configuration, full, wake::Change};
use crate::{
    CallError, Event, EventType, ObjectOwner, ObjectRef, PodKey, WriteReport, WriteResult,
    host::Page,
    pods::Query,
    state::{Entry, PutError},
};

/// The most Pods of a page, regardless of the requested size. It is small, so that tests with few Pods use several
/// pages.
const PAGE: usize = 3;

/// How often the host reports a repeated Event to the API server.
const SERIES: Duration = Duration::from_secs(360);

/// The most controllers above a Pod that the host follows.
const MAX_CONTROLLERS: usize = 8;

/// A Pod's namespace and name.
pub(super) type Name = (String, String);

#[derive(Debug, Default)]
pub(super) struct Fake {
    pub(super) configuration: Configuration,
    /// The objects of inputs; `None` for one that does not exist.
    pub(super) inputs: BTreeMap<String, Option<Value>>,
    pub(super) now: Timestamp,
    pub(super) pods: BTreeMap<Name, Pod>,
    pub(super) gone: BTreeMap<Name, Gone>,
    /// Those since the latest run on their Pods.
    pub(super) changes: Vec<Change>,
    /// Groups that changes before these have woken the plugin for, with the state of a Pod in each.
    pub(super) woken_groups: Vec<(vocabulary::PodKey, Pod)>,
    pub(super) objects: BTreeMap<ObjectRef, Value>,
    /// The controllers of Pods' controllers, by the uid of the controlled object.
    pub(super) controllers: BTreeMap<String, Owner>,
    pub(super) state: BTreeMap<String, Entry<Vec<u8>>>,
    /// The result of every write, which is then not executed.
    pub(super) answer: Option<WriteResult>,
    /// Why the latest refused call of the run was refused.
    pub(super) refusal: Option<String>,
    revision: u64,
    state_version: u64,
    next_id: u32,
    /// Writes and Events of the run, including those that were refused after parsing.
    taken_writes: u32,
    /// Host calls of the run.
    pub(super) taken_calls: u32,
    /// The Pod of the run.
    subject: Option<PodKey>,
    staged: Vec<StagedWrite>,
    staged_events: Vec<(PodKey, Event)>,
    /// Events that the API server has, and when this host last sent them; `None` for Events from before a restart.
    sent_events: BTreeMap<EventIdentity, Option<Timestamp>>,
    pub(super) writes: Vec<Write>,
    pub(super) events: Vec<Emitted>,
    pub(super) reports: Vec<WriteReport>,
    pub(super) logs: Vec<LogLine>,
    /// The number of Pods that cached reads of this run returned.
    pub(super) pods_read: usize,
}

/// A Pod that is gone.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) uid: String,
    /// `None` if the host was restarted since.
    pub(super) last: Option<Pod>,
}

/// Identifies an Event: the Pod's uid, whether it is a warning, reason, action and note.
type EventIdentity = (String, bool, String, String, String);

impl Fake {
    pub(super) fn new() -> Self {
        Self { now: NOW, ..Self::default() }
    }

    /// Stores a state of a Pod as a new revision.
    pub(super) fn put(&mut self, mut pod: Pod) {
        self.revision += 1;
        pod.header.resource_version = self.revision.to_string();
        let name = (pod.header.namespace.clone(), pod.header.name.clone());
        let before = self.pods.insert(name.clone(), pod.clone());
        self.changes.push(Change { name, before, after: Some(pod) });
    }

    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(pod) = self.pods.remove(name) {
            self.gone.insert(name.clone(), Gone { uid: pod.header.uid.clone(), last: Some(pod.clone()) });
            self.changes.push(Change { name: name.clone(), before: Some(pod), after: None });
        }
    }

    pub(super) fn readable(&self, namespace: &str, name: &str) -> Option<Vec<u8>> {
        let sections = self.configuration.readable().filter(|_| self.configuration.scope.contains(namespace))?;
        Some(record(self.pods.get(&(namespace.to_owned(), name.to_owned()))?, sections))
    }

    /// A search needs the sections of its conditions. Without any grant of reads it finds nothing.
    pub(super) fn authorize_query(&mut self, query: &Query) -> Result<(), CallError> {
        let lacks = self.configuration.lacks(query);
        if lacks.is_empty() || self.configuration.readable().is_none() {
            return Ok(());
        }
        self.refusal = Some(refusal::search(&lacks));
        Err(CallError::NotGranted)
    }

    pub(super) fn matching<'a>(&'a self, query: &'a Query) -> impl Iterator<Item = &'a Pod> {
        let readable = self.configuration.readable().is_some();
        let labels = authz::query(query).labels;
        self.pods.values().filter(move |pod| {
            readable
                && self.configuration.scope.contains(&pod.header.namespace)
                && query.namespace.as_ref().is_none_or(|namespace| *namespace == pod.header.namespace)
                && query.node.as_ref().is_none_or(|node| pod.spec.node_name.as_ref() == Some(node))
                && query.owner_uid.as_ref().is_none_or(|owner| Workload::is_owner(owner, &pod.owners, &pod.labels))
                && query.phase.as_ref().is_none_or(|phase| pod.status.phase == *phase)
                && labels.matches(&pod.labels)
        })
    }

    pub(super) fn page(&self, query: &Query, limit: u32, after: Option<&str>) -> Page {
        let sections = self.configuration.sections();
        let cursor = |pod: &Pod| format!("{}/{}", pod.header.namespace, pod.header.name);
        let key =
            |cursor: &str| cursor.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let after = after.and_then(key);
        let behind = |pod: &&Pod| {
            after.as_ref().is_none_or(|after| (&pod.header.namespace, &pod.header.name) > (&after.0, &after.1))
        };
        let limit = PAGE.min(limit as usize);
        let mut found = self.matching(query).filter(behind);
        let mut page = Page::default();
        for pod in found.by_ref().take(limit) {
            let bytes = record(pod, sections);
            page.pods.extend((bytes.len() as u32).to_le_bytes());
            page.pods.extend(bytes);
            page.next = Some(cursor(pod));
        }
        if found.next().is_none() {
            page.next = None;
        }
        page
    }

    /// Stages a write, by the host's rules.
    pub(super) fn stage(&mut self, action: Action) -> Result<u32, CallError> {
        let write = self.authorized(action)?;
        self.take_write()?;
        Ok(self.push(write))
    }

    /// Stages an apply. A refused one counts against the limit of writes, because the host has parsed it by then.
    pub(super) fn stage_apply(&mut self, body: &Value, owner: Option<ObjectOwner<'_>>) -> Result<u32, CallError> {
        self.take_write()?;
        let object = authz::applied(body, &self.configuration)?;
        let write =
            self.authorized(Action::ApplyObject { object, body: body.clone(), owner: owner.map(Into::into) })?;
        Ok(self.push(write))
    }

    pub(super) fn stage_delete_object(&mut self, object: &ObjectRef, uid: Option<&str>) -> Result<u32, CallError> {
        let object = authz::object_ref(object, &self.configuration);
        self.stage(Action::DeleteObject { object, uid: uid.map(str::to_owned) })
    }

    pub(super) fn stage_scale(&mut self, object: &ObjectRef, replicas: u32) -> Result<u32, CallError> {
        let object = authz::scaled(object, &self.configuration);
        self.stage(Action::Scale { object, replicas })
    }

    /// Reads an object, by the host's rules.
    pub(super) fn read_object(&mut self, object: &ObjectRef) -> Result<Option<String>, CallError> {
        let read = authz::object_read(object, &self.configuration);
        let refusal = &mut self.refusal;
        authz::check(&self.configuration, read, |why| *refusal = Some(why))?;
        Ok(self.objects.get(object).map(Value::to_string))
    }

    /// Stages an Event, which counts as one of the run's writes.
    pub(super) fn stage_event(&mut self, target: &PodKey, event: &Event) -> Result<(), CallError> {
        let refusal = &mut self.refusal;
        authz::check(&self.configuration, authz::event(target, event.clone()), |why| *refusal = Some(why))?;
        self.take_write()?;
        self.staged_events.push((target.clone(), event.clone()));
        Ok(())
    }

    /// Returns a granted write, and records why another one was refused, for the message of the run's failure.
    fn authorized(&mut self, action: Action) -> Result<StagedWrite, CallError> {
        let refusal = &mut self.refusal;
        authz::check(&self.configuration, StagedWrite { id: self.next_id, action }, |why| *refusal = Some(why))
    }

    /// Counts a host call of the run; a refused one counts too, as in the host.
    pub(super) fn take_call(&mut self) -> Result<(), CallError> {
        if self.taken_calls >= self.configuration.calls {
            self.refusal = Some(refusal::used_up("hostCalls", self.configuration.calls));
            return Err(CallError::OverBudget);
        }
        self.taken_calls += 1;
        Ok(())
    }

    fn take_write(&mut self) -> Result<(), CallError> {
        if self.taken_writes >= self.configuration.writes {
            self.refusal = Some(refusal::used_up("writes", self.configuration.writes));
            return Err(CallError::OverBudget);
        }
        self.taken_writes += 1;
        Ok(())
    }

    fn push(&mut self, write: StagedWrite) -> u32 {
        self.next_id += 1;
        let id = write.id;
        self.staged.push(write);
        id
    }

    /// Executes the staged writes and returns their results.
    pub(super) fn send(&mut self) -> Vec<WriteReport> {
        // Collected before the writes, because they may delete the Pod of an Event.
        let events = std::mem::take(&mut self.staged_events);
        let events: Vec<_> = events.into_iter().filter(|(target, _)| self.is_known(target)).collect();
        let mut reports = Vec::new();
        for StagedWrite { id, action } in std::mem::take(&mut self.staged) {
            let result = match self.answer.clone() {
                Some(answer) => answer,
                None => self.apply(&action),
            };
            reports.push(WriteReport { id, description: action.describe(), result: result.clone() });
            if !matches!(result, WriteResult::Unchanged | WriteResult::NotSent) {
                self.writes.push(Write::from(action));
            }
        }
        // Events are sent with changes, or by themselves if there were no writes.
        if reports.is_empty() || reports.iter().any(|report| report.result == WriteResult::Applied) {
            for (target, event) in events {
                self.send_event(&target, event);
            }
        }
        self.reports.extend(reports.clone());
        reports
    }

    /// Returns true if an Event may be about this Pod: the Pod of the run, or an existing one. The host drops others.
    fn is_known(&self, target: &PodKey) -> bool {
        let name = (target.namespace.clone(), target.name.clone());
        self.subject.as_ref() == Some(target) || self.pods.get(&name).is_some_and(|pod| pod.header.uid == target.uid)
    }

    /// Sends a new Event. A repeat is counted, and costs a request every 6 minutes.
    fn send_event(&mut self, target: &PodKey, event: Event) {
        let warning = event.event_type == EventType::Warning;
        let identity = (target.uid.clone(), warning, event.reason.clone(), event.action.clone(), event.note.clone());
        let due = |sent: &Option<Timestamp>| sent.is_some_and(|sent| self.now.since(sent) >= SERIES);
        let sent = self.sent_events.get(&identity).is_none_or(due);
        // After a restart the host finds that the API server has the Event, and starts a new count.
        if sent || self.sent_events.get(&identity) == Some(&None) {
            self.sent_events.insert(identity, Some(self.now));
        }
        if sent {
            self.events.push(Emitted { pod: pod_name(target), event });
        }
    }

    /// Clears the state of the previous run.
    pub(super) fn begin_run(&mut self, subject: PodKey) {
        self.subject = Some(subject);
        self.next_id = 0;
        self.taken_writes = 0;
        self.taken_calls = 0;
        self.refusal = None;
        self.drop_staged();
        self.writes.clear();
        self.events.clear();
        self.reports.clear();
        self.logs.clear();
        self.pods_read = 0;
    }

    /// Clears what a host keeps in memory: state, the last states of gone Pods, and the times of Events.
    pub(super) fn restart(&mut self) {
        self.state.clear();
        self.gone.values_mut().for_each(|gone| gone.last = None);
        self.sent_events.values_mut().for_each(|sent| *sent = None);
    }

    pub(super) fn drop_staged(&mut self) {
        self.staged.clear();
        self.staged_events.clear();
    }

    fn apply(&mut self, action: &Action) -> WriteResult {
        match action {
            Action::ApplyObject { object, body, owner } => self.apply_object(object.into(), body, owner.as_ref()),
            Action::DeleteObject { object, .. } => match self.objects.remove(&object.into()) {
                Some(_) => WriteResult::Applied,
                None => WriteResult::Gone,
            },
            Action::Scale { object, replicas } => match self.objects.get_mut(&object.into()) {
                Some(object) if object["spec"]["replicas"] == *replicas => WriteResult::Unchanged,
                Some(object) => {
                    object["spec"]["replicas"] = (*replicas).into();
                    WriteResult::Applied
                }
                None => WriteResult::Gone,
            },
            action => action.pod().map_or(WriteResult::Gone, |target| self.apply_pod(target, action)),
        }
    }

    /// Returns the object at the end of the chain of controllers; the Pod if it has none, or a Node.
    fn top(&self, pod: &Pod) -> Value {
        let mut top = json!({ "apiVersion": "v1", "kind": "Pod", "name": pod.header.name, "uid": pod.header.uid });
        let mut next = pod.owners.iter().find(|owner| owner.controller);
        // A test may declare a cycle.
        for _ in 0..MAX_CONTROLLERS {
            let Some(owner) = next.filter(|owner| owner.kind != "Node") else { break };
            let Owner { api_version, kind, name, uid, .. } = owner;
            top = json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid });
            next = self.controllers.get(uid);
        }
        top
    }

    fn apply_object(&mut self, name: ObjectRef, body: &Value, owner: Option<&Owned>) -> WriteResult {
        let mut object = body.clone();
        if let Some(owner) = owner {
            // The garbage collector would delete the object at once.
            let Some(pod) = self.present(owner.pod()).filter(|pod| pod.lifecycle.deletion_timestamp.is_none()) else {
                return WriteResult::Gone;
            };
            let pod_only = Pod { owners: Vec::new(), ..pod.clone() };
            let owner = self.top(if matches!(owner, Owned::Workload(_)) { pod } else { &pod_only });
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        if self.objects.get(&name) == Some(&object) {
            return WriteResult::Unchanged;
        }
        self.objects.insert(name, object);
        WriteResult::Applied
    }

    /// Returns a Pod of this name and uid.
    fn present(&self, key: &vocabulary::PodKey) -> Option<&Pod> {
        let pod = self.pods.get(&(key.namespace.to_string(), key.name.to_string()))?;
        (*pod.header.uid == *key.uid).then_some(pod)
    }

    fn apply_pod(&mut self, target: &vocabulary::PodKey, action: &Action) -> WriteResult {
        let name = (target.namespace.to_string(), target.name.to_string());
        let Some(before) = self.present(target) else {
            return WriteResult::Gone;
        };
        let terminating = before.lifecycle.deletion_timestamp.is_some();
        if let Action::AddFinalizer { name, .. } = action
            && terminating
            && !before.lifecycle.finalizers.contains(name)
        {
            return WriteResult::Invalid("a Pod that is being deleted takes no new finalizer".to_owned());
        }
        let mut pod = before.clone();
        let deletes = change(&mut pod, action, self.now);
        let unchanged = pod == *before;
        if unchanged && !deletes {
            return WriteResult::Unchanged;
        }
        self.put(pod);
        let held = self.pods.get(&name).is_some_and(|pod| !pod.lifecycle.finalizers.is_empty());
        if (deletes || terminating) && !held {
            self.remove(&name);
        }
        WriteResult::Applied
    }

    pub(super) fn state_put(&mut self, key: &str, value: &[u8], expected: Option<u64>) -> Result<u64, PutError> {
        self.expect_version(key, expected)?;
        self.state_version += 1;
        self.state.insert(key.to_owned(), Entry { value: value.to_vec(), version: self.state_version });
        Ok(self.state_version)
    }

    pub(super) fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), PutError> {
        self.expect_version(key, expected)?;
        self.state.remove(key);
        Ok(())
    }

    fn expect_version(&self, key: &str, expected: Option<u64>) -> Result<(), PutError> {
        let there = self.state.get(key);
        let version = there.map_or(0, |entry| entry.version);
        if expected.is_none_or(|expected| expected == version) {
            Ok(())
        } else {
            Err(PutError::Conflict(there.cloned()))
        }
    }
}

pub(super) fn pod_name(key: &PodKey) -> String {
    key.to_string()
}

/// Returns the bytes that a guest would receive.
pub(super) fn record(pod: &Pod, sections: SectionSet) -> Vec<u8> {
    let whole = sections.contains(Section::Full).then(|| Pod { full: full::json(pod), ..pod.clone() });
    encoded(whole.as_ref().unwrap_or(pod), sections)
}

pub(super) fn encoded(pod: &Pod, sections: SectionSet) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "a test's own Pod of over 4 MiB, which no API server takes")]
    SectionBytes::encode(pod).and_then(|bytes| bytes.record(&pod.header, sections)).expect("a Pod that can be encoded")
}

/// Changes a Pod as the API server would. Returns true if the Pod has to be removed.
fn change(pod: &mut Pod, action: &Action, now: Timestamp) -> bool {
    match action {
        Action::SetLabel { key, value, .. } => drop(pod.labels.insert(key.clone(), value.clone())),
        Action::RemoveLabel { key, .. } => drop(pod.labels.remove(key)),
        Action::SetAnnotation { key, value, .. } => drop(pod.annotations.insert(key.clone(), value.clone())),
        Action::RemoveAnnotation { key, .. } => drop(pod.annotations.remove(key)),
        Action::AddFinalizer { name, .. } => {
            if !pod.lifecycle.finalizers.contains(name) {
                pod.lifecycle.finalizers.push(name.clone());
            }
        }
        Action::RemoveFinalizer { name, .. } => pod.lifecycle.finalizers.retain(|finalizer| finalizer != name),
        Action::SetCondition { .. } => {
            let condition = &authz::condition(action).unwrap_or_default();
            let conditions = &mut pod.status.conditions;
            match conditions.iter_mut().find(|here| here.condition_type == condition.condition_type) {
                Some(here) if here.says_the_same(condition) => {}
                Some(here) => {
                    let since = if here.status == condition.status { here.last_transition_time } else { Some(now) };
                    *here = podium_wire::Condition { last_transition_time: since, ..condition.clone() };
                }
                None => {
                    conditions.push(podium_wire::Condition { last_transition_time: Some(now), ..condition.clone() })
                }
            }
        }
        Action::RemoveCondition { condition_type, .. } => {
            pod.status.conditions.retain(|here| here.condition_type != *condition_type);
        }
        Action::DeletePod { .. } | Action::EvictPod { .. } => {
            let goes = pod.lifecycle.deletion_timestamp.is_none();
            pod.lifecycle.deletion_timestamp.get_or_insert(now);
            return goes;
        }
        Action::ApplyObject { .. } | Action::DeleteObject { .. } | Action::Scale { .. } => {}
    }
    false
}
