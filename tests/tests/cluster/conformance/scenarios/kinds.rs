//! Kinds other than Pods: Events of both groups, Leases, custom resources.

use anyhow::Result;
use serde_json::{Value, json};

use super::pod;
use crate::conformance::exchange::{APPLY, Call, Exchange, MERGE, revision, uid};

pub(crate) async fn events(x: &mut Exchange) -> Result<()> {
    let regarding = x.step("create a Pod", Call::post(x.path("pods"), pod("a", None, json!({})))).await?;
    let all = x.group_path("events.k8s.io/v1", "events");
    let namespace = x.namespace.clone();
    let event = |name: &str| {
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "eventTime": "2020-01-01T00:00:00.000000Z",
            "reportingController": "podium.dev/host",
            "reportingInstance": "podium-0",
            "action": "Check",
            "reason": "MutableTag",
            "regarding": {
                "apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": namespace, "uid": uid(&regarding),
            },
            "note": "the tag can move",
            "type": "Warning",
        })
    };
    x.step("create", Call::post(&*all, event("a.1"))).await?;
    for field in ["action", "reason", "eventTime", "reportingController", "reportingInstance", "type", "note"] {
        let mut without = event("a.2");
        if let Some(fields) = without.as_object_mut() {
            fields.remove(field);
        }
        x.step(&format!("without {field}"), Call::post(&*all, without)).await?;
        x.look(Call::delete(format!("{all}/a.2"), json!({}))).await?;
    }
    let mut long = event("a.3");
    long["note"] = "n".repeat(1025).into();
    x.step("a note that is too long", Call::post(&*all, long)).await?;
    let mut kind = event("a.4");
    kind["type"] = "Alarm".into();
    x.step("a type that is none", Call::post(&*all, kind)).await?;
    let mut elsewhere = event("a.5");
    elsewhere["regarding"]["namespace"] = "default".into();
    x.step("about a Pod elsewhere", Call::post(&*all, elsewhere)).await?;
    let series = json!({ "series": { "count": 2, "lastObservedTime": "2020-01-01T00:01:00.000000Z" } });
    x.step("it happens again", Call::patch(MERGE, format!("{all}/a.1"), series)).await?;
    x.step("as the core group shows it", Call::get(x.path("events/a.1"))).await?;
    let about = format!("{}?fieldSelector=involvedObject.name%3Da", x.path("events"));
    x.step("found by what it is about", Call::get(about)).await?;
    let core = json!({
        "metadata": { "name": "a.6" },
        "involvedObject": { "kind": "Pod", "name": "a", "namespace": namespace },
        "reason": "Started", "message": "hello", "type": "Normal", "count": 1,
        "source": { "component": "conformance" },
        "firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2020-01-01T00:00:00Z",
    });
    x.step("one of the core group", Call::post(x.path("events"), core)).await?;
    x.step("as the other group shows it", Call::get(format!("{all}/a.6"))).await.map(drop)
}

pub(crate) async fn leases(x: &mut Exchange) -> Result<()> {
    let all = x.group_path("coordination.k8s.io/v1", "leases");
    let one = format!("{all}/leader");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "leader" },
        "spec": {
            "holderIdentity": "podium-0_1",
            "leaseDurationSeconds": 15,
            "acquireTime": "2020-01-01T00:00:00.000000Z",
            "renewTime": "2020-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        },
    });
    let made = x.step("create", Call::post(&*all, lease)).await?;
    let mut renewed = made.clone();
    renewed["spec"]["renewTime"] = "2020-01-01T00:00:02.000000Z".into();
    x.step("renew", Call::put(&*one, renewed.clone())).await?;
    x.step("a lost race", Call::put(&*one, renewed.clone())).await?;
    renewed["metadata"]["resourceVersion"] = Value::Null;
    x.step("renew without a revision", Call::put(&*one, renewed)).await?;
    let bad = json!({ "spec": { "leaseDurationSeconds": -1 } });
    x.step("a duration that is none", Call::patch(MERGE, &*one, bad)).await?;
    let released = json!({
        "metadata": { "resourceVersion": revision(&made) }, "spec": { "holderIdentity": "" },
    });
    x.step("release with an old revision", Call::patch(MERGE, &*one, released)).await.map(drop)
}

pub(crate) async fn custom(x: &mut Exchange) -> Result<()> {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": { "size": { "type": "integer", "minimum": 1 }, "note": { "type": "string" } },
            },
            "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
        },
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.suite.podium.dev" },
        "spec": {
            "group": "suite.podium.dev",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"] },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
                "additionalPrinterColumns": [{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }],
            }],
        },
    });
    // Its conditions are set asynchronously.
    let define = Call::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
    x.step("define", define.hiding("status")).await?;
    let all = x.group_path("suite.podium.dev/v1", "widgets");
    x.eventually("it is served", 200, Call::get(&*all)).await?;
    let one = format!("{all}/a");
    let named = |name: &str, spec: Value| {
        let metadata = json!({ "name": name });
        json!({ "apiVersion": "suite.podium.dev/v1", "kind": "Widget", "metadata": metadata, "spec": spec })
    };
    let widget = |spec: Value| named("a", spec);
    x.step("a value against the schema", Call::post(&*all, named("b", json!({ "size": 0 })))).await?;
    x.step("a missing field", Call::post(&*all, named("c", json!({})))).await?;
    x.step("another type", Call::post(&*all, named("d", json!({ "size": "big" })))).await?;
    x.step("an unknown field", Call::post(&*all, named("e", json!({ "size": 1, "x": 1 })))).await?;
    let made = x.step("create", Call::post(&*all, widget(json!({ "size": 1 })))).await?;
    x.note("the generation", &made["metadata"]["generation"]);
    x.step("change the spec", Call::patch(MERGE, &*one, json!({ "spec": { "size": 2 } }))).await?;
    x.step("change a label", Call::patch(MERGE, &*one, json!({ "metadata": { "labels": { "l": "1" } } }))).await?;
    x.step("status through the main resource", Call::patch(MERGE, &*one, json!({ "status": { "phase": "x" } })))
        .await?;
    let status = format!("{one}/status");
    x.step("status", Call::patch(MERGE, &*status, json!({ "status": { "phase": "Fine" } }))).await?;
    let strategic = Call::patch("application/strategic-merge-patch+json", &*one, json!({ "spec": { "size": 3 } }));
    x.step("no strategic merge for custom resources", strategic).await?;
    let applied = Call::patch(APPLY, format!("{one}?fieldManager=one"), widget(json!({ "size": 2, "note": "n" })));
    x.step("apply", applied).await?;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    x.step("as a table", Call::get(&*one).accept(table).hiding("description")).await?;
    x.step("delete", Call::delete(&*one, json!({}))).await?;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.suite.podium.dev";
    let undefine = Call::delete(definition, json!({})).hiding("status");
    // The real server answers before it has removed the kind, so the next step waits.
    x.look(undefine).await?;
    x.eventually("it is served no more", 404, Call::get(&*all).hiding("message").hiding("details")).await.map(drop)
}
