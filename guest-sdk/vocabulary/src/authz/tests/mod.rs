mod cases;
mod properties;
mod reference;

use serde_json::json;

use super::*;
use crate::{Action, ConditionStatus, Event, EventType, ObjectGrant, ObjectOwner, ObjectRef, WriteGrants};

fn patterns(of: &[&str]) -> Vec<KeyPattern> {
    of.iter().map(|pattern| KeyPattern((*pattern).to_owned())).collect()
}

fn pod() -> PodKey {
    PodKey::new("shop", "cart-0", "u1")
}

fn shop() -> Scope {
    Scope::Namespace("shop".into())
}

/// Everything that can be granted.
fn all() -> Grants {
    let keys = patterns(&["team", "shop.example/*", "app.kubernetes.io/name", "pod-template-hash"]);
    let write = WriteGrants {
        labels: keys.clone(),
        annotations: [keys.clone(), patterns(&["kubectl.kubernetes.io/last-applied-configuration"])].concat(),
        finalizers: keys.clone(),
        conditions: [keys, patterns(&["Ready", "DisruptionTarget"])].concat(),
        events: true,
        delete: true,
        evict: true,
        objects: vec![
            object_grant("ConfigMap", "configmaps"),
            object_grant("Pod", "pods"),
            object_grant("Namespace", "namespaces"),
            object_grant("Disguised", "pods"),
            object_grant("Devious", "configmaps/../pods"),
        ],
        forced: Vec::new(),
        scale: vec![object_grant("ReplicationController", "replicationcontrollers"), object_grant("Pod", "pods")],
    };
    Grants { read: None, read_objects: write.objects.clone(), write }
}

fn object_grant(kind: &str, resource: &str) -> ObjectGrant {
    ObjectGrant { api_version: "v1".into(), kind: kind.into(), resource: resource.into() }
}

fn refused(scope: &Scope, grants: &Grants, action: Action) -> Option<Refused> {
    authorize(scope, grants, Write { id: 0, action }).err()
}

fn label(key: &str, value: &str) -> Action {
    Action::SetLabel { target: pod(), key: key.into(), value: value.into() }
}

fn annotation(key: &str, value: &str) -> Action {
    Action::SetAnnotation { target: pod(), key: key.into(), value: value.into() }
}

fn condition(condition_type: &str, reason: &str) -> Action {
    Action::SetCondition {
        target: pod(),
        condition_type: condition_type.into(),
        status: ConditionStatus::True,
        reason: reason.into(),
        message: String::new(),
    }
}

fn config_map() -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "summary"}, "data": {}})
}

/// Returns the plural of an object's kind, as the host resolves it.
fn resource_of(body: &serde_json::Value) -> String {
    let kind = body["kind"].as_str().unwrap_or_default();
    ObjectGrant::resource(&all().write.objects, "v1", kind).unwrap_or_default().to_owned()
}

fn reference(body: &serde_json::Value) -> ObjectRef {
    ObjectRef {
        api_version: body["apiVersion"].as_str().unwrap_or_default().into(),
        kind: body["kind"].as_str().unwrap_or_default().into(),
        resource: resource_of(body),
        namespace: body["metadata"]["namespace"].as_str().map(str::to_owned),
        name: body["metadata"]["name"].as_str().unwrap_or_default().into(),
    }
}

fn apply(body: serde_json::Value, owner: Option<ObjectOwner>) -> Action {
    Action::ApplyObject { object: reference(&body), body, owner }
}

/// One of each action, granted by [`all`].
fn one_of_each() -> Vec<Action> {
    let target = pod();
    vec![
        label("team", "web"),
        Action::RemoveLabel { target: target.clone(), key: "shop.example/a".into() },
        annotation("shop.example/a", "text with spaces"),
        Action::RemoveAnnotation { target: target.clone(), key: "team".into() },
        Action::AddFinalizer { target: target.clone(), name: "shop.example/a".into() },
        Action::RemoveFinalizer { target: target.clone(), name: "shop.example/a".into() },
        condition("shop.example/Pinned", "MutableTag"),
        Action::RemoveCondition { target: target.clone(), condition_type: "shop.example/Pinned".into() },
        Action::DeletePod { target: target.clone(), grace_seconds: None },
        Action::EvictPod { target: target.clone() },
        apply(config_map(), Some(ObjectOwner::Pod(target.clone()))),
        apply(config_map(), Some(ObjectOwner::Workload(target))),
        Action::DeleteObject { object: reference(&config_map()), uid: Some("u2".into()) },
        scale("ReplicationController", "replicationcontrollers", 3),
    ]
}

fn scale(kind: &str, resource: &str, replicas: u32) -> Action {
    let object = ObjectRef { kind: kind.into(), resource: resource.into(), ..reference(&config_map()) };
    Action::Scale { object, replicas }
}

#[test]
fn without_grants_nothing_is_written() {
    for action in one_of_each() {
        assert_eq!(refused(&shop(), &all(), action.clone()), None, "{action:?}");
        assert_eq!(refused(&shop(), &Grants::default(), action.clone()), Some(Refused::NotGranted), "{action:?}");
    }
}

#[test]
fn each_grant_covers_only_its_own_verb() {
    type Withdraw = fn(&mut WriteGrants);
    let withdrawals: [(Withdraw, &[usize]); 8] = [
        (|grants| grants.labels.clear(), &[0, 1]),
        (|grants| grants.annotations.clear(), &[2, 3]),
        (|grants| grants.finalizers.clear(), &[4, 5]),
        (|grants| grants.conditions.clear(), &[6, 7]),
        (|grants| grants.delete = false, &[8]),
        (|grants| grants.evict = false, &[9]),
        (|grants| grants.objects.clear(), &[10, 11, 12]),
        (|grants| grants.scale.clear(), &[13]),
    ];
    for (withdraw, lost) in withdrawals {
        let mut grants = all();
        withdraw(&mut grants.write);
        for (index, action) in one_of_each().into_iter().enumerate() {
            let expected = lost.contains(&index).then_some(Refused::NotGranted);
            assert_eq!(refused(&shop(), &grants, action.clone()), expected, "{action:?}");
        }
    }
}

#[test]
fn a_namespaced_plugin_writes_only_to_its_own_namespace() {
    for action in one_of_each() {
        assert_eq!(refused(&Scope::Namespace("bank".into()), &all(), action.clone()), Some(Refused::NotGranted));
        assert_eq!(refused(&Scope::Cluster, &all(), action), None);
    }
}

#[test]
fn a_target_that_could_change_the_request_is_invalid() {
    let targets = [
        ("", "cart-0", "u1"),
        ("..", "cart-0", "u1"),
        ("shop/pods", "cart-0", "u1"),
        ("Shop", "cart-0", "u1"),
        ("shop", "", "u1"),
        ("shop", "..", "u1"),
        ("shop", "a/../b", "u1"),
        ("shop", "a%2fb", "u1"),
        ("shop", "cart-0?dryRun=All", "u1"),
        ("shop", "b\u{fc}cher", "u1"),
        ("shop", "Cart", "u1"),
        ("shop", "cart-0", ""),
        ("shop", "cart-0", "u 1"),
    ];
    for (namespace, name, uid) in targets {
        let target = PodKey::new(namespace, name, uid);
        let action = Action::EvictPod { target: target.clone() };
        assert!(matches!(refused(&Scope::Cluster, &all(), action), Some(Refused::Invalid(_))), "{target:?}");
        let event = Event { target, ..event("Crash", "Diagnose", "text") };
        assert!(matches!(authorize(&Scope::Cluster, &all(), event), Err(Refused::Invalid(_))));
    }
}

#[test]
fn a_reserved_key_needs_its_exact_grant_and_no_wildcard() {
    let mut grants = all();
    assert_eq!(refused(&shop(), &grants, label("app.kubernetes.io/name", "web")), None);
    assert_eq!(refused(&shop(), &grants, label("pod-template-hash", "abc")), None);
    let wildcards =
        ["app.kubernetes.io/*", "kubernetes.io/*", "statefulset.kubernetes.io/*", "*", "pod-*", "job*", "k8s.io/*"];
    grants.write.labels = patterns(&wildcards);
    for key in [
        "app.kubernetes.io/name",
        "kubernetes.io/a",
        "k8s.io/a",
        "statefulset.kubernetes.io/pod-name",
        "pod-template-hash",
        "job-name",
        "controller-uid",
        "team",
        "pod-mine",
    ] {
        assert_eq!(refused(&shop(), &grants, label(key, "web")), Some(Refused::NotGranted), "{key}");
    }
}

#[test]
fn no_grant_covers_what_belongs_to_kubectl_or_the_kubelet() {
    let key = "kubectl.kubernetes.io/last-applied-configuration";
    assert_eq!(refused(&shop(), &all(), annotation(key, "{}")), Some(Refused::NotGranted));
    let removal = Action::RemoveAnnotation { target: pod(), key: key.into() };
    assert_eq!(refused(&shop(), &all(), removal), Some(Refused::NotGranted));
    for condition_type in ["Ready", "DisruptionTarget"] {
        assert_eq!(refused(&shop(), &all(), condition(condition_type, "")), Some(Refused::NotGranted));
        let removal = Action::RemoveCondition { target: pod(), condition_type: condition_type.into() };
        assert_eq!(refused(&shop(), &all(), removal), Some(Refused::NotGranted));
    }
}

#[test]
fn values_are_held_to_the_rules_of_kubernetes() {
    let invalid = |action| matches!(refused(&shop(), &all(), action), Some(Refused::Invalid(_)));
    assert!(invalid(label("team", &"a".repeat(64))) && !invalid(label("team", &"a".repeat(63))));
    assert!(invalid(label("team", "a b")) && !invalid(label("team", "")));
    assert!(invalid(label("te am", "a")) && invalid(label("/a", "a")) && invalid(label("", "a")));
    assert!(invalid(annotation("team", &"a".repeat((64 << 10) + 1))));
    assert!(!invalid(annotation("team", &"a".repeat(64 << 10))));
    assert!(invalid(Action::AddFinalizer { target: pod(), name: "team".into() }));
    assert!(invalid(condition("shop.example/Pinned", "two words")));
    assert!(invalid(condition("shop.example/Pinned", &"a".repeat(1025))));
    assert!(!invalid(condition("shop.example/Pinned", "")));
    assert!(invalid(condition("shop.example/", "")));
}

#[test]
fn an_object_is_of_a_granted_kind_never_a_pod_and_in_scope() {
    let with = |edit: fn(&mut serde_json::Value)| {
        let mut body = config_map();
        edit(&mut body);
        body
    };
    let not_granted = |body: serde_json::Value| {
        let deletion = Action::DeleteObject { object: reference(&body), uid: None };
        assert_eq!(refused(&shop(), &all(), deletion), Some(Refused::NotGranted));
        assert_eq!(refused(&shop(), &all(), apply(body, None)), Some(Refused::NotGranted));
    };
    not_granted(with(|body| body["kind"] = "Secret".into()));
    not_granted(with(|body| body["kind"] = "Pod".into()));
    not_granted(with(|body| body["kind"] = "Disguised".into()));
    not_granted(with(|body| body["kind"] = "Devious".into()));
    not_granted(with(|body| body["apiVersion"] = "apps/v1".into()));
    not_granted(with(|body| body["metadata"]["namespace"] = "bank".into()));
    for resource in ["", "secrets", "namespaces", "configmaps/summary"] {
        let object = ObjectRef { resource: resource.into(), ..reference(&config_map()) };
        let action = Action::DeleteObject { object, uid: None };
        assert_eq!(refused(&shop(), &all(), action), Some(Refused::NotGranted), "{resource}");
    }
    // A namespaced plugin touches nothing that has no namespace, even of a granted kind.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    not_granted(namespace.clone());
    assert_eq!(refused(&Scope::Cluster, &all(), apply(namespace, None)), None);
}

#[test]
fn a_body_may_not_speak_for_the_server_or_name_another_object() {
    let hostile: [fn(&mut serde_json::Value); 10] = [
        |body| body["metadata"]["managedFields"] = json!([]),
        |body| body["metadata"]["uid"] = "u".into(),
        |body| body["metadata"]["resourceVersion"] = "1".into(),
        |body| body["metadata"]["ownerReferences"] = serde_json::Value::Null,
        |body| body["metadata"]["namespace"] = "bank".into(),
        |body| body["metadata"]["namespace"] = 1.into(),
        |body| body["metadata"]["name"] = "other".into(),
        |body| body["kind"] = "Secret".into(),
        |body| body["metadata"] = serde_json::Value::Null,
        |body| *body = json!([]),
    ];
    for edit in hostile {
        let mut body = config_map();
        edit(&mut body);
        let action = Action::ApplyObject { object: reference(&config_map()), body: body.clone(), owner: None };
        assert!(matches!(refused(&shop(), &all(), action), Some(Refused::Invalid(_))), "{body}");
    }
}

#[test]
fn an_object_has_no_reserved_key_and_no_ungranted_finalizer() {
    let verdict = |grants: &Grants, metadata: serde_json::Value| {
        let mut body = config_map();
        // The object itself may have none, whatever is granted.
        match metadata.get("finalizers") {
            Some(_) => body["spec"] = json!({"template": {"metadata": metadata}}),
            None => body["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone()),
        }
        refused(&shop(), grants, apply(body, None))
    };
    let mut grants = Grants::default();
    grants.write.objects = all().write.objects;
    for metadata in [
        json!({"labels": {"team": "web", "shop.example/a": "b"}, "annotations": {"note": "any"}}),
        json!({"labels": null, "annotations": null}),
        json!({"labels": null, "annotations": null, "finalizers": null}),
        json!({"finalizers": []}),
    ] {
        assert_eq!(verdict(&grants, metadata), None);
    }
    let reserved = [
        json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}),
        json!({"labels": {"pod-template-hash": "x"}}),
        json!({"annotations": {"control-plane.alpha.kubernetes.io/leader": "x"}}),
        json!({"finalizers": ["kubernetes.io/pvc-protection"]}),
        json!({"finalizers": ["bank.example/hold"]}),
        json!({"finalizers": ["shop.example/a", "bank.example/hold"]}),
    ];
    let never = [
        json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}),
        json!({"annotations": {"podium.dev/applied-0123": "x"}}),
        json!({"labels": {"podium.dev/applied-0123": "x"}}),
    ];
    for metadata in reserved.iter().chain(&never) {
        assert_eq!(verdict(&grants, metadata.clone()), Some(Refused::NotGranted), "{metadata}");
    }
    // As on Pods an exact grant covers a reserved key, and a wildcard does not.
    let keys = ["app.kubernetes.io/managed-by", "pod-template-hash", "control-plane.alpha.kubernetes.io/leader"];
    let finalizers = ["kubernetes.io/pvc-protection", "bank.example/*", "shop.example/a"];
    grants.write.labels = patterns(&keys);
    grants.write.annotations = patterns(&keys);
    grants.write.finalizers = patterns(&finalizers);
    for metadata in reserved {
        assert_eq!(verdict(&grants, metadata.clone()), None, "{metadata}");
    }
    let wide = ["podium.dev/*", "app.kubernetes.io/*", "podium.dev/applied-0123"];
    grants.write.labels = patterns(&wide);
    grants.write.annotations = patterns(&wide);
    for metadata in never.into_iter().chain([json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}})]) {
        assert_eq!(verdict(&grants, metadata.clone()), Some(Refused::NotGranted), "{metadata}");
    }
    for metadata in [
        json!({"labels": []}),
        json!({"annotations": "x"}),
        json!({"labels": {"KUBERNETES.IO/a": "b"}}),
        json!({"finalizers": {}}),
        json!({"finalizers": [1]}),
        json!({"finalizers": ["orphan"]}),
    ] {
        assert!(matches!(verdict(&grants, metadata.clone()), Some(Refused::Invalid(_))), "{metadata}");
    }
}

#[test]
fn no_grant_permits_a_finalizer_of_the_object_itself() {
    let mut body = config_map();
    body["metadata"]["finalizers"] = json!(["shop.example/a"]);
    let refused = refused(&shop(), &all(), apply(body, None));
    assert!(matches!(&refused, Some(Refused::Invalid(why)) if why.contains("finalizer to the Pod")), "{refused:?}");
}

#[test]
fn an_owner_is_in_the_namespace_of_what_it_owns() {
    let foreign = PodKey::new("bank", "cart-0", "u1");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    for owner in [ObjectOwner::Pod, ObjectOwner::Workload] {
        for (body, pod) in [(config_map(), foreign.clone()), (namespace.clone(), pod())] {
            let refused = refused(&Scope::Cluster, &all(), apply(body, Some(owner(pod))));
            assert!(matches!(refused, Some(Refused::Invalid(_))), "{refused:?}");
        }
    }
}

fn event(reason: &str, action: &str, note: &str) -> Event {
    let reason = reason.into();
    let action = action.into();
    let note = note.into();
    Event { target: pod(), event_type: EventType::Warning, reason, action, note }
}

#[test]
fn an_event_is_granted_in_scope_and_within_bounds() {
    assert!(authorize(&shop(), &all(), event("CrashLoop", "Diagnose", "text")).is_ok());
    assert_eq!(authorize(&shop(), &Grants::default(), event("A", "B", "c")), Err(Refused::NotGranted));
    assert_eq!(authorize(&Scope::Namespace("bank".into()), &all(), event("A", "B", "c")), Err(Refused::NotGranted));
    let long = "A".repeat(129);
    let note = "n".repeat(1025);
    for (reason, action, text) in [
        ("", "B", "c"),
        ("crash", "B", "c"),
        ("A b", "B", "c"),
        ("A", "", "c"),
        (&long, "B", "c"),
        ("A", "B", ""),
        ("A", "B", &note),
    ] {
        let verdict = authorize(&shop(), &all(), event(reason, action, text));
        assert!(matches!(verdict, Err(Refused::Invalid(_))), "{reason} {action}");
    }
}

#[test]
fn a_refusal_quotes_hostile_text_in_one_short_line() {
    let nasty = format!("a\nlevel=error \u{1b}[2J\u{202e}{}", "x".repeat(100_000));
    let target = || PodKey::new("shop", "cart-0", &nasty);
    let named = |field: &str| {
        let mut body = config_map();
        body["metadata"][field] = if field == "name" { json!(nasty) } else { json!({ &nasty: &nasty }) };
        let object = ObjectRef { name: nasty.clone(), ..reference(&config_map()) };
        let object = if field == "name" { object } else { reference(&config_map()) };
        Action::ApplyObject { object, body, owner: None }
    };
    let mut actions = vec![
        label(&nasty, "x"),
        label("team", &nasty),
        annotation(&nasty, "x"),
        condition(&nasty, "x"),
        condition("shop.example/a", &nasty),
        Action::AddFinalizer { target: pod(), name: nasty.clone() },
        Action::DeletePod { target: target(), grace_seconds: None },
        Action::EvictPod { target: PodKey::new(&nasty, "cart-0", "u1") },
        Action::EvictPod { target: PodKey::new("shop", &nasty, "u1") },
        Action::DeleteObject { object: reference(&config_map()), uid: Some(nasty.clone()) },
    ];
    actions.extend(["name", "labels", "annotations", &nasty].map(named));
    let refusals = actions.into_iter().map(|action| refused(&shop(), &all(), action).unwrap());
    let events = [event(&nasty, "A", "x"), event("A", &nasty, "x")];
    let events = events.map(|event| authorize(&shop(), &all(), event).unwrap_err());
    for refusal in refusals.chain(events) {
        let Refused::Invalid(text) = &refusal else { unreachable!("{refusal:?}") };
        assert!(!text.contains(|of: char| of.is_control() || of == '\u{202e}') && text.len() < 1_000, "{text}");
    }
}

#[test]
fn a_refusal_names_the_key_and_what_is_granted_or_the_scope() {
    let grants = Grants {
        write: WriteGrants { labels: patterns(&["team", "shop.example/*"]), ..WriteGrants::default() },
        ..Grants::default()
    };
    let why = |scope: &Scope, action: Action| {
        let mut why = String::new();
        let refused = authorize_or(scope, &grants, Write { id: 0, action }, |reason| why = reason);
        assert_eq!(refused.unwrap_err(), Refused::NotGranted);
        why
    };
    let elsewhere = Scope::Namespace("bank".into());
    for (scope, action, expected) in [
        (shop(), label("owner", "x"), "add owner to spec.grants.write.labels, which has [team, shop.example/*]"),
        (shop(), annotation("owner", "x"), "add owner to spec.grants.write.annotations, which is empty"),
        (shop(), Action::EvictPod { target: pod() }, "the call needs spec.grants.write.evict: true"),
        (elsewhere.clone(), label("team", "x"), "the Pod shop/cart-0 is outside of the namespace bank"),
        (elsewhere, label("owner", "x"), "add owner to spec.grants.write.labels"),
    ] {
        assert!(why(&scope, action).starts_with(expected), "{expected}");
    }
}

fn read(scope: &Scope, grants: &Grants, kind: &str, namespace: Option<&str>) -> (Option<Refused>, String) {
    let body = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "namespace": namespace, "name": "summary" } });
    let mut why = String::new();
    let read = authorize_or(scope, grants, ObjectRead(reference(&body)), |reason| why = reason);
    (read.err(), why)
}

#[test]
fn an_object_is_read_in_scope_and_by_the_grant_of_its_kind() {
    let granted = (None, String::new());
    assert_eq!(read(&shop(), &all(), "ConfigMap", Some("shop")), granted);
    assert_eq!(read(&Scope::Cluster, &all(), "ConfigMap", Some("shop")), granted);
    assert_eq!(read(&Scope::Cluster, &all(), "Namespace", None), granted);
    for (scope, grants, namespace, expected) in [
        (shop(), Grants { read_objects: Vec::new(), ..all() }, Some("shop"), "add v1 ConfigMap to spec.grants.read"),
        (shop(), all(), Some("bank"), "v1 ConfigMap bank/summary is outside of the namespace shop"),
        (shop(), all(), None, "v1 ConfigMap /summary is outside of the namespace shop"),
    ] {
        let (refused, why) = read(&scope, &grants, "ConfigMap", namespace);
        assert_eq!(refused, Some(Refused::NotGranted));
        assert!(why.starts_with(expected), "{why}");
    }
    let other_kind = read(&shop(), &all(), "Service", Some("shop"));
    assert_eq!(other_kind.0, Some(Refused::NotGranted));
    let mut only_writes = all();
    only_writes.read_objects.clear();
    assert_eq!(refused(&shop(), &only_writes, apply(config_map(), None)), None, "each grant covers its calls only");
    let only_reads = Grants { write: WriteGrants::default(), ..all() };
    assert_eq!(refused(&shop(), &only_reads, apply(config_map(), None)), Some(Refused::NotGranted));
}

#[test]
fn pods_and_secrets_are_never_read_as_objects() {
    let mut grants = all();
    grants.read_objects.extend([object_grant("Secret", "secrets"), object_grant("Hidden", "secrets")]);
    for kind in ["Pod", "Secret"] {
        assert!(matches!(read(&shop(), &grants, kind, Some("shop")).0, Some(Refused::Invalid(_))), "{kind}");
    }
    for (kind, resource) in [("Disguised", "pods"), ("Hidden", "secrets"), ("Devious", "configmaps/../pods")] {
        let object = ObjectRef { kind: kind.into(), resource: resource.into(), ..reference(&config_map()) };
        assert_eq!(authorize(&shop(), &grants, ObjectRead(object)).err(), Some(Refused::NotGranted), "{kind}");
    }
}

#[test]
fn replicas_are_set_by_the_grant_of_the_kind_only() {
    let config_maps = scale("ConfigMap", "configmaps", 1);
    assert_eq!(refused(&shop(), &all(), config_maps.clone()), Some(Refused::NotGranted), "granted to be applied");
    assert_eq!(refused(&Scope::Cluster, &all(), scale("Pod", "pods", 1)), Some(Refused::NotGranted));
    let most = scale("ReplicationController", "replicationcontrollers", 2_147_483_647);
    assert_eq!(refused(&shop(), &all(), most), None);
    let too_many = scale("ReplicationController", "replicationcontrollers", 2_147_483_648);
    assert!(matches!(refused(&shop(), &all(), too_many), Some(Refused::Invalid(_))));
    let mut why = String::new();
    let write = Write { id: 0, action: config_maps };
    assert!(authorize_or(&shop(), &all(), write, |reason| why = reason).is_err());
    assert!(why.starts_with("add v1 ConfigMap to spec.grants.write.scale, which has [v1 Repl"), "{why}");
}
