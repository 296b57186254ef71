//! Replicas of objects: the read of the subresource, its patch, and the meaning of the responses.

use podium_engine::ports::{Deliver, Staged};
use podium_vocabulary::{Action, ObjectRef, WriteResult};
use serde_json::{Value, json};

use super::{
    delivery::deliver,
    wire::{Answer, Wire, results, sender},
};
use crate::plan::tests::{authorised, cached, key};

fn scale_to(replicas: u32) -> Action {
    let object = ObjectRef {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        resource: "deployments".into(),
        namespace: Some("shop".into()),
        name: "web".into(),
    };
    Action::Scale { object, replicas }
}

fn scaled(replicas: u32) -> Answer {
    let metadata = json!({ "namespace": "shop", "name": "web", "resourceVersion": "7" });
    let scale = json!({ "kind": "Scale", "metadata": metadata, "spec": { "replicas": replicas } });
    Some((200, scale))
}

#[tokio::test]
async fn replicas_are_patched_in_the_subresource_at_the_revision_that_was_read() {
    let wire = Wire::answering([scaled(1), scaled(3)]);
    let sent = deliver(&wire, [scale_to(3)]).await;
    assert_eq!((results(&sent), sent.requests, sent.reads), (vec![WriteResult::Applied], 1, 1));
    let path = "/apis/apps/v1/namespaces/shop/deployments/web/scale";
    let seen = wire.seen();
    let lines = [format!("GET {path}"), format!("PATCH {path}?fieldManager=podium/shop/a&timeout=7s")];
    assert_eq!(wire.lines(), lines);
    assert!(seen.iter().all(|seen| seen.user.as_deref() == Some("system:serviceaccount:shop:a")));
    assert_eq!(seen[1].content, "application/merge-patch+json");
    assert_eq!(seen[1].body, json!({ "metadata": { "resourceVersion": "7" }, "spec": { "replicas": 3 } }));
}

#[tokio::test]
async fn a_refused_read_of_replicas_closes_the_kind_for_the_next_object() {
    let message = r#"deployments.apps "web" is forbidden: User "a" cannot get resource "deployments/scale""#;
    let refusal = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": message });
    let wire = Wire::answering([Some((403, refusal))]);
    let writeback = wire.writeback();
    for reads in [1, 0] {
        let staged = Staged { writes: authorised([scale_to(3)]), ..Staged::default() };
        let sent = writeback.deliver(&sender(), &key(), &cached(|_| ()), staged, 7_500).await;
        assert!(matches!(&*results(&sent), [WriteResult::Forbidden(_)]), "{:?}", results(&sent));
        assert_eq!((sent.requests, sent.reads), (0, reads));
    }
    assert_eq!(wire.seen().len(), 1);
}

#[tokio::test]
async fn replicas_that_are_right_need_no_request() {
    // Zero is left out of the answer.
    let metadata = json!({ "namespace": "shop", "name": "web", "resourceVersion": "7" });
    for (answer, replicas) in [(scaled(3), 3), (Some((200, json!({ "metadata": metadata, "spec": {} }))), 0)] {
        let sent = deliver(&Wire::answering([answer]), [scale_to(replicas)]).await;
        assert_eq!((results(&sent), sent.requests), (vec![WriteResult::Unchanged], 0));
    }
}

#[tokio::test]
async fn a_refused_read_or_patch_of_replicas_means_what_it_says() {
    let because = || "because".to_owned();
    let status = |code: u16, name: &str| {
        let details = json!({ "name": name });
        Some((code, json!({ "kind": "Status", "code": code, "message": "because", "details": details })))
    };
    let unserved = "deployments/scale of apps/v1 are not served with a namespace by this API server; correct \
        apiVersion and resource of the grant, or metadata.namespace of the object";
    let missing = "apps/v1 Deployment shop/web has no subresource scale; its definition has to have one";
    let another = "the API server's answer is no Scale of apps/v1 Deployment shop/web; correct apiVersion and resource";
    let another = WriteResult::Invalid(another.to_owned());
    let internal = json!({ "kind": "Status", "code": 500, "reason": "InternalError", "message": "because" });
    let internal = Some((500, internal));
    let of_spec =
        |spec: Value| Some((200, json!({ "metadata": { "name": "web", "resourceVersion": "7" }, "spec": spec })));
    for (answers, expected) in [
        (vec![status(404, "web"), status(404, "web")], WriteResult::Gone),
        (vec![status(404, "web"), scaled(1)], WriteResult::Invalid(missing.to_owned())),
        (vec![status(404, "")], WriteResult::Invalid(unserved.to_owned())),
        (vec![status(403, "web")], WriteResult::Forbidden(because())),
        (vec![status(500, "web")], WriteResult::NotSent),
        (vec![internal], WriteResult::Invalid(because())),
        (vec![Some((200, json!({ "metadata": { "name": "other", "resourceVersion": "1" } })))], another.clone()),
        (vec![Some((200, json!({ "metadata": { "name": "web" }, "spec": null })))], another),
        (vec![of_spec(json!({ "replicas": -1 })), scaled(3)], WriteResult::Applied),
        (vec![of_spec(json!(null)), scaled(3)], WriteResult::Applied),
        (vec![scaled(1), status(404, "web")], WriteResult::Gone),
        (vec![scaled(1), status(409, "web")], WriteResult::Conflict),
        (vec![scaled(1), status(422, "web")], WriteResult::Invalid(because())),
        (vec![scaled(1), status(403, "web")], WriteResult::Forbidden(because())),
        // Lost, and read again.
        (vec![scaled(1), status(504, "web"), scaled(3)], WriteResult::Applied),
        (vec![scaled(1), status(504, "web"), scaled(1)], WriteResult::Unknown),
        (vec![scaled(1), status(504, "web"), status(404, "web")], WriteResult::Unknown),
    ] {
        let wire = Wire::answering(answers.clone());
        assert_eq!(results(&deliver(&wire, [scale_to(3)]).await), [expected], "{answers:?}");
        wire.seen();
    }
}
