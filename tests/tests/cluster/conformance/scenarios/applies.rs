//! Server-side apply: owners of fields, conflicts, incarnations, and why the host never applies Pods.

use anyhow::Result;
use serde_json::{Value, json};

use super::{config_map, pod};
use crate::conformance::exchange::{APPLY, Call, Exchange, MERGE, uid};

fn apply(x: &Exchange, manager: &str, object: Value) -> Call {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Call::patch(APPLY, format!("{}?fieldManager={manager}", x.path(&format!("configmaps/{name}"))), object)
}

pub(crate) async fn conflicts(x: &mut Exchange) -> Result<()> {
    let one = |data: Value| config_map("a", data);
    x.step("apply creates", apply(x, "podium%2Fone", one(json!({ "k": "1", "own": "1" })))).await?;
    x.step("apply the same", apply(x, "podium%2Fone", one(json!({ "k": "1", "own": "1" })))).await?;
    x.step("another manager, other fields", apply(x, "two", one(json!({ "theirs": "2" })))).await?;
    x.step("another manager, the same value", apply(x, "three", one(json!({ "k": "1" })))).await?;
    x.step("another manager, another value", apply(x, "two", one(json!({ "theirs": "2", "k": "2" })))).await?;
    let forced = Call::patch(
        APPLY,
        format!("{}?fieldManager=two&force=true", x.path("configmaps/a")),
        one(json!({ "theirs": "2", "k": "2" })),
    );
    x.step("by force", forced).await?;
    x.step("a field that is applied no more is removed", apply(x, "podium%2Fone", one(json!({ "k": "2" })))).await?;
    let patch = Call::patch(
        MERGE,
        format!("{}?fieldManager=updater", x.path("configmaps/a")),
        json!({ "data": { "theirs": "3", "new": "4" } }),
    );
    x.step("an update takes a field over", patch).await?;
    x.step("and apply finds the conflict", apply(x, "two", one(json!({ "theirs": "2", "k": "2" })))).await?;
    x.step("without a manager", Call::patch(APPLY, x.path("configmaps/a"), one(json!({})))).await?;
    let patch = Call::patch(MERGE, format!("{}?force=true", x.path("configmaps/a")), json!({ "data": {} }));
    x.step("force without apply", patch).await?;
    let nameless = Call::patch(
        APPLY,
        format!("{}?fieldManager=one", x.path("configmaps/a")),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": {} }),
    );
    x.step("a body without a name", nameless).await?;
    let kindless = json!({ "metadata": { "name": "a" } });
    x.step("a body without a kind", apply(x, "one", kindless)).await?;
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b" } });
    let misnamed = Call::patch(APPLY, format!("{}?fieldManager=one", x.path("configmaps/a")), other);
    x.step("a body of another name", misnamed).await.map(drop)
}

pub(crate) async fn incarnations(x: &mut Exchange) -> Result<()> {
    let of = |uid: &str, value: &str| {
        let mut object = config_map("a", json!({ "k": value }));
        object["metadata"]["uid"] = uid.into();
        object
    };
    let other = "00000000-0000-4000-8000-000000000001";
    x.step("a uid where nothing is", apply(x, "one", of(other, "1"))).await?;
    let made = x.step("create", Call::post(x.path("configmaps"), config_map("a", json!({ "k": "0" })))).await?;
    x.step("another uid", apply(x, "one", of(other, "0"))).await?;
    x.step("the right uid", apply(x, "one", of(&uid(&made), "0"))).await?;
    let mut owned = of(&uid(&made), "0");
    let reference = json!({
        "apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": other, "controller": false,
    });
    owned["metadata"]["ownerReferences"] = json!([reference]);
    let dry = Call::patch(APPLY, format!("{}?fieldManager=one&dryRun=All", x.path("configmaps/a")), owned);
    x.step("with an owner, as a dry run", dry).await.map(drop)
}

pub(crate) async fn on_pods(x: &mut Exchange) -> Result<()> {
    x.step("create", Call::post(x.path("pods"), pod("a", None, json!({ "team": "red" })))).await?;
    let path = |manager: &str| format!("{}?fieldManager={manager}", x.path("pods/a"));
    let labels =
        |labels: Value| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "labels": labels } });
    let (one, both) = (path("one"), path("conformance"));
    x.step("apply one label", Call::patch(APPLY, &*one, labels(json!({ "a": "1" })))).await?;
    x.step("apply another: the first is gone", Call::patch(APPLY, &*one, labels(json!({ "b": "1" })))).await?;
    let annotated =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "annotations": { "n": "1" } } });
    x.step("only an annotation: the label is gone", Call::patch(APPLY, &*one, annotated)).await?;
    let taken = Call::patch(APPLY, &*both, labels(json!({ "team": "blue" })));
    x.step("apply and update under one name", taken).await.map(drop)
}
