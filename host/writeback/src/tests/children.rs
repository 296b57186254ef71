//! The host's memory of objects that plugins apply and delete, and lost responses about them, against a scripted API
//! server.

use std::time::Duration;

use podium_engine::ports::{Deliver, Sent, Staged, Taken};
use podium_vocabulary::{Action, ObjectGrant, WriteResult};
use serde_json::{Value, json};

use super::wire::{Answer, Wire, apply, results, sender, status};
use crate::{
    Writeback,
    plan::tests::{authorised, cached, key},
};

const PATH: &str = "/api/v1/namespaces/shop/configmaps/summary";
/// How long the host trusts its memory.
const TRUSTED: Duration = Duration::from_secs(600);

fn deletion(uid: Option<&str>) -> Action {
    let Action::ApplyObject { object, .. } = apply(&[]) else { unreachable!("an object") };
    Action::DeleteObject { object, uid: uid.map(str::to_owned) }
}

async fn deliver(writeback: &Writeback, action: Action) -> Sent {
    let staged = Staged { writes: authorised([action]), ..Staged::default() };
    writeback.deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await
}

/// Returns the result and the numbers of writes and reads.
async fn send(writeback: &Writeback, action: Action) -> (WriteResult, u32, u32) {
    let sent = deliver(writeback, action).await;
    (results(&sent).remove(0), sent.requests, sent.reads)
}

fn accepted() -> Answer {
    Some((200, json!({})))
}

fn absent() -> Answer {
    Some((404, json!({ "kind": "Status", "code": 404, "details": { "name": "summary" } })))
}

fn live(uid: &str, deleting: bool) -> Answer {
    let time = deleting.then_some("2026-01-01T00:00:00Z");
    Some((200, json!({ "metadata": { "name": "summary", "uid": uid, "deletionTimestamp": time } })))
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_repeated_after_ten_minutes_or_an_apply() {
    let again = [accepted(), absent(), accepted(), accepted()];
    let wire = Wire::answering([accepted()].into_iter().chain(again));
    let writeback = wire.writeback();
    assert_eq!(send(&writeback, deletion(None)).await, (WriteResult::Applied, 1, 0));
    assert_eq!(send(&writeback, deletion(None)).await, (WriteResult::Unchanged, 0, 0));
    tokio::time::advance(TRUSTED).await;
    assert_eq!(send(&writeback, deletion(None)).await, (WriteResult::Applied, 1, 0), "another client created it");
    assert_eq!(send(&writeback, apply(&[])).await, (WriteResult::Applied, 1, 1));
    assert_eq!(send(&writeback, deletion(None)).await, (WriteResult::Applied, 1, 0));
    wire.seen();
}

#[tokio::test]
async fn what_is_gone_is_not_deleted_again_and_another_incarnation_is() {
    let wire = Wire::answering([absent(), accepted(), status(409, "", ""), live("u3", false)]);
    let writeback = wire.writeback();
    assert_eq!(send(&writeback, deletion(Some("u1"))).await, (WriteResult::Gone, 1, 0));
    assert_eq!(send(&writeback, deletion(Some("u1"))).await, (WriteResult::Gone, 0, 0));
    assert_eq!(send(&writeback, deletion(None)).await, (WriteResult::Applied, 1, 0));
    assert_eq!(send(&writeback, deletion(Some("u2"))).await, (WriteResult::Gone, 1, 1));
    assert_eq!(send(&writeback, deletion(Some("u2"))).await, (WriteResult::Gone, 0, 0));
    wire.seen();
}

#[tokio::test]
async fn a_refused_deletion_is_sent_again() {
    for refused in [status(403, "", ""), status(422, "", ""), status(409, "", "")] {
        let wire = Wire::answering([refused, accepted()]);
        let writeback = wire.writeback();
        assert!(!matches!(send(&writeback, deletion(None)).await.0, WriteResult::Applied | WriteResult::Unchanged));
        assert_eq!(send(&writeback, deletion(None)).await, (WriteResult::Applied, 1, 0));
        wire.seen();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_deletion_is_resolved_by_one_read() {
    let table = [
        (absent(), WriteResult::Gone, WriteResult::Gone),
        (live("u1", true), WriteResult::Applied, WriteResult::Applied),
        (live("u1", false), WriteResult::Unknown, WriteResult::Unknown),
        (live("u2", false), WriteResult::Gone, WriteResult::Unknown),
        (Some((200, json!([]))), WriteResult::Unknown, WriteResult::Unknown),
        (status(403, "", ""), WriteResult::Unknown, WriteResult::Unknown),
        (status(503, "", ""), WriteResult::Unknown, WriteResult::Unknown),
        (None, WriteResult::Unknown, WriteResult::Unknown),
    ];
    for lost in [None, status(504, "", ""), status(408, "", "")] {
        for (read, with_uid, without) in table.clone() {
            for (uid, expected) in [(Some("u1"), with_uid.clone()), (None, without.clone())] {
                let wire = Wire::answering([lost.clone(), read.clone()]);
                let result = send(&wire.writeback(), deletion(uid)).await;
                assert_eq!(result, (expected, 1, 1), "{uid:?} {read:?}");
                assert_eq!(wire.lines()[1], format!("GET {PATH}"));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_unknown_result_is_read_before_it_is_repeated() {
    let unknown = || [None, live("u1", false)];
    let table = [
        (vec![absent()], (WriteResult::Gone, 0, 1)),
        (vec![live("u1", true)], (WriteResult::Unchanged, 0, 1)),
        (vec![live("u1", false), accepted()], (WriteResult::Applied, 1, 1)),
        (vec![status(403, "", ""), accepted()], (WriteResult::Applied, 1, 1)),
        (vec![status(503, "", "")], (WriteResult::NotSent, 0, 1)),
        (vec![None], (WriteResult::NotSent, 0, 1)),
    ];
    for (then, expected) in table {
        let wire = Wire::answering(unknown().into_iter().chain(then));
        let writeback = wire.writeback();
        assert_eq!(send(&writeback, deletion(None)).await.0, WriteResult::Unknown);
        assert_eq!(send(&writeback, deletion(None)).await, expected);
        wire.seen();
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_of_unknown_result_is_read_before_it_is_repeated() {
    let sent = Wire::answering([absent(), accepted()]);
    assert_eq!(send(&sent.writeback(), apply(&[("k", "1")])).await.0, WriteResult::Applied);
    let body: Value = sent.seen()[1].body.clone();
    let landed = || Some((200, body.clone()));
    let table = [
        (vec![landed()], (WriteResult::Unchanged, 0, 1)),
        (vec![absent(), accepted()], (WriteResult::Applied, 1, 1)),
        (vec![status(403, "", ""), accepted()], (WriteResult::Applied, 1, 1)),
        (vec![status(503, "", "")], (WriteResult::NotSent, 0, 1)),
        (vec![None], (WriteResult::NotSent, 0, 1)),
    ];
    for (then, expected) in table {
        // The first read finds nothing, the response is lost, and the read after that is too early.
        let wire = Wire::answering([absent(), None, absent()].into_iter().chain(then));
        let writeback = wire.writeback();
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Unknown, 1, 2));
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, expected);
        wire.seen();
    }
    // The lost write may still be executed for a minute, so the state that a read shows is not remembered before.
    let wire = Wire::answering([absent(), None, absent(), landed(), landed(), landed()]);
    let writeback = wire.writeback();
    assert_eq!(send(&writeback, apply(&[("k", "1")])).await.0, WriteResult::Unknown);
    for reads in [1, 1] {
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Unchanged, 0, reads));
    }
    tokio::time::advance(Duration::from_secs(60)).await;
    for reads in [1, 0] {
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Unchanged, 0, reads));
    }
    wire.seen();
}

/// Returns an answer with the object as the API server stores an applied body: with the fields that `manager` owns by
/// `operation`, and the edit of another client.
fn stored(body: &Value, uid: &str, manager: &str, operation: &str, edit: Option<&str>) -> Answer {
    let mut object = body.clone();
    let annotations = body["metadata"]["annotations"].as_object().unwrap();
    let fields: Value = annotations.keys().map(|name| (format!("f:{name}"), json!({}))).collect();
    let fields = json!({ "f:metadata": { "f:annotations": fields } });
    object["metadata"]["uid"] = json!(uid);
    let mut managers = vec![json!({ "manager": manager, "operation": operation, "fieldsV1": fields })];
    if let Some(edit) = edit {
        object["data"]["k"] = json!(edit);
        let fields = json!({ "f:data": { "f:k": {} } });
        managers.push(json!({ "manager": "kubectl-patch", "operation": "Update", "fieldsV1": fields }));
    }
    object["metadata"]["managedFields"] = json!(managers);
    Some((200, object))
}

const MANAGER: &str = "podium/shop/a";

/// Returns the body that the plugin's first apply sends, where the object was absent or foreign before.
async fn first_body(before: Answer) -> Value {
    let wire = Wire::answering([before, accepted()]);
    assert_eq!(send(&wire.writeback(), apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 1));
    wire.seen()[1].body.clone()
}

fn forced(seen: &super::wire::Seen) -> (bool, Option<&str>) {
    (seen.uri.ends_with("&force=true"), seen.body["metadata"]["uid"].as_str())
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_an_object_that_the_plugin_created_is_undone_with_force() {
    let body = first_body(absent()).await;
    let edited = stored(&body, "o1", MANAGER, "Apply", Some("by hand"));
    let whole = || stored(&body, "o1", MANAGER, "Apply", None);
    // After a restart of the host.
    let wire = Wire::answering([edited.clone(), whole()]);
    let writeback = wire.writeback();
    assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 1));
    assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Unchanged, 0, 0));
    assert_eq!(forced(&wire.seen()[1]), (true, Some("o1")));
    // While the host runs: when its memory is 10 minutes old, and for a changed body at once.
    let wire = Wire::answering([absent(), whole(), edited, whole(), whole()]);
    let writeback = wire.writeback();
    assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 1));
    tokio::time::advance(TRUSTED).await;
    assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 1));
    assert_eq!(send(&writeback, apply(&[("k", "2")])).await, (WriteResult::Applied, 1, 0));
    let seen = wire.seen();
    assert_eq!([1, 3, 4].map(|at| forced(&seen[at])), [(false, None), (true, Some("o1")), (true, Some("o1"))]);
    assert_eq!(seen[4].body["data"]["k"], "2");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_takes_much_memory_is_applied_without_a_comparison() {
    let body = first_body(absent()).await;
    for (manager, expected) in [(MANAGER, (true, Some("o1"))), ("kubectl", (false, None))] {
        let large = || {
            let (code, mut object) = stored(&body, "o1", manager, "Apply", None).unwrap();
            object["spec"] = json!(vec![json!({ "": 0 }); 100_000]);
            Some((code, object))
        };
        let wire = Wire::answering([large(), large()]);
        let writeback = wire.writeback();
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 1));
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Unchanged, 0, 0));
        assert_eq!(forced(&wire.seen()[1]), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_came_between_read_and_apply_is_not_the_plugins() {
    let body = first_body(absent()).await;
    let adopted = first_body(live("o1", false)).await;
    assert_ne!(body, adopted);
    // The API server's answer has the fields of the client that created it.
    let theirs = || stored(&body, "o1", MANAGER, "Apply", Some("1"));
    let ours = || stored(&adopted, "o1", MANAGER, "Apply", None);
    for before in [vec![absent(), theirs()], vec![absent(), None, theirs()]] {
        let writes = 2;
        let reads = before.len() as u32 - 1;
        let wire = Wire::answering(before.into_iter().chain([ours(), ours()]));
        let writeback = wire.writeback();
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, writes, reads));
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Unchanged, 0, 0));
        assert_eq!(send(&writeback, apply(&[("k", "2")])).await, (WriteResult::Applied, 1, 0));
        let seen = wire.seen();
        let [.., again, changed] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((&again.body, forced(again), forced(changed)), (&adopted, (false, None), (false, None)));
    }
    // The second apply is repeated until it succeeds.
    let wire = Wire::answering([absent(), theirs(), status(422, "", ""), ours()]);
    let writeback = wire.writeback();
    assert!(!send(&writeback, apply(&[("k", "1")])).await.0.is_settled());
    assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 0));
    assert_eq!(wire.seen()[3].body, adopted);
}

#[tokio::test]
async fn a_replaced_object_is_read_before_it_is_applied_again() {
    let body = first_body(absent()).await;
    let created = || stored(&body, "o1", MANAGER, "Apply", None);
    let foreign = Some((200, json!({ "metadata": { "name": "summary", "uid": "o2" }, "data": { "k": "theirs" } })));
    let table = [
        (status(422, "metadata.uid", "FieldValueInvalid"), foreign, status(409, ".data.k", "FieldManagerConflict"), 2),
        (status(409, "", ""), absent(), created(), 2),
    ];
    for (refused, read, answer, writes) in table {
        let wire = Wire::answering([absent(), created(), refused, read, answer.clone()]);
        let writeback = wire.writeback();
        assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 1));
        let (result, requests, reads) = send(&writeback, apply(&[("k", "2")])).await;
        assert_eq!(matches!(result, WriteResult::Applied), answer == created(), "{result:?}");
        assert_eq!((requests, reads), (writes, 1));
        let seen = wire.seen();
        assert_eq!([2, 4].map(|at| forced(&seen[at])), [(true, Some("o1")), (false, None)]);
    }
    // An object that cannot be read is not applied, because the annotation would not say any more who created it.
    for before in [vec![absent(), created(), status(422, "metadata.uid", "FieldValueInvalid")], Vec::new()] {
        let applied = u32::from(!before.is_empty());
        let wire = Wire::answering(before.into_iter().chain([status(503, "", "")]).collect::<Vec<_>>());
        let writeback = wire.writeback();
        for _ in 0..applied {
            assert_eq!(send(&writeback, apply(&[("k", "1")])).await, (WriteResult::Applied, 1, 1));
        }
        let (result, requests, reads) = send(&writeback, apply(&[("k", "2")])).await;
        assert!(!result.is_settled(), "{result:?}");
        assert_eq!((requests, reads), (applied, 1));
    }
}

#[tokio::test]
async fn a_field_of_another_manager_stays_in_an_object_that_others_created() {
    let plain = |uid: &str| Some((200, json!({ "metadata": { "name": "summary", "uid": uid } })));
    let created = first_body(absent()).await;
    let adopted = first_body(plain("o1")).await;
    let mut edited = created.clone();
    for mark in edited["metadata"]["annotations"].as_object_mut().unwrap().values_mut() {
        *mark = json!("by hand");
    }
    for live in [
        plain("o1"),
        stored(&adopted, "o1", MANAGER, "Apply", Some("theirs")),
        // A copy of the object, or of its annotations by another client.
        stored(&created, "o1", "kubectl-create", "Update", Some("theirs")),
        stored(&created, "o1", "podium/shop/b", "Apply", Some("theirs")),
        stored(&created, "o1", MANAGER, "Update", Some("theirs")),
        stored(&edited, "o1", MANAGER, "Apply", Some("theirs")),
        status(403, "", ""),
    ] {
        let wire = Wire::answering([live.clone(), status(409, ".data.k", "FieldManagerConflict")]);
        let (result, writes, reads) = send(&wire.writeback(), apply(&[("k", "1")])).await;
        assert!(matches!(&result, WriteResult::OwnedByOther(text) if text.starts_with("because; ")), "{result:?}");
        assert_eq!((writes, reads, forced(&wire.seen()[1])), (1, 1, (false, None)), "{live:?}");
    }
}

#[tokio::test]
async fn with_force_the_fields_of_another_manager_are_taken_and_reported() {
    let present = || Some((200, json!({ "metadata": { "name": "summary", "uid": "o1" } })));
    let conflict = || status(409, ".data.k", "FieldManagerConflict");
    let kind = |kind: &str, resource: &str| ObjectGrant {
        api_version: "v1".into(),
        kind: kind.into(),
        resource: resource.into(),
    };
    let deliver = async |answers: Vec<Answer>, granted: ObjectGrant| {
        let wire = Wire::answering(answers);
        let staged = Staged { writes: authorised([apply(&[("k", "1")])]), forced: vec![granted], ..Staged::default() };
        let sent = wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await;
        let seen = wire.seen();
        let applies: Vec<bool> = seen[1..].iter().map(|request| forced(request).0).collect();
        let is_claimed = |request: &super::wire::Seen| request.body.to_string().contains(",created");
        let claimed = seen.iter().any(|request| forced(request).0 && is_claimed(request));
        assert!(!claimed, "an object of another client");
        (results(&sent).remove(0), sent.taken, applies)
    };
    let granted = || kind("ConfigMap", "configmaps");
    let (result, taken, applies) = deliver(vec![present(), conflict(), present()], granted()).await;
    assert_eq!((result, applies), (WriteResult::Applied, vec![false, true]));
    let Action::ApplyObject { object, .. } = apply(&[]) else { unreachable!("an object") };
    assert_eq!(taken, [Taken { object, message: "because".to_owned() }]);
    // Another client creates it meanwhile.
    let (result, _, applies) = deliver(vec![absent(), conflict(), present()], granted()).await;
    assert_eq!((result, applies), (WriteResult::Applied, vec![false, true]));
    let (result, taken, applies) = deliver(vec![present(), present()], granted()).await;
    assert_eq!((result, taken, applies), (WriteResult::Applied, vec![], vec![false]), "nothing to take");
    for answer in [conflict(), status(403, "", "")] {
        let (result, taken, applies) = deliver(vec![present(), conflict(), answer], granted()).await;
        assert_eq!((taken, applies), (vec![], vec![false, true]), "{result:?}");
        assert!(matches!(result, WriteResult::OwnedByOther(_) | WriteResult::Forbidden(_)), "{result:?}");
    }
    for other in [kind("Secret", "secrets"), kind("ConfigMap", "others")] {
        let (result, taken, applies) = deliver(vec![present(), conflict()], other).await;
        assert_eq!((taken, applies), (vec![], vec![false]), "{result:?}");
        assert!(matches!(result, WriteResult::OwnedByOther(_)), "{result:?}");
    }
}
