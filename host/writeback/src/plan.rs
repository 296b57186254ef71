//! Computes the fewest requests for the staged writes. Pure: the same writes on the same view at the same time make
//! the same plan.
//!
//! - Writes to one Pod become at most one patch of its metadata and one of its status; the last one wins per key. The
//!   order is kept where it matters: no write moves across a deletion, an eviction, or the removal of a finalizer
//!   that was staged after a condition.
//! - A write that would not change the cached Pod is reported `unchanged` and dropped. Later requests are compared
//!   with the Pod as changed by the earlier requests of the same plan.
//! - A pruned annotation is not in the cache, so its value is unknown: setting or removing it is always sent.
//! - A target that the cache does not hold, or holds with another uid, is `gone`: plugins learn of Pods only from the
//!   cache, so a Pod that it lacks no longer exists.
//!
//! Objects of other kinds are not cached, so `apply` determines whether they would change. An object whose owner is a
//! Pod that the cache does not hold, or that is being deleted, is `gone`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::{
    Action, ConditionStatus, ObjectOwner, ObjectRef, PodKey, Prune, Relation, Scope, Write, WriteResult,
    authz::Authorized,
};
use podium_wire::{Condition, Timestamp};
use serde_json::Value;

use super::owners::Reference;

/// One request to the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Request {
    PatchMeta {
        key: PodKey,
        patch: MetaPatch,
    },
    /// A condition of `None` is removed.
    PatchStatus {
        key: PodKey,
        conditions: BTreeMap<String, Option<Condition>>,
    },
    Delete {
        key: PodKey,
        grace_seconds: Option<u32>,
    },
    Evict {
        key: PodKey,
    },
    Apply {
        object: ObjectRef,
        body: Value,
        owner: Option<Owner>,
    },
    DeleteObject {
        object: ObjectRef,
        uid: Option<String>,
    },
    Scale {
        object: ObjectRef,
        replicas: u32,
    },
}

/// The owner of an applied object, as far as the cache has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Owner {
    Pod(PodKey),
    /// The top workload of the Pod.
    Workload {
        pod: PodKey,
        controller: Option<Reference>,
        /// The group of the workload's Pods.
        workload: Option<PodKey>,
    },
}

/// A key with `None` is removed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MetaPatch {
    pub labels: BTreeMap<String, Option<String>>,
    pub annotations: BTreeMap<String, Option<String>>,
    pub add_finalizers: BTreeSet<String>,
    pub remove_finalizers: BTreeSet<String>,
}

impl MetaPatch {
    fn is_empty(&self) -> bool {
        let Self { labels, annotations, add_finalizers, remove_finalizers } = self;
        labels.is_empty() && annotations.is_empty() && add_finalizers.is_empty() && remove_finalizers.is_empty()
    }
}

/// The subject of a request. Requests on one subject depend on each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Pod(PodKey),
    Object(ObjectRef),
}

impl Request {
    /// Returns the object of another kind that the request writes to.
    pub(super) fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Apply { object, .. } | Self::DeleteObject { object, .. } | Self::Scale { object, .. } => Some(object),
            Self::PatchMeta { .. } | Self::PatchStatus { .. } | Self::Delete { .. } | Self::Evict { .. } => None,
        }
    }

    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::PatchMeta { key, .. }
            | Self::PatchStatus { key, .. }
            | Self::Delete { key, .. }
            | Self::Evict { key } => Subject::Pod(key.clone()),
            Self::Apply { object, .. } | Self::DeleteObject { object, .. } | Self::Scale { object, .. } => {
                Subject::Object(object.clone())
            }
        }
    }
}

/// A request and the writes that it carries.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Planned {
    pub request: Request,
    pub ids: Vec<u32>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub requests: Vec<Planned>,
    /// The results of writes that need no request.
    pub results: BTreeMap<u32, WriteResult>,
}

/// A field's value, and the ids of the writes that set it. The last write determines the value.
type Field<T> = (T, Vec<u32>);

fn put<T>(fields: &mut BTreeMap<String, Field<T>>, key: String, value: T, id: u32) {
    let mut ids = fields.remove(&key).map(|(_, ids)| ids).unwrap_or_default();
    ids.push(id);
    fields.insert(key, (value, ids));
}

/// A request that later writes may still join.
enum Draft {
    Meta {
        key: PodKey,
        labels: BTreeMap<String, Field<Option<String>>>,
        annotations: BTreeMap<String, Field<Option<String>>>,
        /// True adds the finalizer, false removes it.
        finalizers: BTreeMap<String, Field<bool>>,
    },
    Status {
        key: PodKey,
        conditions: BTreeMap<String, Field<Option<DesiredCondition>>>,
    },
    Whole(Request, Vec<u32>),
    Apply {
        object: ObjectRef,
        body: Value,
        owner: Option<ObjectOwner>,
        ids: Vec<u32>,
    },
}

struct DesiredCondition {
    status: ConditionStatus,
    reason: String,
    message: String,
}

/// Drafts in the order of sending, and for each Pod those that later writes may still join.
#[derive(Default)]
struct Drafts {
    drafts: Vec<Draft>,
    meta: BTreeMap<PodKey, usize>,
    status: BTreeMap<PodKey, usize>,
}

impl Drafts {
    fn meta(&mut self, key: &PodKey) -> &mut Draft {
        let index = *self.meta.entry(key.clone()).or_insert(self.drafts.len());
        if index == self.drafts.len() {
            let (labels, annotations, finalizers) = Default::default();
            self.drafts.push(Draft::Meta { key: key.clone(), labels, annotations, finalizers });
        }
        &mut self.drafts[index]
    }

    fn status(&mut self, key: &PodKey) -> &mut Draft {
        let index = *self.status.entry(key.clone()).or_insert(self.drafts.len());
        if index == self.drafts.len() {
            self.drafts.push(Draft::Status { key: key.clone(), conditions: BTreeMap::new() });
        }
        &mut self.drafts[index]
    }

    fn label(&mut self, target: &PodKey, key: String, value: Option<String>, id: u32) {
        if let Draft::Meta { labels, .. } = self.meta(target) {
            put(labels, key, value, id);
        }
    }

    fn annotation(&mut self, target: &PodKey, key: String, value: Option<String>, id: u32) {
        if let Draft::Meta { annotations, .. } = self.meta(target) {
            put(annotations, key, value, id);
        }
    }

    fn finalizer(&mut self, target: &PodKey, name: String, add: bool, id: u32) {
        // The Pod may be deleted with its last finalizer, so a condition that was staged before must be sent before.
        let behind = self.status.get(target) > self.meta.get(target) && self.meta.contains_key(target);
        if !add && behind {
            self.meta.remove(target);
        }
        if let Draft::Meta { finalizers, .. } = self.meta(target) {
            put(finalizers, name, add, id);
        }
    }

    fn condition(&mut self, target: &PodKey, condition_type: String, desired: Option<DesiredCondition>, id: u32) {
        if let Draft::Status { conditions, .. } = self.status(target) {
            put(conditions, condition_type, desired, id);
        }
    }

    /// Adds a request of one write. Only an equal request that directly follows joins it, and no later write to the
    /// Pod is moved before it.
    fn whole(&mut self, request: Request, id: u32) {
        if let Subject::Pod(key) = request.subject() {
            self.meta.remove(&key);
            self.status.remove(&key);
        }
        match self.drafts.last_mut() {
            Some(Draft::Whole(last, ids)) if *last == request => ids.push(id),
            _ => self.drafts.push(Draft::Whole(request, vec![id])),
        }
    }

    /// Adds an apply. Only an equal one that directly follows joins it.
    fn apply(&mut self, object: ObjectRef, body: Value, owner: Option<ObjectOwner>, id: u32) {
        match self.drafts.last_mut() {
            Some(Draft::Apply { object: last, body: of_last, owner: by, ids })
                if *last == object && *of_last == body && *by == owner =>
            {
                ids.push(id);
            }
            _ => self.drafts.push(Draft::Apply { object, body, owner, ids: vec![id] }),
        }
    }

    fn stage(&mut self, write: Write) {
        let id = write.id;
        match write.action {
            Action::SetLabel { target, key, value } => self.label(&target, key, Some(value), id),
            Action::RemoveLabel { target, key } => self.label(&target, key, None, id),
            Action::SetAnnotation { target, key, value } => self.annotation(&target, key, Some(value), id),
            Action::RemoveAnnotation { target, key } => self.annotation(&target, key, None, id),
            Action::AddFinalizer { target, name } => self.finalizer(&target, name, true, id),
            Action::RemoveFinalizer { target, name } => self.finalizer(&target, name, false, id),
            Action::SetCondition { target, condition_type, status, reason, message } => {
                self.condition(&target, condition_type, Some(DesiredCondition { status, reason, message }), id);
            }
            Action::RemoveCondition { target, condition_type } => self.condition(&target, condition_type, None, id),
            Action::DeletePod { target, grace_seconds } => {
                self.whole(Request::Delete { key: target, grace_seconds }, id);
            }
            Action::EvictPod { target } => self.whole(Request::Evict { key: target }, id),
            Action::ApplyObject { object, body, owner } => self.apply(object, body, owner, id),
            Action::DeleteObject { object, uid } => self.whole(Request::DeleteObject { object, uid }, id),
            Action::Scale { object, replicas } => self.whole(Request::Scale { object, replicas }, id),
        }
    }
}

/// The writable fields of a Pod, first as cached, then as changed by the plan. Those that may be large are decoded by
/// the first draft that compares them.
struct PodFields {
    pod: Arc<CachedPod>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Vec<String>,
    conditions: Option<BTreeMap<String, Condition>>,
    /// The grace period in seconds if the Pod is being deleted.
    going: Option<i64>,
}

impl PodFields {
    // A section that cannot be decoded counts as absent, so that too much is sent and not too little. This never
    // happens to a Pod that the cache encoded.
    fn new(pod: Arc<CachedPod>) -> Self {
        let lifecycle = pod.lifecycle().unwrap_or_default();
        let going = lifecycle.deletion_timestamp.map(|_| lifecycle.deletion_grace_period_seconds.unwrap_or(0));
        Self { pod, labels: None, annotations: None, finalizers: lifecycle.finalizers, conditions: None, going }
    }

    fn labels(&mut self) -> &mut BTreeMap<String, String> {
        self.labels.get_or_insert_with(|| self.pod.labels().unwrap_or_default())
    }

    fn annotations(&mut self) -> &mut BTreeMap<String, String> {
        self.annotations.get_or_insert_with(|| self.pod.annotations().unwrap_or_default())
    }

    fn conditions(&mut self) -> &mut BTreeMap<String, Condition> {
        let decode = || self.pod.status().unwrap_or_default().conditions;
        self.conditions
            .get_or_insert_with(|| decode().into_iter().map(|held| (held.condition_type.clone(), held)).collect())
    }

    /// Returns true if the Pod is already being deleted, within the requested grace period.
    fn goes_within(&self, grace_seconds: Option<u32>) -> bool {
        self.going.is_some_and(|going| grace_seconds.is_none_or(|asked| going <= i64::from(asked)))
    }
}

/// Returns the fields that differ from `held`, or whose cached value is not `known`, and applies them to `held`, which
/// is not asked for without fields. The ids of the others are added to `unchanged`.
fn differing<'a>(
    fields: BTreeMap<String, Field<Option<String>>>,
    held: impl FnOnce() -> &'a mut BTreeMap<String, String>,
    known: impl Fn(&str) -> bool,
    changed: &mut Vec<u32>,
    unchanged: &mut Vec<u32>,
) -> BTreeMap<String, Option<String>> {
    let mut patch = BTreeMap::new();
    if fields.is_empty() {
        return patch;
    }
    let held = held();
    for (key, (value, ids)) in fields {
        if known(&key) && held.get(&key) == value.as_ref() {
            unchanged.extend(ids);
            continue;
        }
        changed.extend(ids);
        match &value {
            Some(value) => held.insert(key.clone(), value.clone()),
            None => held.remove(&key),
        };
        patch.insert(key, value);
    }
    patch
}

/// Returns the fewest requests for the writes, in the order in which they may be sent. Takes the writes by value,
/// because an object's body may be large.
pub(super) fn plan(writes: Vec<Authorized<Write>>, view: &dyn PodView, prune: &Prune, now_millis: u64) -> Plan {
    let mut drafts = Drafts::default();
    for write in writes {
        drafts.stage(write.into_inner());
    }
    let now = Timestamp(i64::try_from(now_millis).unwrap_or(i64::MAX));
    let mut plan = Plan::default();
    let mut pods: BTreeMap<PodKey, Option<PodFields>> = BTreeMap::new();
    for draft in drafts.drafts {
        let subject = match &draft {
            Draft::Meta { key, .. } | Draft::Status { key, .. } => Some(key.clone()),
            Draft::Whole(request, _) => match request.subject() {
                Subject::Pod(key) => Some(key),
                Subject::Object(_) => None,
            },
            Draft::Apply { .. } => None,
        };
        let Some(key) = subject else {
            match draft {
                Draft::Apply { object, body, owner, ids } => match owner.map(|owner| live_owner(owner, view)) {
                    Some(None) => plan.report(ids, &WriteResult::Gone),
                    owner => {
                        let request = Request::Apply { object, body, owner: owner.flatten() };
                        plan.requests.push(Planned { request, ids });
                    }
                },
                Draft::Whole(request, ids) => plan.requests.push(Planned { request, ids }),
                Draft::Meta { .. } | Draft::Status { .. } => {}
            }
            continue;
        };
        let present = pods.entry(key.clone()).or_insert_with(|| {
            let pod = view.get(&key.namespace, &key.name).filter(|pod| pod.key == key);
            pod.map(PodFields::new)
        });
        match present {
            Some(present) => plan.settle(draft, present, prune, now),
            None => plan.report(draft.ids(), &WriteResult::Gone),
        }
    }
    plan
}

/// Returns the owner if its Pod may own an object. The garbage collector deletes an object whose owner is missing or
/// being deleted.
fn live_owner(owner: ObjectOwner, view: &dyn PodView) -> Option<Owner> {
    let key = owner.pod();
    let pod = view.get(&key.namespace, &key.name).filter(|pod| pod.key == *key)?;
    pod.lifecycle().ok().filter(|lifecycle| lifecycle.deletion_timestamp.is_none())?;
    Some(match owner {
        ObjectOwner::Pod(key) => Owner::Pod(key),
        ObjectOwner::Workload(key) => {
            let workload = pod.workload(|| pod.labels().unwrap_or_default());
            let value = workload.map(|workload| workload.owner_text());
            let group = |value: String| Relation::Workload.group(&Scope::Cluster, &key.namespace, &value);
            let workload = value.and_then(group);
            Owner::Workload { controller: Reference::of_controller(pod.owners().ok()?), workload, pod: key }
        }
    })
}

impl Draft {
    fn ids(self) -> Vec<u32> {
        fn all<T>(fields: BTreeMap<String, Field<T>>) -> Vec<u32> {
            fields.into_values().flat_map(|(_, ids)| ids).collect()
        }
        match self {
            Self::Meta { key: _, labels, annotations, finalizers } => {
                [all(labels), all(annotations), all(finalizers)].concat()
            }
            Self::Status { conditions, .. } => all(conditions),
            Self::Whole(_, ids) | Self::Apply { ids, .. } => ids,
        }
    }
}

impl Plan {
    fn report(&mut self, ids: Vec<u32>, result: &WriteResult) {
        self.results.extend(ids.into_iter().map(|id| (id, result.clone())));
    }

    fn send(&mut self, request: Request, mut ids: Vec<u32>) {
        ids.sort_unstable();
        self.requests.push(Planned { request, ids });
    }

    /// Compares a draft with the Pod and turns it into a request, or none if nothing changes.
    fn settle(&mut self, draft: Draft, present: &mut PodFields, prune: &Prune, now: Timestamp) {
        let mut changed = Vec::new();
        let mut unchanged = Vec::new();
        match draft {
            Draft::Meta { key, labels, annotations, finalizers } => {
                let known = |key: &str| !prune.cuts_annotation(key);
                let mut patch = MetaPatch {
                    labels: differing(labels, || present.labels(), |_| true, &mut changed, &mut unchanged),
                    annotations: differing(annotations, || present.annotations(), known, &mut changed, &mut unchanged),
                    ..MetaPatch::default()
                };
                for (name, (add, ids)) in finalizers {
                    if present.finalizers.contains(&name) == add {
                        unchanged.extend(ids);
                    } else if !add {
                        changed.extend(ids);
                        present.finalizers.retain(|held| *held != name);
                        patch.remove_finalizers.insert(name);
                    } else if present.going.is_some() {
                        let text = "a finalizer cannot be added to a Pod that is being deleted".to_owned();
                        self.report(ids, &WriteResult::Invalid(text));
                    } else {
                        changed.extend(ids);
                        present.finalizers.push(name.clone());
                        patch.add_finalizers.insert(name);
                    }
                }
                if !patch.is_empty() {
                    self.send(Request::PatchMeta { key, patch }, changed);
                }
            }
            Draft::Status { key, conditions: fields } => {
                let mut conditions = BTreeMap::new();
                for (condition_type, (desired, ids)) in fields {
                    let held = present.conditions();
                    let desired = desired.map(|desired| desired.condition(&condition_type, held, now));
                    if held.get(&condition_type).map(normal) == desired {
                        unchanged.extend(ids);
                        continue;
                    }
                    changed.extend(ids);
                    match &desired {
                        Some(desired) => held.insert(condition_type.clone(), desired.clone()),
                        None => held.remove(&condition_type),
                    };
                    conditions.insert(condition_type, desired);
                }
                if !conditions.is_empty() {
                    self.send(Request::PatchStatus { key, conditions }, changed);
                }
            }
            // Not about a Pod.
            Draft::Apply { .. } => {}
            Draft::Whole(request, ids) => {
                let grace = if let Request::Delete { grace_seconds, .. } = &request { *grace_seconds } else { None };
                if present.goes_within(grace) {
                    unchanged.extend(ids);
                } else {
                    self.send(request, ids);
                }
            }
        }
        self.report(unchanged, &WriteResult::Unchanged);
    }
}

/// Replaces an empty text by none: they are equal to the API server.
fn normal(condition: &Condition) -> Condition {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Condition { reason: filled(&condition.reason), message: filled(&condition.message), ..condition.clone() }
}

impl DesiredCondition {
    /// Returns the condition with its transition time, which the server does not set: it is kept while the status
    /// stays the same, and is `now` otherwise.
    fn condition(self, condition_type: &str, present: &BTreeMap<String, Condition>, now: Timestamp) -> Condition {
        let held = present.get(condition_type).filter(|held| held.status == self.status);
        let whole_second = Timestamp(now.0 - now.0.rem_euclid(1_000));
        normal(&Condition {
            condition_type: condition_type.to_owned(),
            status: self.status,
            reason: Some(self.reason),
            message: Some(self.message),
            last_transition_time: Some(held.and_then(|held| held.last_transition_time).unwrap_or(whole_second)),
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
