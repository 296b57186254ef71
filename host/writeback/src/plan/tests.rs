use std::sync::Arc;

use podium_pods::pod::Slice;
use podium_vocabulary::{Cursor, Grants, KeyPattern, PodQuery, Revision, Scope, WriteGrants, authz::authorize};
use proptest::prelude::*;

use super::*;

pub(crate) struct View(pub Vec<Arc<CachedPod>>);

impl PodView for View {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        self.0.iter().find(|pod| &*pod.key.namespace == namespace && &*pod.key.name == name).cloned()
    }
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>> {
        self.0.iter().find(|pod| &*pod.key.uid == uid).cloned()
    }
    fn search(&self, _: &PodQuery, _: usize, _: u64, _: Option<&Cursor>) -> Slice {
        Slice::default()
    }
    fn known_count(&self, _: &PodQuery) -> Option<u64> {
        Some(0)
    }
    fn revision(&self) -> Revision {
        Revision(0)
    }
}

pub(crate) fn key() -> PodKey {
    PodKey::new("shop", "cart-0", "u1")
}

/// Labels a=1, finalizer x.example/f, condition x.example/C False since the second 1.
pub(crate) fn cached(edit: fn(&mut podium_wire::Pod)) -> View {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = "cart-0".into();
    pod.header.uid = "u1".into();
    pod.header.resource_version = "5".into();
    pod.labels.insert("a".into(), "1".into());
    pod.lifecycle.finalizers.push("x.example/f".into());
    pod.status.conditions.push(Condition {
        condition_type: "x.example/C".into(),
        status: ConditionStatus::False,
        reason: Some("R".into()),
        message: None,
        last_transition_time: Some(Timestamp(1_000)),
    });
    edit(&mut pod);
    View(vec![Arc::new(CachedPod::new(&pod).unwrap())])
}

pub(crate) fn authorised(actions: impl IntoIterator<Item = Action>) -> Vec<Authorized<Write>> {
    let patterns: Vec<_> = ["a", "b", "c", "x.example/*"].map(|pattern| KeyPattern(pattern.into())).into();
    let write = WriteGrants {
        labels: patterns.clone(),
        annotations: patterns.clone(),
        finalizers: patterns.clone(),
        conditions: patterns,
        events: true,
        delete: true,
        evict: true,
        objects: vec![podium_vocabulary::ObjectGrant {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            resource: "configmaps".into(),
        }],
        forced: Vec::new(),
        scale: [("apps/v1", "Deployment", "deployments"), ("v1", "ConfigMap", "configmaps")]
            .map(|(api_version, kind, resource)| podium_vocabulary::ObjectGrant {
                api_version: api_version.into(),
                kind: kind.into(),
                resource: resource.into(),
            })
            .into(),
    };
    let grants = Grants { write, ..Grants::default() };
    let write = |(id, action)| authorize(&Scope::Cluster, &grants, Write { id, action }).unwrap();
    (0..).zip(actions).map(write).collect()
}

pub(crate) fn label(key_: &str, value: &str) -> Action {
    Action::SetLabel { target: key(), key: key_.into(), value: value.into() }
}

fn condition(status: ConditionStatus, reason: &str) -> Action {
    let condition_type = "x.example/C".into();
    let reason = reason.into();
    let message = String::new();
    Action::SetCondition { target: key(), condition_type, status, reason, message }
}

fn finalizer(add: bool, name: &str) -> Action {
    let target = key();
    let name = name.into();
    if add { Action::AddFinalizer { target, name } } else { Action::RemoveFinalizer { target, name } }
}

fn planned(view: &View, actions: impl IntoIterator<Item = Action>) -> Plan {
    plan(authorised(actions), view, &Prune::annotations(["x.example/pruned"]), 7_500)
}

#[test]
fn writes_to_one_pod_become_one_patch_and_the_last_one_wins() {
    let plan = planned(&cached(|_| ()), [label("a", "2"), label("b", "1"), label("a", "3")]);
    let labels = [("a".into(), Some("3".into())), ("b".into(), Some("1".into()))].into();
    let patch = MetaPatch { labels, ..MetaPatch::default() };
    assert_eq!(plan.requests, [Planned { request: Request::PatchMeta { key: key(), patch }, ids: vec![0, 1, 2] }]);
    assert!(plan.results.is_empty());
}

#[test]
fn an_object_is_applied_only_for_an_existing_owner() {
    let object = ObjectRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        resource: "configmaps".into(),
        namespace: Some("shop".into()),
        name: "summary".into(),
    };
    let metadata = serde_json::json!({"namespace": "shop", "name": "summary"});
    let body = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let apply = |owner: Option<PodKey>| {
        let owner = owner.map(ObjectOwner::Pod);
        Action::ApplyObject { object: object.clone(), body: body.clone(), owner }
    };
    let view = cached(|_| ());
    for owner in [None, Some(key())] {
        assert_eq!(planned(&view, [apply(owner)]).requests.len(), 1);
    }
    let going = cached(|pod| pod.lifecycle.deletion_timestamp = Some(Timestamp(1)));
    let dead = PodKey::new("shop", "cart-0", "dead");
    let other = PodKey::new("shop", "cart-1", "u1");
    for (view, owner) in [(&view, dead), (&view, other), (&going, key()), (&View(Vec::new()), key())] {
        let plan = planned(view, [apply(Some(owner))]);
        assert_eq!((plan.requests, plan.results), (Vec::new(), [(0, WriteResult::Gone)].into()));
    }
}

#[test]
fn the_body_of_an_object_is_moved_and_not_copied() {
    let object = ObjectRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        resource: "configmaps".into(),
        namespace: Some("shop".into()),
        name: "summary".into(),
    };
    let metadata = serde_json::json!({"namespace": "shop", "name": "summary"});
    let body = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}});
    let at = |body: &Value| body["data"]["k"].as_str().map(str::as_ptr);
    let before = at(&body);
    let plan = planned(&cached(|_| ()), [Action::ApplyObject { object, body, owner: None }]);
    let [Planned { request: Request::Apply { body, .. }, .. }] = &*plan.requests else { panic!("{plan:?}") };
    assert_eq!(at(body), before);
}

#[test]
fn writes_that_would_change_nothing_make_no_request() {
    let actions = [
        label("a", "1"),
        Action::RemoveLabel { target: key(), key: "b".into() },
        Action::RemoveAnnotation { target: key(), key: "b".into() },
        finalizer(true, "x.example/f"),
        finalizer(false, "x.example/g"),
        condition(ConditionStatus::False, "R"),
        Action::RemoveCondition { target: key(), condition_type: "x.example/D".into() },
    ];
    let plan = planned(&cached(|_| ()), actions);
    assert_eq!(plan.requests, []);
    assert_eq!(plan.results.len(), 7);
    assert!(plan.results.values().all(|result| *result == WriteResult::Unchanged));
}

#[test]
fn a_write_to_a_pruned_annotation_is_always_sent() {
    let annotate = |name: &str, value: Option<&str>| {
        let target = key();
        let key = format!("x.example/{name}");
        match value {
            Some(value) => Action::SetAnnotation { target, key, value: value.into() },
            None => Action::RemoveAnnotation { target, key },
        }
    };
    for (value, ids) in [(Some("1"), vec![0]), (None, vec![0])] {
        let view = cached(|pod| drop(pod.annotations.insert("x.example/other".into(), "1".into())));
        let plan = planned(&view, [annotate("pruned", value), annotate("other", Some("1")), annotate("none", None)]);
        let annotations = [("x.example/pruned".to_owned(), value.map(str::to_owned))].into();
        let patch = MetaPatch { annotations, ..MetaPatch::default() };
        assert_eq!(plan.requests, [Planned { request: Request::PatchMeta { key: key(), patch }, ids }]);
        assert_eq!(plan.results, [(1, WriteResult::Unchanged), (2, WriteResult::Unchanged)].into());
    }
}

#[test]
fn a_missing_or_recreated_target_is_gone_without_a_request() {
    for view in [View(Vec::new()), cached(|pod| pod.header.uid = "u2".into())] {
        let plan = planned(&view, [label("a", "2"), Action::EvictPod { target: key() }]);
        assert_eq!(plan.requests, []);
        assert_eq!(plan.results, [(0, WriteResult::Gone), (1, WriteResult::Gone)].into());
    }
}

fn only_condition(plan: &Plan) -> Condition {
    match &plan.requests[..] {
        [Planned { request: Request::PatchStatus { conditions, .. }, .. }] => {
            conditions["x.example/C"].clone().unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transition_time_changes_only_with_the_status() {
    let same = planned(&cached(|_| ()), [condition(ConditionStatus::False, "Other")]);
    assert_eq!(only_condition(&same).last_transition_time, Some(Timestamp(1_000)));
    let moved = planned(&cached(|_| ()), [condition(ConditionStatus::True, "R")]);
    assert_eq!(only_condition(&moved).last_transition_time, Some(Timestamp(7_000)));
}

#[test]
fn a_deletion_stays_between_what_was_staged_before_and_after_it() {
    let delete = Action::DeletePod { target: key(), grace_seconds: None };
    let plan = planned(&cached(|_| ()), [label("a", "2"), delete, label("a", "3")]);
    let ids: Vec<_> = plan.requests.iter().map(|planned| planned.ids.clone()).collect();
    assert_eq!(ids, [[0], [1], [2]]);
    assert!(matches!(plan.requests[1].request, Request::Delete { .. }));
}

#[test]
fn a_condition_is_sent_before_a_finalizer_is_removed() {
    let actions = [label("a", "2"), condition(ConditionStatus::True, "R"), finalizer(false, "x.example/f")];
    let plan = planned(&cached(|_| ()), actions);
    let ids: Vec<_> = plan.requests.iter().map(|planned| planned.ids.clone()).collect();
    assert_eq!(ids, [[0], [1], [2]]);
}

#[test]
fn a_terminating_pod_accepts_no_finalizer_or_slower_deletion() {
    let going = cached(|pod| {
        pod.lifecycle.deletion_timestamp = Some(Timestamp(9_000));
        pod.lifecycle.deletion_grace_period_seconds = Some(30);
    });
    let delete = |grace_seconds| Action::DeletePod { target: key(), grace_seconds };
    let plan = planned(&going, [finalizer(true, "x.example/g"), delete(None), delete(Some(60)), delete(Some(5))]);
    assert!(matches!(plan.results[&0], WriteResult::Invalid(_)));
    assert_eq!((&plan.results[&1], &plan.results[&2]), (&WriteResult::Unchanged, &WriteResult::Unchanged));
    assert_eq!(plan.requests.len(), 1);
    assert_eq!(plan.requests[0].request, Request::Delete { key: key(), grace_seconds: Some(5) });
}

#[test]
fn the_later_of_two_patches_builds_on_the_earlier() {
    let actions =
        [finalizer(true, "x.example/g"), condition(ConditionStatus::True, "R"), finalizer(false, "x.example/g")];
    let plan = planned(&cached(|_| ()), actions);
    assert_eq!(plan.requests.len(), 3, "{plan:?}");
}

proptest! {
    /// Sending the writes one by one and as planned must lead to the same labels and finalizers, and every write must
    /// be reported once.
    #[test]
    fn a_plan_does_what_its_writes_would_do_one_by_one(
        steps in proptest::collection::vec((0..5_u8, 0..3_usize, 0..2_u8), 0..12),
    ) {
        let view = cached(|_| ());
        let names = ["a", "b", "c"];
        let actions = steps.iter().map(|(verb, name, value)| match verb {
            0 => label(names[*name], &value.to_string()),
            1 => Action::RemoveLabel { target: key(), key: names[*name].into() },
            2 => finalizer(true, &format!("x.example/{name}")),
            3 => finalizer(false, &format!("x.example/{name}")),
            _ => condition(ConditionStatus::True, &format!("R{value}")),
        });
        let actions: Vec<Action> = actions.collect();
        let mut labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let mut finalizers = BTreeSet::from(["x.example/f".to_owned()]);
        for action in &actions {
            match action {
                Action::SetLabel { key, value, .. } => drop(labels.insert(key.clone(), value.clone())),
                Action::RemoveLabel { key, .. } => drop(labels.remove(key)),
                Action::AddFinalizer { name, .. } => drop(finalizers.insert(name.clone())),
                Action::RemoveFinalizer { name, .. } => drop(finalizers.remove(name)),
                _ => {}
            }
        }
        let plan = planned(&view, actions.clone());
        let mut ids: Vec<u32> = plan.requests.iter().flat_map(|planned| planned.ids.clone()).collect();
        ids.extend(plan.results.keys());
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..actions.len() as u32).collect::<Vec<_>>());
        let mut sent_labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let mut sent_finalizers = BTreeSet::from(["x.example/f".to_owned()]);
        for planned in &plan.requests {
            if let Request::PatchMeta { patch, .. } = &planned.request {
                for (key, value) in &patch.labels {
                    match value {
                        Some(value) => drop(sent_labels.insert(key.clone(), value.clone())),
                        None => drop(sent_labels.remove(key)),
                    }
                }
                sent_finalizers.extend(patch.add_finalizers.iter().cloned());
                sent_finalizers.retain(|name| !patch.remove_finalizers.contains(name));
            }
        }
        prop_assert_eq!((sent_labels, sent_finalizers), (labels, finalizers));
    }
}
