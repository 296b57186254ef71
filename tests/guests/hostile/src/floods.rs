//! Calls without end. A flood repeats one call until the run is interrupted, whatever the host returns.

use bindings::{
    Failure, Outcome, events, log, objects, pods, state,
    types::{ConditionStatus, EventType, LabelOperator, ObjectRef},
    writes,
};

use crate::{
    Attack,
    names::{all, labelled, requirement},
};

pub const ATTACKS: &[(&str, Attack)] = &[
    ("flood-pods-get", |request, _| forever(|| drop(pods::get(&request.key.namespace, &request.key.name)))),
    ("flood-pods-find", |_, _| forever(|| drop(pods::find(&all(), 1, None)))),
    ("flood-pods-count", |_, _| forever(|| drop(pods::count(&all())))),
    ("flood-pods-get-live", |_, _| forever(|| drop(pods::get_live("shop", "cart-0")))),
    ("flood-set-label", |request, _| forever(|| drop(writes::set_label(&request.key, "guests.example/a", "1")))),
    ("flood-remove-label", |request, _| forever(|| drop(writes::remove_label(&request.key, "guests.example/a")))),
    ("flood-set-annotation", |request, _| {
        forever(|| drop(writes::set_annotation(&request.key, "guests.example/a", "1")))
    }),
    ("flood-remove-annotation", |request, _| {
        forever(|| drop(writes::remove_annotation(&request.key, "guests.example/a")))
    }),
    ("flood-add-finalizer", |request, _| forever(|| drop(writes::add_finalizer(&request.key, "guests.example/a")))),
    ("flood-remove-finalizer", |request, _| {
        forever(|| drop(writes::remove_finalizer(&request.key, "guests.example/a")))
    }),
    ("flood-set-condition", |request, _| {
        forever(|| drop(writes::set_condition(&request.key, "guests.example/a", ConditionStatus::True, "A", "b")))
    }),
    ("flood-remove-condition", |request, _| {
        forever(|| drop(writes::remove_condition(&request.key, "guests.example/a")))
    }),
    ("flood-delete-pod", |request, _| forever(|| drop(writes::delete_pod(&request.key, None)))),
    ("flood-evict-pod", |request, _| forever(|| drop(writes::evict_pod(&request.key)))),
    ("flood-apply-object", |_, _| {
        forever(|| {
            let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"a"}}"#;
            drop(writes::apply_object(object, None));
        })
    }),
    ("flood-delete-object", |_, _| forever(|| drop(writes::delete_object(&config_map(), None)))),
    ("flood-objects-scale", |_, _| forever(|| drop(objects::scale(&config_map(), 3)))),
    ("flood-objects-get", |_, _| forever(|| drop(objects::get(&config_map())))),
    ("flood-commit", |_, _| forever(|| drop(writes::commit()))),
    ("flood-emit", |request, _| {
        forever(|| drop(events::emit(&request.key, EventType::Normal, "Flooded", "Flood", "again")))
    }),
    ("flood-state-get", |_, _| forever(|| drop(state::get("a")))),
    ("flood-state-put", |_, _| forever(|| drop(state::put("a", b"a", None)))),
    ("flood-state-remove", |_, _| forever(|| drop(state::remove("a", None)))),
    ("flood-log", |_, _| forever(|| log::write(log::Level::Info, "again", &[]))),
    ("flood-calls-without-a-grant", |request, _| {
        forever(|| drop(writes::set_label(&request.key, "other.example/a", "1")))
    }),
    ("flood-invalid-calls", |request, _| forever(|| drop(writes::set_label(&request.key, "", "")))),
    ("stage-more-than-the-writes-of-a-run", |request, tally| {
        for at in 0..100 {
            tally.add(writes::set_label(&request.key, &format!("guests.example/k{at}"), "1"));
        }
        None
    }),
    ("stage-more-than-the-bytes-of-a-run", |request, tally| {
        let value = "x".repeat(60_000);
        for at in 0..50 {
            tally.add(writes::set_annotation(&request.key, &format!("guests.example/k{at}"), &value));
        }
        None
    }),
    ("emit-more-than-the-writes-of-a-run", |request, tally| {
        for at in 0..100 {
            tally.add(events::emit(&request.key, EventType::Warning, &format!("Reason{at}"), "Flood", "a note"));
        }
        None
    }),
    ("search-without-an-end", |_, tally| {
        let values = (0..64).map(|at| format!("{}{at}", "v".repeat(50))).collect::<Vec<_>>();
        let query = labelled(vec![requirement("app", LabelOperator::NotIn, values); 32]);
        for _ in 0..900 {
            tally.add(pods::count(&query));
        }
        None
    }),
    ("store-more-than-a-share-of-state", |_, tally| {
        for at in 0..300 {
            tally.put(state::put(&format!("k{at}"), &vec![7; 64 << 10], None));
        }
        None
    }),
    ("store-values-that-are-too-large", |_, tally| {
        tally.put(state::put("a", &vec![7; (64 << 10) + 1], None));
        tally.put(state::put("a", &vec![7; 200 << 10], Some(u64::MAX)));
        None
    }),
    ("commit-drip", |request, tally| {
        for at in 0..40 {
            tally.add(writes::set_label(&request.key, "guests.example/a", &at.to_string()));
            if let Some(reports) = tally.add(writes::commit()) {
                drop(reports);
            }
        }
        None
    }),
    ("live-drip", |_, tally| {
        for _ in 0..50 {
            tally.read(pods::get_live("shop", "cart-0"));
        }
        None
    }),
];

fn config_map() -> ObjectRef {
    let api_version = "v1".to_owned();
    let kind = "ConfigMap".to_owned();
    ObjectRef { api_version, kind, namespace: Some("shop".into()), name: "a".into() }
}

fn forever(call: impl Fn()) -> Option<Result<Outcome, Failure>> {
    loop {
        call();
    }
}
