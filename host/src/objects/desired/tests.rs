//! Changes of objects, and the actions that they decide.

use serde_json::{Value, json};

use super::{
    super::object::tests::{object, spec},
    *,
};

impl Desired {
    fn listed_all(&mut self, kind: Kind, objects: Vec<Object>) -> Vec<Action> {
        self.change(kind, vec![Change::Listed(objects)])
    }

    fn applied(&mut self, object: Object) -> Vec<Action> {
        self.change(Kind::from_id(&object.id), vec![Change::Applied(object.into())])
    }

    fn deleted(&mut self, object: Object) -> Vec<Action> {
        self.change(Kind::from_id(&object.id), vec![Change::Deleted(object.id)])
    }
}

fn described(actions: &[Action]) -> Vec<String> {
    let described = |action: &Action| match action {
        Action::Load(spec) => format!("load {}", spec.id.name),
        Action::Refuse { id, permissions, .. } => {
            format!("refuse {}{}", id.name, if permissions.is_some() { ", permitted" } else { "" })
        }
        Action::Unload(id) => format!("unload {}", id.name),
        Action::Exceed(id) => format!("exceed {}", id.name),
    };
    actions.iter().map(described).collect()
}

fn with(field: &str, value: Value) -> Value {
    let mut spec = spec();
    spec[field] = value;
    spec
}

#[test]
fn an_object_that_is_seen_again_shares_the_spec_of_its_version() {
    let mut desired = Desired::default();
    let actions = desired.applied(object("a", 1, &spec()));
    let [Action::Load(running)] = &*actions else { panic!("{actions:?}") };
    let first = desired.object(&running.id).unwrap().clone();
    for status in [json!({ "x": 1 }), json!({ "x": 2 })] {
        desired.applied(Object { revision: "9".into(), status: status.into(), ..object("a", 1, &spec()) });
        desired.listed_all(Kind::Namespaced, vec![object("a", 1, &spec())]);
        let object = desired.object(&running.id).unwrap();
        assert!(Arc::ptr_eq(object.plugin.as_ref().unwrap(), running));
        assert!(Arc::ptr_eq(&object.spec.shared(), &first.spec.shared()));
    }
    desired.applied(object("a", 2, &with("config", json!({ "x": 1 }))));
    assert!(!Arc::ptr_eq(desired.object(&running.id).unwrap().plugin.as_ref().unwrap(), running));
}

#[test]
fn only_a_change_of_the_spec_loads_a_plugin_again() {
    let mut desired = Desired::default();
    assert_eq!(described(&desired.applied(object("a", 1, &spec()))), ["load a"]);
    let labelled = Object { revision: "9".into(), status: json!({ "x": 1 }).into(), ..object("a", 1, &spec()) };
    assert!(desired.applied(labelled).is_empty());
    assert!(desired.listed_all(Kind::Namespaced, vec![object("a", 1, &spec())]).is_empty(), "a relist");
    let changed = with("config", json!({ "x": 1 }));
    assert_eq!(described(&desired.applied(object("a", 2, &changed))), ["load a"]);
}

#[test]
fn another_policy_decides_again_about_the_objects_that_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let policy = |rules: &str| {
        std::fs::write(&file, format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {rules}\n")).unwrap();
        Some(Policy::read(&file).unwrap())
    };
    let mut desired = Desired::default();
    desired.listed_all(Kind::Namespaced, vec![object("a", 1, &spec()), object("b", 1, &spec())]);
    assert_eq!(described(&desired.set_policy(policy("{ defaults: { maxPlugins: 1 } }"), Vec::new())), ["exceed b"]);
    assert!(
        desired.set_policy(policy("{ cluster: { maxPlugins: 7 } }"), Vec::new()).is_empty(),
        "its spec was not kept"
    );
    let asked =
        desired.decided().any(|(_, decision)| matches!(decision, Decision::Beyond(of) if of.reason == "SpecNotRead"));
    assert!(asked, "a status is written, and the watch brings the object again");
    assert_eq!(described(&desired.applied(object("b", 1, &spec()))), ["load b"]);
}

#[test]
fn an_object_that_goes_from_beyond_the_bounds_is_unloaded() {
    let mut desired = Desired::default();
    let all: Vec<_> = (0..102).map(|at| object(&format!("p{at:03}"), 1, &spec())).collect();
    assert_eq!(desired.listed_all(Kind::Namespaced, all.clone()).len(), 100);
    let again = Object { uid: "u-p101-2".to_owned(), ..all[101].clone() };
    assert_eq!(described(&desired.applied(again)), ["unload p101"], "another object of its name");
    assert_eq!(described(&desired.deleted(all[100].clone())), ["unload p100"], "its record is not needed");
}

#[test]
fn an_object_that_is_missing_in_a_list_is_unloaded() {
    let mut desired = Desired::default();
    let two = vec![object("a", 1, &spec()), object("b", 1, &spec())];
    assert_eq!(described(&desired.listed_all(Kind::Namespaced, two)), ["load a", "load b"]);
    assert!(desired.listed_all(Kind::Cluster, Vec::new()).is_empty(), "of the other kind");
    let one = vec![object("b", 1, &spec())];
    assert_eq!(described(&desired.listed_all(Kind::Namespaced, one)), ["unload a"]);
    assert_eq!(described(&desired.deleted(object("b", 1, &spec()))), ["unload b"]);
    assert!(desired.deleted(object("b", 1, &spec())).is_empty());
}

#[test]
fn an_object_that_is_being_deleted_is_unloaded_before_its_finalizer_goes() {
    let mut desired = Desired::default();
    assert_eq!(desired.applied(object("a", 1, &spec())).len(), 1);
    let deleting = Object { deleting: true, ..object("a", 1, &spec()) };
    assert_eq!(described(&desired.applied(deleting)), ["unload a"]);
    assert_eq!(desired.decided().count(), 0);
}

#[test]
fn an_object_with_the_hosts_finalizer_is_removed_when_it_is_being_deleted() {
    let mut finalizing = spec();
    finalizing["grants"]["write"]["finalizers"] = json!(["shop.example/hold"]);
    let mut desired = Desired::default();
    let held = Object { held: Some(0), ..object("a", 1, &finalizing) };
    desired.applied(held.clone());
    assert_eq!(desired.removing().count(), 0);
    desired.applied(Object { deleting: true, ..held.clone() });
    let removing: Vec<_> = desired.removing().collect();
    let finalizers = &removing[0].spec.as_ref().unwrap().grants.write.finalizers;
    assert_eq!((removing.len(), &*finalizers[0].0), (1, "shop.example/hold"));
    // A mistake elsewhere hides no finalizer.
    finalizing["watch"] = json!(7);
    desired.applied(Object { deleting: true, held: Some(0), ..object("a", 2, &finalizing) });
    assert!(desired.removing().next().unwrap().spec.is_some());
    desired.applied(Object { deleting: true, held: None, ..held });
    assert_eq!(desired.removing().count(), 0, "nothing is left to do");
}

#[test]
fn a_part_has_no_objects_of_other_tenants() {
    let mut desired = Desired::default();
    for tenant in 0..100 {
        let of_tenant = of_namespace(&format!("t{tenant}"), "a", &format!("t{tenant}.example/x"));
        desired.applied(Object { deleting: true, held: Some(0), ..of_tenant });
    }
    let part = desired.part(&Some("t7".into()));
    let objects: usize = part.tenants.values().map(|of_tenant| of_tenant.objects.len()).sum();
    assert_eq!((objects, desired.removing().count()), (1, 100));
    assert!(part.removing().eq(desired.removing().filter(|of| of.id.namespace.as_deref() == Some("t7"))));
    assert_eq!(desired.part(&Some("other".into())).removing().count(), 0);
}

#[test]
fn an_object_that_was_deleted_and_created_again_is_loaded_again() {
    let again = |uid: &str| Object { uid: uid.to_owned(), ..object("a", 1, &spec()) };
    let mut desired = Desired::default();
    assert_eq!(described(&desired.listed_all(Kind::Namespaced, vec![again("u-1"), object("b", 1, &spec())])).len(), 2);
    let two = vec![again("u-2"), object("b", 1, &spec())];
    assert_eq!(described(&desired.listed_all(Kind::Namespaced, two.clone())), ["unload a", "load a"]);
    assert!(desired.listed_all(Kind::Namespaced, two).is_empty(), "the same");
    assert_eq!(described(&desired.applied(again("u-3"))), ["unload a", "load a"]);
    assert!(desired.applied(again("u-3")).is_empty(), "the same");
    let mistaken = Object { uid: "u-5".to_owned(), ..object("a", 1, &with("watch", json!(7))) };
    assert_eq!(described(&desired.applied(mistaken)), ["unload a", "refuse a"], "nothing is known of this object");
    desired.applied(again("u-3"));
    let deleting = Object { deleting: true, ..again("u-4") };
    assert_eq!(described(&desired.applied(deleting)), ["unload a"]);
}

#[test]
fn an_object_lacks_the_hosts_finalizer_while_its_plugin_may_hold_some() {
    let mut finalizing = spec();
    finalizing["grants"]["write"]["finalizers"] = json!(["shop.example/hold"]);
    let mut desired = Desired::default();
    let unheld = |desired: &Desired| desired.unheld().count();
    desired.applied(object("a", 1, &spec()));
    assert_eq!(unheld(&desired), 0, "it may hold none");
    desired.applied(object("a", 2, &finalizing));
    assert_eq!(unheld(&desired), 1);
    desired.applied(Object { held: Some(0), ..object("a", 2, &finalizing) });
    assert_eq!(unheld(&desired), 0);
    finalizing["watch"] = json!(7);
    assert_eq!(described(&desired.applied(object("a", 3, &finalizing))), ["refuse a, permitted"]);
    assert_eq!(unheld(&desired), 1, "pods may have it already");
    desired.applied(Object { deleting: true, ..object("a", 3, &finalizing) });
    assert_eq!(unheld(&desired), 0, "it is too late");
}

#[test]
fn a_name_that_a_file_has_is_taken() {
    let file = object("a", 1, &spec()).plugin.unwrap();
    let mut desired = Desired::beside([&*file], None);
    assert!(desired.applied(object("a", 1, &spec())).is_empty());
    assert_eq!(desired.decided().map(|(_, decision)| decision).collect::<Vec<_>>(), [&Decision::NameTaken]);
    assert!(desired.deleted(object("a", 1, &spec())).is_empty(), "the file's plugin stays");
}

#[test]
fn a_mistake_refuses_and_says_whether_the_permissions_are_known() {
    let mut desired = Desired::default();
    let wrong = with("watch", json!(7));
    assert_eq!(described(&desired.applied(object("a", 1, &wrong))), ["refuse a"], "nothing is known of it");
    assert_eq!(described(&desired.applied(object("a", 2, &spec()))), ["load a"]);
    assert_eq!(described(&desired.applied(object("a", 3, &wrong))), ["refuse a, permitted"]);
    let unknown = with("grants", json!(7));
    assert_eq!(described(&desired.applied(object("a", 4, &unknown))), ["refuse a"]);
    assert_eq!(described(&desired.applied(object("a", 5, &spec()))), ["load a"]);
}

#[test]
fn a_spec_with_mistakes_is_judged_once_and_not_at_each_change_of_others() {
    let permissions = |desired: &Desired| match desired.decided().next() {
        Some((_, Decision::Refused { permissions: Some(permissions), .. })) => permissions.clone(),
        other => unreachable!("{other:?}"),
    };
    let mut desired = Desired::default();
    desired.applied(object("a", 1, &spec()));
    desired.applied(object("a", 2, &with("watch", json!(7))));
    let judged = permissions(&desired);
    desired.applied(object("b", 1, &spec()));
    assert!(Arc::ptr_eq(&judged, &permissions(&desired)));
    desired.applied(object("a", 3, &with("config", json!({ "x": 1 }))));
    desired.applied(object("a", 4, &with("watch", json!(7))));
    assert!(!Arc::ptr_eq(&judged, &permissions(&desired)), "the last spec without mistakes is another");
}

#[test]
fn a_cycle_refuses_its_plugins_until_one_of_them_leaves_it() {
    let after = |name: &str| with("after", json!([name]));
    let mut desired = Desired::default();
    assert_eq!(described(&desired.applied(object("a", 1, &after("b")))), ["load a"]);
    let closed = desired.applied(object("b", 1, &after("a")));
    assert_eq!(described(&closed), ["refuse a, permitted", "refuse b, permitted"]);
    let Action::Refuse { problems, .. } = &closed[0] else { unreachable!("it is refused") };
    assert_eq!(problems[0].field, "spec.after");
    assert_eq!(described(&desired.applied(object("b", 2, &spec()))), ["load a", "load b"]);
}

fn of_cluster(name: &str, created: &str, finalizer: &str) -> Object {
    let spec = json!({
        "source": spec()["source"],
        "serviceAccountName": "a",
        "serviceAccountNamespace": "podium",
        "grants": { "write": { "finalizers": [finalizer] } },
    });
    let json = json!({ "metadata": { "name": name, "uid": "u" }, "spec": spec }).to_string();
    Object { created: created.to_owned(), ..Object::read(Kind::Cluster, &json).unwrap() }
}

fn of_namespace(namespace: &str, name: &str, finalizer: &str) -> Object {
    let mut spec = spec();
    spec["grants"]["write"] = json!({ "finalizers": [finalizer] });
    let metadata = json!({ "name": name, "namespace": namespace, "uid": format!("u-{name}") });
    Object::read(Kind::Namespaced, &json!({ "metadata": metadata, "spec": spec }).to_string()).unwrap()
}

#[test]
fn a_finalizer_is_of_the_clusters_plugin_before_those_of_namespaces() {
    let mut desired = Desired::default();
    assert_eq!(described(&desired.applied(of_namespace("shop", "a", "a.example/x"))), ["load a"]);
    let elsewhere = desired.applied(of_namespace("bank", "b", "a.example/x"));
    assert_eq!(described(&elsewhere), ["load b"], "of other Pods");
    let platform = of_cluster("z", "2026-01-02T00:00:00Z", "a.example/x");
    let actions = described(&desired.applied(platform.clone()));
    assert_eq!(actions, ["load z", "refuse b, permitted", "refuse a, permitted"]);
    assert_eq!(described(&desired.applied(of_namespace("pay", "c", "a.example/*"))), ["refuse c, permitted"]);
    assert_eq!(described(&desired.deleted(platform)), ["unload z", "load b", "load c", "load a"]);
}

#[test]
fn a_file_of_a_namespace_has_its_finalizer_before_a_plugin_of_the_cluster() {
    let file = of_namespace("shop", "a", "a.example/x").plugin.unwrap();
    let mut desired = Desired::beside([&*file], None);
    let platform = of_cluster("z", "2026-01-02T00:00:00Z", "a.example/x");
    assert_eq!(described(&desired.applied(platform)), ["refuse z, permitted"]);
    assert_eq!(described(&desired.applied(of_namespace("shop", "b", "a.example/*"))), ["refuse b, permitted"]);
    assert_eq!(described(&desired.applied(of_namespace("bank", "b", "a.example/*"))), ["load b"]);
}

#[test]
fn a_released_plugin_leaves_its_finalizers_to_one_deleted_later() {
    let mut desired = Desired::default();
    let older = of_namespace("shop", "a", "a.example/x");
    let younger = of_namespace("shop", "b", "a.example/x");
    for (held, is_before) in [(Some(0), true), (None, false)] {
        desired.applied(Object { deleting: true, held, ..older.clone() });
        desired.applied(Object { deleting: true, held: Some(0), ..younger.clone() });
        let mut before = BTreeMap::new();
        desired.removing_in_order::<String>(
            &younger.id.namespace,
            |_| false,
            |object, _, kept| {
                before.insert(object.id.clone(), kept.has(&"shop".into(), "a.example/x"));
            },
        );
        assert_eq!(before.get(&younger.id), Some(&is_before), "{held:?}");
    }
}

#[test]
fn a_change_decides_about_the_objects_of_its_tenant_only() {
    let mut desired = Desired::default();
    desired.applied(of_namespace("shop", "a", "a.example/x"));
    let changed = desired.changed(Kind::Namespaced, Change::Applied(of_namespace("bank", "b", "b.example/x").into()));
    assert_eq!(changed, [Some("bank".into())].into());
    desired.decide(changed);
    let cluster = desired.changed(Kind::Cluster, Change::Applied(of_cluster("z", "", "c.example/x").into()));
    assert_eq!(cluster.len(), 3);
}

fn beyond(desired: &Desired) -> Vec<(String, &'static str)> {
    let beyond = |(object, decision): (&Object, &Decision)| match decision {
        Decision::Beyond(beyond) => Some((object.id.name.to_string(), beyond.reason)),
        _ => None,
    };
    desired.decided().filter_map(beyond).collect()
}

#[test]
fn a_plugin_beyond_the_number_is_read_when_an_older_one_goes() {
    let mut desired = Desired::default();
    let named = |at: usize| Object { created: "1".into(), ..object(&format!("p{at:03}"), 1, &spec()) };
    let all: Vec<Object> = (0..102).map(named).collect();
    assert_eq!(desired.listed_all(Kind::Namespaced, all).len(), 100);
    let expected = ["p100", "p101"].map(|name| (name.to_owned(), "TooManyPlugins"));
    assert_eq!(beyond(&desired), expected);
    assert!(desired.object(&named(100).id).unwrap().is_forgotten(), "its spec takes no memory");
    assert_eq!(desired.applied(named(100)).len(), 0, "a write of its status");
    assert!(desired.object(&named(100).id).unwrap().is_forgotten());

    assert_eq!(described(&desired.deleted(named(7))), ["unload p007"]);
    assert_eq!(beyond(&desired), [("p100".to_owned(), "SpecNotRead"), ("p101".to_owned(), "TooManyPlugins")]);
    assert_eq!(described(&desired.applied(named(100))), ["load p100"], "the write of its status brought it");
    // One that is older displaces the youngest.
    let older = Object { created: "0".into(), ..named(500) };
    assert_eq!(described(&desired.applied(older)), ["exceed p100", "load p500"]);
}

#[test]
fn an_object_beyond_the_number_keeps_its_finalizers_until_it_is_read() {
    let mut desired = Desired::default();
    let named = |at: usize| {
        let object = of_namespace("shop", &format!("p{at:03}"), &format!("shop.example/p{at}"));
        Object { deleting: true, held: Some(0), ..object }
    };
    desired.listed_all(Kind::Namespaced, (0..101).map(named).collect());
    assert_eq!((desired.removing().count(), beyond(&desired).len()), (100, 1));
    desired.deleted(named(7));
    assert_eq!((desired.removing().count(), beyond(&desired)), (99, vec![("p100".to_owned(), "SpecNotRead")]));
    desired.applied(named(100));
    assert_eq!(desired.removing().count(), 100);
    assert!(desired.removing().all(|removing| removing.spec.is_some()));
}
