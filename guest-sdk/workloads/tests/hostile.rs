//! Objects of any shape do no harm: no panic, and a bounded number of changes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{Cluster, START, deployment, job, stateful_set};
use podium_workloads::{Kind, step};
use proptest::prelude::*;
use serde_json::{Value, json};

fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(-1)),
        Just(json!(i64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(1.5)),
        Just(json!(u64::MAX)),
        Just(json!("")),
        Just(json!("\u{e9}%")),
        Just(json!("99999999999%")),
        Just(json!("9999-12-31T23:59:59Z")),
        Just(json!([])),
        Just(json!([null, 7, {}])),
        Just(json!({})),
        Just(json!({"a": [[[]]]})),
        Just(json!(true)),
        "[a-z0-9-]{60,70}".prop_map(Value::from),
    ]
}

/// Replaces the value at the place that the numbers lead to.
fn replace(value: &mut Value, path: &[usize], new: Value) {
    let Some((at, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            let index = at % map.len();
            replace(map.values_mut().nth(index).unwrap(), rest, new);
        }
        Value::Array(items) if !items.is_empty() => {
            let index = at % items.len();
            replace(&mut items[index], rest, new);
        }
        _ => *value = new,
    }
}

fn worlds() -> Vec<Vec<Value>> {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Deployment, deployment(3, json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}})));
    cluster.settle();
    cluster.edit(Kind::Deployment, "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = "bad".into();
    });
    (0..4).for_each(|_| drop(cluster.step()));
    let mut sets = Cluster::new();
    let mut db = stateful_set(3, "OrderedReady");
    db["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]);
    sets.create(Kind::StatefulSet, db);
    sets.settle();
    let mut jobs = Cluster::new();
    jobs.create(Kind::Job, job(4, 2));
    jobs.step();
    [cluster, sets, jobs].into_iter().map(|cluster| cluster.objects.into_values().collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_in_any_place_is_no_panic_and_no_flood(
        world in 0_usize..3,
        changes in prop::collection::vec((any::<usize>(), prop::collection::vec(any::<usize>(), 0..9), odd()), 1..6),
        now in prop_oneof![Just(START), any::<i64>()],
    ) {
        let mut objects = worlds().swap_remove(world);
        for (index, path, new) in changes {
            let index = index % objects.len();
            replace(&mut objects[index], &path, new);
        }
        let found = step(&objects, now);
        prop_assert!(found.changes.len() < 2_000, "{} changes", found.changes.len());
    }
}

#[test]
fn a_selector_that_does_not_select_the_template_creates_nothing() {
    for labels in [json!({"app": "other"}), Value::Null] {
        let mut cluster = Cluster::new();
        let mut web = deployment(3, Value::Null);
        web["spec"]["template"]["metadata"]["labels"] = labels;
        cluster.create(Kind::Deployment, web);
        assert_eq!(cluster.step().changes, []);
    }
}
