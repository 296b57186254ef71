//! Objects that another client changes after an apply, as a watch of them shows it.

use futures::FutureExt;
use podium_engine::ports::{Deliver, Staged};
use podium_vocabulary::{Action, ObjectGrant, ObjectOwner, PodKey, WriteResult};
use podium_wire::Owner;
use serde_json::{Value, json};

use super::wire::{Answer, Wire, apply, results, sender, status};
use crate::{
    ChangedChild, Child, Origin, Writeback, child_selector,
    plan::tests::{View, authorised, cached, key},
};

/// The fields that a manager has applied.
fn entry(manager: &str, operation: &str, field: &str) -> Value {
    json!({ "manager": manager, "operation": operation, "time": "2026-01-01T00:00:00Z", "fieldsV1": { field: {} } })
}

/// The object at a revision, with the plugin's entry of managed fields.
fn object(revision: u64, own: &str, others: &[Value]) -> Value {
    let mut entries = others.to_vec();
    entries.push(entry("podium/shop/a", "Apply", own));
    let metadata = json!({
        "namespace": "shop", "name": "summary", "uid": "u9", "resourceVersion": revision.to_string(),
        "managedFields": entries,
    });
    json!({ "metadata": metadata })
}

fn kind() -> ObjectGrant {
    ObjectGrant { api_version: "v1".into(), kind: "ConfigMap".into(), resource: "configmaps".into() }
}

fn child(object: &Value) -> Child {
    Child::read(&object.to_string(), "podium/shop/a").unwrap()
}

fn absent() -> Answer {
    Some((404, json!({ "kind": "Status", "code": 404, "details": { "name": "summary" } })))
}

async fn deliver(writeback: &Writeback, action: Action, view: &View) -> WriteResult {
    let staged = Staged { writes: authorised([action]), ..Staged::default() };
    results(&writeback.deliver(&sender(), &key(), view, staged, 0).await).remove(0)
}

/// A writeback that has applied the object, which got revision 10, and has these answers left.
async fn applied(more: impl IntoIterator<Item = Answer>) -> (Wire, Writeback) {
    let first = [absent(), Some((201, object(10, "f:data", &[])))];
    let wire = Wire::answering(first.into_iter().chain(more));
    let writeback = wire.writeback();
    assert_eq!(deliver(&writeback, apply(&[]), &cached(|_| ())).await, WriteResult::Applied);
    (wire, writeback)
}

fn changed(writeback: &Writeback) -> Option<ChangedChild> {
    writeback.next_changed_child().now_or_never()
}

#[tokio::test]
async fn only_changes_of_the_plugins_own_fields_count() {
    let edited = entry("kubectl-edit", "Update", "f:data");
    let forged = entry("podium/shop/a", "Update", "f:x");
    let status = entry("controller", "Update", "f:status");
    for (seen, counts) in [
        (object(10, "f:data", &[]), false),
        (object(11, "f:data", &[status]), false),
        (object(11, "f:data", &[forged]), false),
        (object(9, "f:other", &[]), false),
        (object(11, "f:other", std::slice::from_ref(&edited)), true),
        (json!({ "metadata": { "namespace": "shop", "name": "summary", "resourceVersion": "11" } }), true),
    ] {
        let (_wire, writeback) = applied([]).await;
        writeback.see_child("podium/shop/a", &kind(), &child(&seen), false);
        let origin = Origin { pod: Some(key()), workload: None };
        let found = changed(&writeback).map(|changed| (changed.manager, changed.object.name, changed.origin));
        let expected = counts.then(|| ("podium/shop/a".to_owned(), "summary".to_owned(), origin));
        assert_eq!(found, expected, "{seen}");
        assert_eq!(changed(&writeback), None, "twice");
    }
}

#[tokio::test]
async fn replicas_that_the_plugin_sets_are_no_change_of_another_client() {
    // The patch takes the field from the entry of the apply.
    let seen = object(11, "f:other", &[]);
    let scale = json!({ "metadata": { "name": "summary", "resourceVersion": "10" }, "spec": { "replicas": 1 } });
    let (_wire, writeback) = applied([Some((200, scale.clone())), Some((200, scale))]).await;
    let Action::ApplyObject { object, .. } = apply(&[]) else { unreachable!("an apply") };
    let scale = Action::Scale { object, replicas: 3 };
    assert_eq!(deliver(&writeback, scale, &cached(|_| ())).await, WriteResult::Applied);
    writeback.see_child("podium/shop/a", &kind(), &child(&seen), false);
    assert_eq!(changed(&writeback), None);
}

#[tokio::test]
async fn what_was_edited_or_deleted_is_read_and_applied_again() {
    let restored = Some((200, object(13, "f:data", &[])));
    // The last one has the values of the body, and they are another client's.
    let same = json!({ "metadata": object(12, "f:other", &[])["metadata"], "data": {} });
    for read in [absent(), Some((200, object(12, "f:other", &[]))), Some((200, same))] {
        let (wire, writeback) = applied([read, restored.clone()]).await;
        assert_eq!(deliver(&writeback, apply(&[]), &cached(|_| ())).await, WriteResult::Unchanged);
        writeback.see_child("podium/shop/a", &kind(), &child(&object(12, "f:other", &[])), false);
        assert_eq!(deliver(&writeback, apply(&[]), &cached(|_| ())).await, WriteResult::Applied);
        assert_eq!(deliver(&writeback, apply(&[]), &cached(|_| ())).await, WriteResult::Unchanged);
        wire.seen();
    }
}

#[tokio::test]
async fn deletions_count_also_those_that_a_list_shows() {
    let see: [fn(&Writeback); 3] = [
        |writeback| writeback.see_child("podium/shop/a", &kind(), &child(&object(11, "f:data", &[])), true),
        |writeback| writeback.see_child("podium/shop/a", &kind(), &child(&object(10, "f:data", &[])), true),
        |writeback| writeback.see_children("podium/shop/a", &kind(), &[Child::end_of_list("10")]),
    ];
    for (at, see) in see.into_iter().enumerate() {
        let (_wire, writeback) = applied([]).await;
        see(&writeback);
        assert!(changed(&writeback).is_some(), "{at}");
    }
    let not: [fn(&Writeback); 6] = [
        // Of an incarnation before.
        |writeback| writeback.see_child("podium/shop/a", &kind(), &child(&object(9, "f:data", &[])), true),
        |writeback| {
            let listed = [child(&object(10, "f:data", &[])), Child::end_of_list("12")];
            writeback.see_children("podium/shop/a", &kind(), &listed);
        },
        // Of before the object was created, and a list that was cut short.
        |writeback| writeback.see_children("podium/shop/a", &kind(), &[Child::end_of_list("9")]),
        |writeback| writeback.see_children("podium/shop/a", &kind(), &[]),
        |writeback| writeback.see_children("podium/shop/b", &kind(), &[Child::end_of_list("12")]),
        |writeback| {
            let other = ObjectGrant { kind: "Secret".into(), resource: "secrets".into(), ..kind() };
            writeback.see_children("podium/shop/a", &other, &[Child::end_of_list("12")]);
        },
    ];
    for (at, see) in not.into_iter().enumerate() {
        let (_wire, writeback) = applied([]).await;
        see(&writeback);
        assert_eq!(changed(&writeback), None, "{at}");
    }
}

#[tokio::test]
async fn objects_that_the_plugin_did_not_apply_or_deleted_itself_do_not_count() {
    let (_wire, writeback) = applied([Some((200, json!({})))]).await;
    let mut other = object(11, "f:other", &[]);
    other["metadata"]["name"] = json!("other");
    writeback.see_child("podium/shop/a", &kind(), &child(&other), false);
    let Action::ApplyObject { object: name, .. } = apply(&[]) else { unreachable!("an object") };
    let deletion = Action::DeleteObject { object: name, uid: None };
    assert_eq!(deliver(&writeback, deletion, &cached(|_| ())).await, WriteResult::Applied);
    writeback.see_child("podium/shop/a", &kind(), &child(&object(11, "f:data", &[])), true);
    assert_eq!(changed(&writeback), None);
}

#[tokio::test]
async fn an_event_before_the_answer_counts_if_it_is_of_after_it() {
    for (seen, counts) in [(object(10, "f:data", &[]), false), (object(11, "f:other", &[]), true)] {
        let wire = Wire::answering([absent(), None]);
        let writeback = wire.writeback();
        let view = cached(|_| ());
        let answered = async {
            wire.received(2).await;
            writeback.see_child("podium/shop/a", &kind(), &child(&seen), false);
            assert_eq!(changed(&writeback), None, "it may be the plugin's own write");
            wire.answer(Some((201, object(10, "f:data", &[]))));
        };
        let (result, ()) = tokio::join!(deliver(&writeback, apply(&[]), &view), answered);
        assert_eq!(result, WriteResult::Applied);
        assert_eq!(changed(&writeback).is_some(), counts, "{seen}");
    }
}

#[tokio::test]
async fn the_object_has_the_label_of_its_plugin_and_the_run_is_of_its_workload() {
    let read = json!({ "metadata": { "namespace": "shop", "name": "web", "uid": "u-web" } });
    let answers = [Some((200, read)), absent(), Some((201, object(10, "f:data", &[])))];
    let wire = Wire::answering(answers);
    let writeback = wire.writeback();
    let view = cached(|pod| {
        pod.owners.push(Owner {
            api_version: "apps/v1".into(),
            kind: "StatefulSet".into(),
            name: "web".into(),
            uid: "u-web".into(),
            controller: true,
            block_owner_deletion: true,
        });
    });
    let Action::ApplyObject { object: name, body, .. } = apply(&[]) else { unreachable!("an object") };
    let action = Action::ApplyObject { object: name, body, owner: Some(ObjectOwner::Workload(key())) };
    assert_eq!(deliver(&writeback, action, &view).await, WriteResult::Applied);
    let sent = wire.seen().pop().unwrap().body;
    let selector = child_selector("podium/shop/a");
    assert_eq!(sent["metadata"]["labels"], json!({ (&*selector): "" }));
    assert_ne!(selector, child_selector("podium/shop/b"), "two plugins may apply fields of one object");
    writeback.see_child("podium/shop/a", &kind(), &child(&object(11, "f:other", &[])), false);
    let workload = Some(PodKey::new("shop", "workload/StatefulSet/web", "shop/workload/StatefulSet/web"));
    assert_eq!(changed(&writeback).unwrap().origin, Origin { pod: Some(key()), workload });
}

#[tokio::test]
async fn after_a_lost_answer_a_change_counts_as_well() {
    let (wire, writeback) = applied([status(504, "", ""), status(503, "", "")]).await;
    assert_eq!(deliver(&writeback, apply(&[("k", "2")]), &cached(|_| ())).await, WriteResult::Unknown);
    for answer in [absent(), Some((201, object(14, "f:data", &[])))] {
        wire.queue(answer);
    }
    assert_eq!(deliver(&writeback, apply(&[("k", "2")]), &cached(|_| ())).await, WriteResult::Applied);
    writeback.see_child("podium/shop/a", &kind(), &child(&object(14, "f:data", &[])), false);
    assert_eq!(changed(&writeback), None);
    writeback.see_child("podium/shop/a", &kind(), &child(&object(15, "f:other", &[])), false);
    assert!(changed(&writeback).is_some());
}

#[tokio::test]
async fn an_object_that_was_adopted_is_not_changed_by_its_own_event() {
    let other = entry("someone", "Update", "f:data");
    let refused = status(429, "", "");
    let wire = Wire::answering([absent(), Some((200, object(10, "f:data", std::slice::from_ref(&other)))), refused]);
    let writeback = wire.writeback();
    assert_eq!(deliver(&writeback, apply(&[]), &cached(|_| ())).await, WriteResult::NotSent);
    writeback.see_child("podium/shop/a", &kind(), &child(&object(10, "f:data", &[other])), false);
    assert_eq!(changed(&writeback), None);
    wire.seen();
}

#[tokio::test]
async fn an_owner_of_a_changed_object_is_read_again() {
    let view = cached(|pod| {
        pod.owners.push(Owner {
            api_version: "apps/v1".into(),
            kind: "StatefulSet".into(),
            name: "web".into(),
            uid: "u-web".into(),
            controller: true,
            block_owner_deletion: true,
        });
    });
    let read = json!({ "metadata": { "namespace": "shop", "name": "web", "uid": "u-web" } });
    let gone = json!({ "kind": "Status", "code": 404, "details": { "name": "web" } });
    let answers = [Some((200, read)), absent(), Some((201, object(10, "f:data", &[]))), Some((404, gone))];
    let wire = Wire::answering(answers);
    let writeback = wire.writeback();
    let apply = || {
        let Action::ApplyObject { object: name, body, .. } = apply(&[]) else { unreachable!("an object") };
        Action::ApplyObject { object: name, body, owner: Some(ObjectOwner::Workload(key())) }
    };
    assert_eq!(deliver(&writeback, apply(), &view).await, WriteResult::Applied);
    writeback.see_child("podium/shop/a", &kind(), &child(&object(11, "f:data", &[])), true);
    assert_eq!(deliver(&writeback, apply(), &view).await, WriteResult::Gone, "the workload is gone");
    wire.seen();
}

#[test]
fn an_object_without_a_name_is_an_error() {
    for json in ["", "[]", "{}", r#"{"metadata":{}}"#, r#"{"metadata":{"name":1}}"#, r#"{"metadata":"x"}"#] {
        assert!(Child::read(json, "podium/shop/a").is_err(), "{json}");
    }
}
