//! Objects that the top workload of a Pod owns, against a scripted API server.

use std::time::Duration;

use podium_engine::ports::{Deliver, Sent, Staged};
use podium_vocabulary::{Action, ObjectOwner, WriteResult};
use podium_wire::Owner;
use serde_json::{Value, json};

use super::wire::{Answer, Wire, apply, results, sender, status};
use crate::{
    Writeback,
    plan::tests::{View, authorised, cached, key},
};

const REPLICA_SET: &str = "/apis/apps/v1/namespaces/shop/replicasets/cart-7d4";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/cart";

fn owner(api_version: &str, kind: &str, name: &str) -> Owner {
    Owner {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: format!("u-{name}"),
        controller: true,
        block_owner_deletion: true,
    }
}

/// The Pod of a ReplicaSet, with another owner before its controller.
fn of_replica_set() -> View {
    cached(|pod| {
        pod.owners.push(Owner { controller: false, ..owner("v1", "ConfigMap", "other") });
        pod.owners.push(owner("apps/v1", "ReplicaSet", "cart-7d4"));
    })
}

fn metadata(name: &str, controller: Option<(&str, &str, &str)>) -> Value {
    let references: Vec<Value> = controller
        .map(|(api_version, kind, name)| {
            json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": format!("u-{name}"),
                "controller": true, "blockOwnerDeletion": true })
        })
        .into_iter()
        .chain([json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-x" })])
        .collect();
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "namespace": "shop", "name": name, "uid": format!("u-{name}"), "ownerReferences": references },
    })
}

fn found(name: &str, controller: Option<(&str, &str, &str)>) -> Answer {
    Some((200, metadata(name, controller)))
}

fn replica_set() -> Answer {
    found("cart-7d4", Some(("apps/v1", "Deployment", "cart")))
}

fn absent() -> Answer {
    Some((404, json!({ "kind": "Status", "code": 404, "details": { "name": "any" } })))
}

fn applied() -> Answer {
    Some((201, json!({})))
}

fn forbidden(resource: &str) -> Answer {
    let message = format!("User \"a\" cannot get resource \"{resource}\" in API group \"apps\"");
    Some((403, json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": message })))
}

async fn deliver(writeback: &Writeback, view: &View, value: &str) -> Sent {
    let Action::ApplyObject { object, body, .. } = apply(&[("k", value)]) else { unreachable!("an object") };
    let action = Action::ApplyObject { object, body, owner: Some(ObjectOwner::Workload(key())) };
    let staged = Staged { writes: authorised([action]), ..Staged::default() };
    writeback.deliver(&sender(), &key(), view, staged, 0).await
}

/// Delivers an apply, and returns its result and the owner references that were sent.
async fn result(view: &View, answers: impl IntoIterator<Item = Answer>) -> (WriteResult, Option<Value>) {
    let wire = Wire::answering(answers);
    let sent = deliver(&wire.writeback(), view, "1").await;
    let seen = wire.seen();
    let apply = seen.iter().find(|seen| seen.method == "PATCH");
    (results(&sent).remove(0), apply.map(|apply| apply.body["metadata"]["ownerReferences"].clone()))
}

fn reference(api_version: &str, kind: &str, name: &str) -> Option<Value> {
    Some(json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": format!("u-{name}") }]))
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_the_owner_and_is_read_every_ten_minutes() {
    let read = || [replica_set(), found("cart", None)];
    let first = read().into_iter().chain([absent(), applied(), applied()]);
    let wire = Wire::answering(first.chain(read()).chain([absent(), applied()]));
    let writeback = wire.writeback();
    let view = of_replica_set();
    let sent = deliver(&writeback, &view, "1").await;
    assert_eq!((results(&sent), sent.requests, sent.reads), (vec![WriteResult::Applied], 1, 3));
    assert_eq!(deliver(&writeback, &view, "2").await.reads, 0);
    assert_eq!(deliver(&writeback, &view, "2").await.requests, 0);
    tokio::time::advance(Duration::from_secs(590)).await;
    assert_eq!(deliver(&writeback, &view, "2").await.requests, 0);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(deliver(&writeback, &view, "3").await.reads, 3);
    let seen = wire.seen();
    let lines = wire.lines();
    assert_eq!(lines[..2], [format!("GET {REPLICA_SET}"), format!("GET {DEPLOYMENT}")]);
    assert!(seen[0].accept.starts_with("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"));
    assert!(seen.iter().all(|seen| seen.user.as_deref() == Some("system:serviceaccount:shop:a")));
    assert_eq!(Some(seen[3].body["metadata"]["ownerReferences"].clone()), reference("apps/v1", "Deployment", "cart"));
}

#[tokio::test]
async fn a_pod_without_a_controller_owns_its_objects_itself() {
    let pod = Some(json!([{ "apiVersion": "v1", "kind": "Pod", "name": "cart-0", "uid": "u1" }]));
    let bare = cached(|pod| pod.owners.push(Owner { controller: false, ..owner("v1", "ConfigMap", "other") }));
    let mirror = cached(|pod| pod.owners.push(owner("v1", "Node", "n1")));
    for view in [bare, mirror] {
        assert_eq!(result(&view, [absent(), applied()]).await, (WriteResult::Applied, pod.clone()));
    }
}

#[tokio::test]
async fn the_owner_is_the_last_readable_object_of_the_chain() {
    let stateful = cached(|pod| pod.owners.push(owner("apps/v1", "StatefulSet", "db")));
    let of_operator = || found("db", Some(("shop.example/v1", "Policy", "p")));
    let db = reference("apps/v1", "StatefulSet", "db");
    let not_served = || Some((404, json!("404 page not found")));
    for above in [forbidden("policies"), not_served()] {
        let answers = [of_operator(), above, absent(), applied()];
        assert_eq!(result(&stateful, answers).await, (WriteResult::Applied, db.clone()));
    }
    let policy = reference("shop.example/v1", "Policy", "p");
    let all = [of_operator(), found("p", None), absent(), applied()];
    assert_eq!(result(&stateful, all).await, (WriteResult::Applied, policy));
    let on_node = found("db", Some(("v1", "Node", "n1")));
    assert_eq!(result(&stateful, [on_node, absent(), applied()]).await, (WriteResult::Applied, db));

    let rule = r#"get on deployments in API group "apps" in the namespace shop: User "a" cannot get"#;
    let (refused, sent) = result(&of_replica_set(), [replica_set(), forbidden("deployments")]).await;
    assert!(matches!(&refused, WriteResult::Forbidden(text) if text.contains(rule)), "{refused:?}");
    assert_eq!(sent, None);
    let (refused, _) = result(&of_replica_set(), [forbidden("replicasets")]).await;
    assert!(matches!(&refused, WriteResult::Forbidden(text) if text.contains("get on replicasets")), "{refused:?}");
    let (refused, _) = result(&of_replica_set(), [replica_set(), not_served()]).await;
    assert!(matches!(&refused, WriteResult::Invalid(text) if text.contains("deployments of apps/v1")), "{refused:?}");
    // A ReplicaSet of nothing above is an owner like others.
    let free = [found("cart-7d4", None), absent(), applied()];
    let replica_set = reference("apps/v1", "ReplicaSet", "cart-7d4");
    assert_eq!(result(&of_replica_set(), free).await, (WriteResult::Applied, replica_set));
}

#[tokio::test(start_paused = true)]
async fn a_refused_read_of_an_owner_is_not_repeated_for_30_s() {
    let answers = [forbidden("replicasets"), forbidden("replicasets"), replica_set(), found("cart", None), absent()];
    let wire = Wire::answering(answers.into_iter().chain([applied()]));
    let writeback = wire.writeback();
    let view = of_replica_set();
    for reads in [1, 0] {
        let sent = deliver(&writeback, &view, "1").await;
        assert!(matches!(results(&sent)[0], WriteResult::Forbidden(_)));
        assert_eq!((sent.reads, sent.requests, sent.closings.len()), (reads, 0, 0));
    }
    for (result, seconds) in [(1, 30), (3, 30)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(deliver(&writeback, &view, "1").await.reads, result);
    }
    wire.seen();
}

#[tokio::test]
async fn an_owner_that_is_gone_or_being_deleted_owns_nothing() {
    let mut replaced = metadata("cart", None);
    replaced["metadata"]["uid"] = json!("u-other");
    let mut deleting = metadata("cart", None);
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for top in [absent(), Some((200, replaced)), Some((200, deleting))] {
        assert_eq!(result(&of_replica_set(), [replica_set(), top]).await, (WriteResult::Gone, None));
    }
}

#[tokio::test]
async fn cycles_and_long_chains_end() {
    let round = (0..9).map(|step| match step % 2 {
        0 => found("cart-7d4", Some(("apps/v1", "ReplicaSet", "cart-8"))),
        _ => found("cart-8", Some(("apps/v1", "ReplicaSet", "cart-7d4"))),
    });
    // The third read of a cycle is answered from memory.
    let (refused, _) = result(&of_replica_set(), round.take(2)).await;
    assert!(matches!(&refused, WriteResult::Invalid(text) if text.contains("more than 8")), "{refused:?}");
    let chain = (0..8).map(|step| {
        let name = if step == 0 { "cart-7d4".into() } else { format!("r{step}") };
        let above = format!("r{}", step + 1);
        found(&name, Some(("shop.example/v1", "Ring", above.as_str())))
    });
    let (refused, _) = result(&of_replica_set(), chain).await;
    assert!(matches!(&refused, WriteResult::Invalid(text) if text.contains("more than 8")), "{refused:?}");
}

#[tokio::test]
async fn references_that_would_leave_the_path_are_refused() {
    for reference in [
        owner("apps/v1", "ReplicaSet", "../../secrets/a"),
        owner("apps/../v1", "ReplicaSet", "cart"),
        owner("apps/v1", "Replica/Set", "cart"),
        owner("apps/v1", "", "cart"),
        owner("apps/v1", &"K".repeat(64), "cart"),
        owner("apps/v1", "ReplicaSet", "\u{202e}cart\n"),
        Owner { uid: "u".repeat(129), ..owner("apps/v1", "ReplicaSet", "cart") },
        Owner { uid: String::new(), ..owner("apps/v1", "ReplicaSet", "cart") },
    ] {
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = "shop".into();
        pod.header.name = "cart-0".into();
        pod.header.uid = "u1".into();
        pod.header.resource_version = "5".into();
        pod.owners.push(reference.clone());
        let view = View(vec![std::sync::Arc::new(podium_pods::pod::CachedPod::new(&pod).unwrap())]);
        let (refused, _) = result(&view, []).await;
        assert!(matches!(refused, WriteResult::Invalid(_)), "{reference:?}: {refused:?}");
        // The same reference in an answer.
        let Owner { api_version, kind, name, uid, .. } = reference;
        let mut hostile = metadata("cart-7d4", None);
        hostile["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true }]);
        let (refused, _) = result(&of_replica_set(), [Some((200, hostile))]).await;
        assert!(matches!(refused, WriteResult::Invalid(_)), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_the_object_is_no_owner() {
    let of = |field: &str, value: Value| {
        let mut answer = metadata("cart-7d4", None);
        answer["metadata"][field] = value;
        Some((200, answer))
    };
    for answer in [
        of("namespace", json!("bank")),
        of("name", json!("cart")),
        of("namespace", json!(7)),
        of("uid", json!(null)),
        of("ownerReferences", json!({})),
        of("annotations", json!({ "a": "x".repeat(4 << 20) })),
        Some((200, json!([]))),
        Some((200, json!({ "kind": "ReplicaSetList", "items": [] }))),
    ] {
        let (refused, _) = result(&of_replica_set(), [answer]).await;
        assert!(matches!(&refused, WriteResult::Invalid(text) if text.contains("the ReplicaSet")), "{refused:?}");
    }
    // An API server that is overloaded or away is asked again later, and nothing else is sent.
    for (answer, waits) in [(status(429, "", ""), false), (status(503, "", ""), false), (None, false)] {
        let wire = Wire::answering([answer]);
        let sent = deliver(&wire.writeback(), &of_replica_set(), "1").await;
        assert_eq!((results(&sent), sent.retry_after.is_some()), (vec![WriteResult::NotSent], waits));
        wire.seen();
    }
}
