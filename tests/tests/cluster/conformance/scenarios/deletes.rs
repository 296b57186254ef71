//! Deletion: at once, with a grace period, with finalizers, by eviction and by owner; and the revisions that report
//! it.

use anyhow::Result;
use serde_json::{Value, json};

use super::{config_map, pod};
use crate::conformance::exchange::{Call, Exchange, STRATEGIC, revision, text, uid};

pub(crate) async fn deletion(x: &mut Exchange) -> Result<()> {
    let start = revision(&x.step("the list to start from", Call::get(x.path("pods"))).await?);
    x.step("create a Pod without a node", Call::post(x.path("pods"), pod("a", None, json!({})))).await?;
    let gone = x.step("delete it", Call::delete(x.path("pods/a"), json!({}))).await?;
    x.step("it is gone at once", Call::get(x.path("pods/a"))).await?;
    let deleted = last_event(x, &start).await?;
    x.note("the answer has the revision of DELETED", revision(&gone) == revision(&deleted["object"]));
    x.step("delete it again", Call::delete(x.path("pods/a"), json!({}))).await?;
    x.step("create a ConfigMap", Call::post(x.path("configmaps"), config_map("a", json!({})))).await?;
    x.step("a dry run", Call::delete(x.path("configmaps/a"), json!({ "dryRun": ["All"] }))).await?;
    let both = Call::delete(format!("{}?dryRun=All", x.path("configmaps/a")), json!({ "gracePeriodSeconds": 0 }));
    x.step("options in the body: the query's are ignored", both).await?;
    x.step("so it is gone", Call::get(x.path("configmaps/a"))).await?;
    for name in ["x", "y", "z"] {
        let labels = json!({ "group": if name == "z" { "other" } else { "these" } });
        x.step("create one of many", Call::post(x.path("pods"), pod(name, None, labels))).await?;
    }
    let these = format!("{}?labelSelector=group%3Dthese", x.path("pods"));
    x.step("delete many", Call::delete(these, json!({ "gracePeriodSeconds": 0 })).hiding("items")).await?;
    x.step("the others stay", Call::get(x.path("pods")).hiding("spec")).await.map(drop)
}

pub(crate) async fn graceful(x: &mut Exchange) -> Result<()> {
    let start = revision(&x.step("the list to start from", Call::get(x.path("pods"))).await?);
    let made = x.step("create on a node", Call::post(x.path("pods"), pod("a", Some("far-away"), json!({})))).await?;
    x.step("delete", Call::delete(x.path("pods/a"), json!({}))).await?;
    x.step("it is terminating", Call::get(x.path("pods/a"))).await?;
    x.step("delete with less grace", Call::delete(x.path("pods/a"), json!({ "gracePeriodSeconds": 5 }))).await?;
    x.step("delete with more grace", Call::delete(x.path("pods/a"), json!({ "gracePeriodSeconds": 60 }))).await?;
    let now = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": uid(&made) } });
    let gone = x.step("delete without grace", Call::delete(x.path("pods/a"), now)).await?;
    x.step("it is gone", Call::get(x.path("pods/a"))).await?;
    let deleted = last_event(x, &start).await?;
    x.note("the answer has the revision of DELETED", revision(&gone) == revision(&deleted["object"]));
    Ok(())
}

pub(crate) async fn last_finalizer(x: &mut Exchange) -> Result<()> {
    let start = revision(&x.step("the list to start from", Call::get(x.path("pods"))).await?);
    let mut body = pod("a", Some("far-away"), json!({}));
    body["metadata"]["finalizers"] = json!(["shop.example/hold"]);
    x.step("create with a finalizer", Call::post(x.path("pods"), body)).await?;
    let deletion = Call::delete(x.path("pods/a"), json!({ "gracePeriodSeconds": 0 }));
    let held = x.step("delete without grace", deletion.clone()).await?;
    x.step("delete again", deletion).await?;
    let patch = json!({
        "metadata": { "uid": uid(&held), "$deleteFromPrimitiveList/finalizers": ["shop.example/hold"] }
    });
    let answer = x.step("remove the finalizer", Call::patch(STRATEGIC, x.path("pods/a"), patch)).await?;
    x.note("the answer has the revision of before", revision(&answer) == revision(&held));
    x.step("it is gone", Call::get(x.path("pods/a"))).await?;
    let deleted = last_event(x, &start).await?;
    let number = |object: &Value| revision(object).parse::<u64>().unwrap_or_default();
    x.note("DELETED has a higher one", number(&deleted["object"]) > number(&answer));
    Ok(())
}

/// Records the watch since `start` and returns its last event.
async fn last_event(x: &mut Exchange, start: &str) -> Result<Value> {
    let path = format!("{}?watch=1&resourceVersion={start}&timeoutSeconds=1", x.path("pods"));
    let events = x.watch("what the watch saw", path).await?;
    Ok(events.into_iter().last().unwrap_or_default())
}

fn eviction_body(name: &str, options: Value) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name }, "deleteOptions": options })
}

async fn evict(x: &mut Exchange, what: &str, name: &str, options: Value) -> Result<Value> {
    x.step(what, Call::post(x.path(&format!("pods/{name}/eviction")), eviction_body(name, options))).await
}

async fn blocked(x: &mut Exchange) -> Result<()> {
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": "all-of-them" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "guarded": "yes" } } },
    });
    x.step("a budget", Call::post(x.group_path("policy/v1", "poddisruptionbudgets"), budget)).await?;
    let made = pod("guarded", Some("far-away"), json!({ "guarded": "yes" }));
    x.step("a Pod that it guards", Call::post(x.path("pods"), made)).await?;
    // A Pod that does not run needs no budget.
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z" }]);
    let running = json!({ "status": { "phase": "Running", "conditions": ready } });
    x.step("it runs", Call::patch(STRATEGIC, x.path("pods/guarded/status"), running)).await?;
    // The disruption controller sets the budget's status, but not for a Pod without a controller.
    let path = x.path("pods/guarded/eviction");
    let call = Call::post(path, eviction_body("guarded", json!({}))).hiding("message").hiding("retryAfterSeconds");
    x.eventually("evict it", 429, call).await.map(drop)
}

pub(crate) async fn eviction(x: &mut Exchange) -> Result<()> {
    let made = x.step("create", Call::post(x.path("pods"), pod("a", Some("far-away"), json!({})))).await?;
    let other = json!({ "preconditions": { "uid": "00000000-0000-4000-8000-000000000001" } });
    evict(x, "evict another uid", "a", other).await?;
    evict(x, "a dry run", "a", json!({ "dryRun": ["All"] })).await?;
    let right = json!({ "preconditions": { "uid": uid(&made) } });
    evict(x, "evict the right one", "a", right).await?;
    x.step("it is terminating, with a condition", Call::get(x.path("pods/a"))).await?;
    evict(x, "evict an absent Pod", "none", json!({})).await?;
    blocked(x).await
}

pub(crate) async fn garbage(x: &mut Exchange) -> Result<()> {
    let all = x.path("configmaps");
    let owner = x.step("the owner", Call::post(&*all, config_map("owner", json!({})))).await?;
    let owned_by = |name: &str, uid: &str| {
        let mut object = config_map(name, json!({}));
        let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid });
        object["metadata"]["ownerReferences"] = json!([reference]);
        object
    };
    x.step("a dependent", Call::post(&*all, owned_by("dependent", &uid(&owner)))).await?;
    let orphan = owned_by("orphan", "00000000-0000-4000-8000-000000000001");
    x.step("a dependent of what never was", Call::post(&*all, orphan)).await?;
    x.eventually("it is collected", 404, Call::get(x.path("configmaps/orphan"))).await?;
    x.step("delete the owner", Call::delete(x.path("configmaps/owner"), json!({}))).await?;
    x.eventually("the dependent follows", 404, Call::get(x.path("configmaps/dependent"))).await?;

    let owner = x.step("an owner again", Call::post(&*all, config_map("owner", json!({})))).await?;
    x.note("has another uid", !text(&owner, "/metadata/uid").is_empty());
    x.step("its dependent", Call::post(&*all, owned_by("kept", &uid(&owner)))).await?;
    let orphaning = Call::delete(x.path("configmaps/owner"), json!({ "propagationPolicy": "Orphan" }));
    x.step("delete it and orphan the dependent", orphaning.hiding("finalizers")).await?;
    x.eventually("the owner goes", 404, Call::get(x.path("configmaps/owner"))).await?;
    let kept = Call::get(x.path("configmaps/kept"));
    x.step("the dependent stays", kept).await.map(drop)
}
