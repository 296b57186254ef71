//! The SDK's test host and the host with the same configurations and the same staged writes: both refuse the same
//! ones, with the same messages. Both read configurations with podium-config and authorize writes with
//! podium-vocabulary; this test keeps the code around these two equal.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
};

use podium_host::config::{self, Defined};
use podium_pods::testing::{NASTY, assert_clean};
use podium_sdk::{
    Condition, ObjectOwner, Outcome, Request, events, log,
    testing::{Host, pod},
    writes,
};
use podium_vocabulary::{
    self, Action, ConditionStatus, Event, EventType, ObjectRef, PluginSpec, PodKey, Refused, Write, authz::authorize,
    text,
};
use serde_json::{Value, json};

/// Returns a configuration with all fields.
fn whole() -> Value {
    json!({
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "ReconcilePlugin",
        "metadata": { "name": "all", "namespace": "shop", "labels": { "a": "b" }, "annotations": { "a": "b" } },
        "spec": {
            "source": { "file": "all.wasm" },
            "serviceAccountName": "podium",
            "phase": "before",
            "after": [],
            "watch": {
                "selector": {
                    "matchLabels": { "app": "web" },
                    "matchExpressions": [
                        { "key": "tier", "operator": "In", "values": ["gold"] },
                        { "key": "team", "operator": "Exists" },
                    ],
                },
                "sections": ["labels", "status"],
                "resyncSeconds": 600,
            },
            "grants": {
                "read": {
                    "pods": { "sections": ["labels", "status", "spec"], "live": true },
                    "objects": [{ "apiVersion": "batch/v1", "kind": "Job", "resource": "jobs" }],
                },
                "write": {
                    "labels": ["team", "shop.example/*"],
                    "annotations": ["note", "shop.example/*"],
                    "finalizers": ["shop.example/hold"],
                    "conditions": ["shop.example/Checked"],
                    "events": true,
                    "delete": true,
                    "evict": true,
                    "objects": [{ "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps" }],
                    "scale": [{ "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps" }],
                },
            },
            "limits": {
                "class": "native", "memoryMiB": 32, "cpuMillis": 20, "wallMillis": 2000, "hostCalls": 1000,
                "writes": 20, "logKiB": 16,
            },
            "config": { "threshold": 5 },
        },
    })
}

fn cluster() -> Value {
    let mut cluster = whole();
    cluster["kind"] = "ClusterReconcilePlugin".into();
    cluster["metadata"].as_object_mut().unwrap().remove("namespace");
    cluster["spec"]["serviceAccountNamespace"] = "shop".into();
    cluster
}

thread_local! {
    /// Whether a panic is an expected refusal of the test host, which is not printed.
    static ASKED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Returns the host's result for a configuration: the plugin, or every mistake as `field: message`.
fn by_the_host(yaml: &str) -> Result<PluginSpec, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plugin.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut loaded = config::load(&[file]);
    match loaded.plugins.pop() {
        Some(Defined { spec, .. }) if loaded.errors.is_empty() => Ok(spec),
        _ => Err(sorted(loaded.errors.iter().map(|error| format!("{}: {}", error.field, error.message)))),
    }
}

/// Returns the test host's result for a configuration.
fn by_the_test_host(yaml: &str) -> Result<Host, Vec<String>> {
    let host = Host::with_pods([pod("shop", "cart-0")]);
    ASKED_FOR.set(true);
    let configured = catch_unwind(AssertUnwindSafe(|| host.configured_by(yaml)));
    ASKED_FOR.set(false);
    configured.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        let mistakes = text.strip_prefix("the plugin's configuration:\n").unwrap_or(&text);
        sorted(mistakes.lines().map(str::to_owned))
    })
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

#[track_caller]
fn compare(yaml: &str) -> bool {
    let (host, test_host) = (by_the_host(yaml).err(), by_the_test_host(yaml).err());
    assert_eq!(host, test_host, "the host's verdict and the test host's on\n{yaml}");
    host.is_none()
}

/// Returns all variants of a value with one of its parts changed.
fn mutations(value: &Value) -> Vec<Value> {
    let words = ["", "*", "a b", "kubernetes.io/*", "Pod", "Ready", "shop.example/", "UPPER", "full", "-a"];
    let mut all: Vec<Value> = words.into_iter().map(Value::from).collect();
    all.extend([json!(null), json!(true), json!(0), json!(-1), json!(1e30), json!(100_000_000), json!([]), json!({})]);
    all.extend([json!(["x", 1, null, ""]), json!({ "unknown": 1 })]);
    match value {
        Value::Object(fields) => {
            let with = |key: &str, changed: Value| {
                let mut fields = fields.clone();
                fields.insert(key.to_owned(), changed);
                Value::Object(fields)
            };
            for (key, inner) in fields {
                let mut without = fields.clone();
                without.remove(key);
                all.push(Value::Object(without));
                all.extend(mutations(inner).into_iter().map(|changed| with(key, changed)));
            }
            all.push(with("unknown", json!({ "labels": ["x"] })));
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let mut without = items.clone();
                without.remove(index);
                all.push(without.into());
                all.extend(mutations(inner).into_iter().map(|changed| {
                    let mut items = items.clone();
                    items[index] = changed;
                    items.into()
                }));
            }
        }
        _ => {}
    }
    all
}

#[test]
fn the_test_host_refuses_the_same_configurations_as_the_host() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !ASKED_FOR.get() {
            loud(panic);
        }
    }));
    let (mut taken, mut refused) = (0, 0);
    for base in [whole(), cluster()] {
        assert!(compare(&base.to_string()), "the base is valid: {:?}", by_the_host(&base.to_string()).err());
        // An empty file has no plugin for the host, and nothing to test.
        for mutation in mutations(&base).into_iter().filter(|mutation| !mutation.is_null()) {
            if compare(&mutation.to_string()) { taken += 1 } else { refused += 1 }
        }
    }
    assert!(taken > 50 && refused > 500, "{taken} taken and {refused} refused say little");
    for pattern in ["*", "a*", "a/*", "a/b*", "a/*b", "*/a", "a/**", "k8s.io/*", "x.k8s.io/a*", "k8s.io/a", "A/b", "a/"]
    {
        for field in ["labels", "annotations", "finalizers", "conditions"] {
            let mut base = whole();
            base["spec"]["grants"]["write"][field] = json!([pattern]);
            compare(&base.to_string());
        }
    }
    let forbidden = "kubectl.kubernetes.io/last-applied-configuration";
    for (field, key) in [("annotations", forbidden), ("labels", forbidden), ("conditions", "PodScheduled")] {
        let mut base = whole();
        base["spec"]["grants"]["write"][field] = json!([key]);
        compare(&base.to_string());
    }
    // The maximum numbers of values and requirements of a selector, and one more.
    for (values, expressions, valid) in [(64, 31, true), (65, 31, false), (64, 32, false), (65, 32, false)] {
        let mut base = whole();
        let values: Vec<String> = (0..values).map(|at| format!("v{at}")).collect();
        let expression = json!({ "key": "tier", "operator": "NotIn", "values": values });
        base["spec"]["watch"]["selector"]["matchExpressions"] = vec![expression; expressions].into();
        assert_eq!(compare(&base.to_string()), valid);
    }
    // Differences in YAML syntax: indentation, kinds of scalars, duplicates.
    let head = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: a }\n";
    for (rest, valid) in [
        ("spec:\n  source: { file: a.wasm }\n  grants:\n  write: { labels: [team] }\n", false),
        ("spec:\n  source: { file: a.wasm }\n  grants:\n    write: { labels: [team] }\n", true),
        ("spec:\n  source: { file: a.wasm }\nwatch: { sections: [labels] }\n", false),
        ("spec: { source: { file: 1 } }\n", false),
        ("spec: { source: { file: '1' }, config: { 1: yes, on: ~ } }\n", true),
        ("spec: { source: { file: a, file: b } }\n", false),
    ] {
        let yaml = format!("{head}{rest}");
        let (host, test_host) = (by_the_host(&yaml), by_the_test_host(&yaml));
        assert_eq!((host.is_ok(), test_host.is_ok()), (valid, valid), "{yaml}{:?}\n{:?}", host.err(), test_host.err());
    }
}

/// The staged write of a case.
#[derive(Debug, Clone)]
enum Staged {
    Write(Action),
    Event(Event),
}

thread_local! {
    static CASE: RefCell<Option<Staged>> = const { RefCell::new(None) };
    static VERDICT: RefCell<Option<Refused>> = const { RefCell::new(None) };
}

/// The plugin: stages the write of the case and stores the result.
fn reconcile(_: &Request) -> podium_sdk::Result<Outcome> {
    let case = CASE.with_borrow(Clone::clone).unwrap();
    let verdict = match case {
        Staged::Write(action) => stage(action).map(drop),
        Staged::Event(event) => {
            let Event { target, event_type, reason, action, note } = event;
            let event = match event_type {
                EventType::Normal => podium_sdk::Event::normal(reason, note),
                EventType::Warning => podium_sdk::Event::warning(reason, note),
            };
            events::emit(&key(&target), event.action(action))
        }
    };
    let verdict = verdict.err().map(|error| match error.call_error() {
        Some(podium_sdk::CallError::NotGranted) => Refused::NotGranted,
        Some(podium_sdk::CallError::Invalid(text)) => Refused::Invalid(text.clone()),
        other => unreachable!("{other:?}: {error}"),
    });
    VERDICT.set(verdict);
    Ok(Outcome::settled())
}

fn key(target: &PodKey) -> podium_sdk::PodKey {
    podium_sdk::PodKey::new(&*target.namespace, &*target.name, &*target.uid)
}

fn object(object: &ObjectRef) -> podium_sdk::ObjectRef {
    let ObjectRef { api_version, kind, resource: _, namespace, name } = object.clone();
    podium_sdk::ObjectRef { api_version, kind, namespace, name }
}

fn stage(action: Action) -> podium_sdk::Result<u32> {
    match action {
        Action::SetLabel { target, key: name, value } => writes::set_label(&key(&target), &name, &value),
        Action::RemoveLabel { target, key: name } => writes::remove_label(&key(&target), &name),
        Action::SetAnnotation { target, key: name, value } => writes::set_annotation(&key(&target), &name, &value),
        Action::RemoveAnnotation { target, key: name } => writes::remove_annotation(&key(&target), &name),
        Action::AddFinalizer { target, name } => writes::add_finalizer(&key(&target), &name),
        Action::RemoveFinalizer { target, name } => writes::remove_finalizer(&key(&target), &name),
        Action::SetCondition { target, condition_type, reason, message, .. } => {
            let condition = Condition::new(condition_type, ConditionStatus::True).because(reason, message);
            writes::set_condition(&key(&target), &condition)
        }
        Action::RemoveCondition { target, condition_type } => writes::remove_condition(&key(&target), &condition_type),
        Action::DeletePod { target, grace_seconds } => writes::delete(&key(&target), grace_seconds),
        Action::EvictPod { target } => writes::evict(&key(&target)),
        Action::ApplyObject { body, owner, .. } => {
            let pod = owner.as_ref().map(|owner| key(owner.pod()));
            let kind = match owner {
                Some(podium_vocabulary::ObjectOwner::Workload(_)) => ObjectOwner::Workload,
                _ => ObjectOwner::Pod,
            };
            writes::apply_object(&body, pod.as_ref().map(kind))
        }
        Action::DeleteObject { object: named, uid } => writes::delete_object(&object(&named), uid.as_deref()),
        Action::Scale { object: named, replicas } => podium_sdk::objects::scale(&object(&named), replicas),
    }
}

/// Writes all texts that people read.
fn talkative(request: &Request) -> podium_sdk::Result<Outcome> {
    log::warn(NASTY, &[(NASTY, &NASTY)]);
    events::emit(request.key(), podium_sdk::Event::normal("Noted", NASTY))?;
    let long = NASTY.repeat(10);
    events::emit(request.key(), podium_sdk::Event::normal("Noted", &long[..long.floor_char_boundary(1_024)]))?;
    let condition = Condition::new("shop.example/Checked", ConditionStatus::True).because("Fine", NASTY);
    writes::set_condition(request.key(), &condition)?;
    match request.attempt() {
        1 => Ok(Outcome::settled()),
        _ => Err(podium_sdk::Error::retry(NASTY.repeat(100))),
    }
}

#[test]
fn texts_of_a_plugin_are_shown_as_the_host_shows_them() {
    let mut host = by_the_test_host(&whole().to_string()).unwrap();
    let run = host.reconcile(talkative, "shop", "cart-0");
    let escaped = text::escape(NASTY);
    assert_clean(&escaped, 1 << 10);
    assert_eq!(run.logs()[0].message, escaped);
    assert_eq!(run.logs()[0].fields, [(escaped.clone(), escaped.clone())]);
    let notes: Vec<_> = run.events().iter().map(|sent| &*sent.event.note).collect();
    assert_eq!(notes[0], escaped);
    assert!(notes[1].len() <= 1 << 10 && notes[1].ends_with("..."), "{}", notes[1]);
    assert_clean(notes[1], 1 << 10);
    let [podium_sdk::testing::Write::SetCondition { condition, .. }] = run.writes() else {
        panic!("{:?}", run.writes())
    };
    assert_eq!(condition.message.as_deref(), Some(&*escaped));

    host.answer_writes(Some(podium_sdk::WriteResult::Conflict));
    let _ = host.reconcile(talkative, "shop", "cart-0");
    let run = host.reconcile(talkative, "shop", "cart-0");
    assert_eq!(run.result().as_ref().unwrap_err().message(), text::line(&NASTY.repeat(100)));
}

fn target(namespace: &str, name: &str, uid: &str) -> PodKey {
    PodKey { namespace: namespace.into(), name: name.into(), uid: uid.into() }
}

/// Returns every verb on every target with every key and value.
fn cases() -> Vec<Staged> {
    let targets = [
        target("shop", "cart-0", "uid-shop-cart-0"),
        target("bank", "vault-0", "uid"),
        target("Shop", "cart-0", "uid"),
        target("shop", "cart/0", "uid"),
        target("shop", "cart-0", ""),
    ];
    let writes = of_pods(&targets).into_iter().chain(of_objects(&targets));
    writes.map(Staged::Write).chain(of_events(targets)).collect()
}

fn of_pods(targets: &[PodKey]) -> Vec<Action> {
    let text = str::to_owned;
    let long = "x".repeat(64);
    let keys = [
        "team",
        "shop.example/tier",
        "shop.example/",
        "other.example/a",
        "Shop.example/a",
        "a/b/c",
        "",
        "-a",
        "app.kubernetes.io/name",
        "pod-template-hash",
        "kubectl.kubernetes.io/last-applied-configuration",
        "shop.example/hold",
        "shop.example/Checked",
        "Ready",
        "note",
        &long,
    ];
    let values = ["", "web", "two words", "-x", &long];
    let mut cases = Vec::new();
    for at in targets {
        let at = || at.clone();
        for name in keys {
            let key = || name.to_owned();
            for value in values {
                cases.push(Action::SetLabel { target: at(), key: key(), value: text(value) });
                cases.push(Action::SetAnnotation { target: at(), key: key(), value: text(value) });
            }
            cases.push(Action::SetAnnotation { target: at(), key: key(), value: "x".repeat(65_537) });
            cases.push(Action::RemoveLabel { target: at(), key: key() });
            cases.push(Action::RemoveAnnotation { target: at(), key: key() });
            cases.push(Action::AddFinalizer { target: at(), name: key() });
            cases.push(Action::RemoveFinalizer { target: at(), name: key() });
            cases.push(Action::RemoveCondition { target: at(), condition_type: key() });
            for (reason, message) in
                [("", ""), ("Fine", "well"), ("two words", ""), ("9", ""), ("Fine", &*"x".repeat(32_769))]
            {
                let (status, condition_type) = (ConditionStatus::True, key());
                let (reason, message) = (text(reason), text(message));
                cases.push(Action::SetCondition { target: at(), condition_type, status, reason, message });
            }
        }
        cases.push(Action::DeletePod { target: at(), grace_seconds: None });
        cases.push(Action::EvictPod { target: at() });
    }
    cases
}

fn of_objects(targets: &[PodKey]) -> Vec<Action> {
    let text = str::to_owned;
    let mut cases = Vec::new();
    for (api_version, kind, namespace, name) in [
        ("v1", "ConfigMap", Some("shop"), "summary"),
        ("v1", "ConfigMap", Some("bank"), "summary"),
        ("v1", "ConfigMap", None, "summary"),
        ("v1", "Secret", Some("shop"), "summary"),
        ("v1", "Pod", Some("shop"), "cart-0"),
        ("v1", "configmap", Some("shop"), "summary"),
        ("a/b/c", "ConfigMap", Some("shop"), "summary"),
        ("v1", "ConfigMap", Some("Shop"), "summary"),
        ("v1", "ConfigMap", Some("shop"), "Summary"),
    ] {
        let named = ObjectRef {
            api_version: text(api_version),
            kind: text(kind),
            resource: text("configmaps"),
            namespace: namespace.map(text),
            name: text(name),
        };
        for replicas in [0, 3, 1 << 31] {
            cases.push(Action::Scale { object: named.clone(), replicas });
        }
        for uid in [None, Some("uid"), Some("")] {
            cases.push(Action::DeleteObject { object: named.clone(), uid: uid.map(text) });
        }
        let mut metadata = json!({ "name": name });
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        let body = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
        let of_metadata = [
            ("labels", json!({})),
            ("labels", json!({ "team": "two words" })),
            ("labels", json!({ "pod-template-hash": "a" })),
            ("annotations", json!({ "podium.dev/applied-0": "a" })),
            ("finalizers", json!(["shop.example/hold"])),
            ("ownerReferences", json!([])),
            ("generateName", json!("a")),
            ("uid", json!("u")),
        ]
        .map(|(field, value)| {
            let mut body = body.clone();
            body["metadata"][field] = value;
            body
        });
        let of_the_object = [
            ("status", json!({})),
            ("$patch", json!("delete")),
            ("data", json!({ "a": [18_446_744_073_709_551_615_u64] })),
            ("spec", json!({ "template": { "metadata": { "finalizers": ["bank.example/hold"] } } })),
            ("spec", json!({ "template": { "metadata": { "finalizers": ["shop.example/hold"] } } })),
        ]
        .map(|(field, value)| {
            let mut body = body.clone();
            body[field] = value;
            body
        });
        for body in of_metadata.into_iter().chain(of_the_object) {
            let pods = targets.iter().cloned().map(podium_vocabulary::ObjectOwner::Pod);
            let workloads = targets.iter().cloned().map(podium_vocabulary::ObjectOwner::Workload);
            for owner in [None].into_iter().chain(pods.chain(workloads).map(Some)) {
                let object = named.clone();
                cases.push(Action::ApplyObject { object, body: body.clone(), owner });
            }
        }
    }
    cases
}

fn of_events(targets: [PodKey; 5]) -> Vec<Staged> {
    let text = str::to_owned;
    let long = "x".repeat(64);
    let mut cases = Vec::new();
    for at in targets {
        for word in ["Checked", "two words", "lower", "", &long.to_uppercase().repeat(3)] {
            for note in ["", "a note", &*"x".repeat(1_025)] {
                for (reason, action) in [(word, "Reconcile"), ("Reason", word)] {
                    let (target, event_type) = (at.clone(), EventType::Warning);
                    let (reason, action, note) = (text(reason), text(action), text(note));
                    cases.push(Staged::Event(Event { target, event_type, reason, action, note }));
                }
            }
        }
    }
    cases
}

#[test]
fn the_test_host_refuses_the_same_writes_and_events_as_the_host() {
    let mut nothing = whole();
    nothing["spec"]["grants"] = json!({});
    nothing["spec"]["watch"] = json!({});
    let mut wide = cluster();
    for field in ["labels", "annotations", "finalizers", "conditions"] {
        wide["spec"]["grants"]["write"][field] =
            json!(["shop.example/*", "pod-template-hash", "app.kubernetes.io/name", "a/b*"]);
    }
    wide["spec"]["grants"]["write"]["finalizers"] = json!(["shop.example/*", "app.shop.example/name"]);
    let cases = cases();
    let mut counts = [0; 3];
    for configuration in [whole(), cluster(), nothing, wide] {
        let yaml = configuration.to_string();
        let spec = by_the_host(&yaml).unwrap();
        let mut test_host = by_the_test_host(&yaml).unwrap();
        for case in &cases {
            let by_the_host = match case.clone() {
                Staged::Write(action) => authorize(&spec.scope(), &spec.grants, Write { id: 0, action }).map(drop),
                Staged::Event(event) => authorize(&spec.scope(), &spec.grants, event).map(drop),
            };
            CASE.set(Some(case.clone()));
            // Undoes the effects of the previous case.
            test_host.put_pod(pod("shop", "cart-0"));
            let run = test_host.reconcile(reconcile, "shop", "cart-0");
            assert!(run.result().is_ok(), "{run:?}");
            let by_the_test_host = VERDICT.take();
            assert_eq!(by_the_host.clone().err(), by_the_test_host, "{case:?} under {yaml}");
            counts[match by_the_host {
                Ok(()) => 0,
                Err(Refused::NotGranted) => 1,
                Err(_) => 2,
            }] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 100), "granted, not granted, invalid: {counts:?}");
}
