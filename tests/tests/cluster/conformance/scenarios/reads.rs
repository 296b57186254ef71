//! Objects that are written and read back, lists with limits and selectors, tables, discovery.

use anyhow::Result;
use serde_json::{Value, json};

use super::{config_map, pod};
use crate::conformance::exchange::{Call, Exchange, JSON_PATCH, MERGE, STRATEGIC, revision, text};

/// The media type that kubectl requests. The descriptions of columns are hidden.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub(crate) async fn objects(x: &mut Exchange) -> Result<()> {
    let (all, one) = (x.path("configmaps"), x.path("configmaps/a"));
    x.step("get an absent object", Call::get(&*one)).await?;
    let made = x.step("create", Call::post(&*all, config_map("a", json!({ "k": "v" })))).await?;
    x.step("create again", Call::post(&*all, config_map("a", json!({})))).await?;
    x.step("create with a generated name", {
        let body = json!({ "metadata": { "generateName": "gen-" } });
        Call::post(&*all, body).hiding("name")
    })
    .await?;
    x.step("create without a name", Call::post(&*all, json!({ "metadata": {} }))).await?;
    x.step("create with a bad name", Call::post(&*all, config_map("A_b", json!({})))).await?;
    x.step("create in another namespace than the path's", {
        let body = json!({ "metadata": { "name": "b", "namespace": "elsewhere" } });
        Call::post(&*all, body)
    })
    .await?;
    x.step("create with a resourceVersion", {
        let body = json!({ "metadata": { "name": "b", "resourceVersion": "5" } });
        Call::post(&*all, body)
    })
    .await?;
    x.step("create without changing anything", {
        let body = config_map("dry", json!({ "k": "v" }));
        Call::post(format!("{all}?dryRun=All"), body)
    })
    .await?;
    x.step("the dry run left nothing", Call::get(x.path("configmaps/dry"))).await?;

    x.step("get", Call::get(&*one)).await?;
    let merged = Call::patch(MERGE, &*one, json!({ "data": { "k": null, "l": "w" } }));
    x.step("merge patch", merged).await?;
    x.step("merge patch that changes nothing", Call::patch(MERGE, &*one, json!({ "data": { "l": "w" } }))).await?;
    let operations = json!([{ "op": "add", "path": "/data/m", "value": "x" }, { "op": "remove", "path": "/data/l" }]);
    let patched = x.step("JSON patch", Call::patch(JSON_PATCH, &*one, operations)).await?;
    let operations = json!([{ "op": "test", "path": "/data/m", "value": "other" }]);
    x.step("JSON patch whose test fails", Call::patch(JSON_PATCH, &*one, operations)).await?;
    let operations = json!([{ "op": "remove", "path": "/data/missing" }]);
    x.step("JSON patch that removes an absent value", Call::patch(JSON_PATCH, &*one, operations)).await?;
    x.step("patch of an unknown type", Call::patch("application/unknown", &*one, json!({}))).await?;
    x.step("patch an absent object", Call::patch(MERGE, x.path("configmaps/none"), json!({ "data": {} }))).await?;

    let mut replacement = patched.clone();
    replacement["data"] = json!({ "n": "y" });
    x.step("replace", Call::put(&*one, replacement.clone())).await?;
    x.step("replace with an old revision", Call::put(&*one, replacement.clone())).await?;
    replacement["metadata"]["resourceVersion"] = Value::Null;
    replacement["data"] = json!({ "n": "z" });
    x.step("replace without a revision", Call::put(&*one, replacement.clone())).await?;
    replacement["metadata"]["uid"] = "00000000-0000-4000-8000-000000000001".into();
    x.step("replace with another uid", Call::put(&*one, replacement)).await?;
    let patch = json!({ "metadata": { "resourceVersion": revision(&made) }, "data": { "o": "p" } });
    x.step("patch with an old revision", Call::patch(MERGE, &*one, patch)).await?;
    x.step("change a label and an annotation", {
        let patch = json!({ "metadata": { "labels": { "l": "1" }, "annotations": { "a": "2" } } });
        Call::patch(STRATEGIC, format!("{one}?fieldManager=podium%2Fx"), patch)
    })
    .await?;
    x.step("a field manager that is too long", {
        let path = format!("{one}?fieldManager={}", "m".repeat(129));
        Call::patch(STRATEGIC, path, json!({ "metadata": { "labels": { "l": "2" } } }))
    })
    .await?;
    x.step("a path that does not exist", Call::get("/api/v1/nothings")).await?;
    x.step("a method that is not allowed", Call::post(&*one, json!({}))).await?;
    x.step("a body that is no object", Call::post(&*all, json!("text"))).await.map(drop)
}

pub(crate) async fn lists(x: &mut Exchange) -> Result<()> {
    let all = x.path("pods");
    x.step("an empty list", Call::get(&*all)).await?;
    for (name, team) in [("e", "red"), ("c", "blue"), ("a", "red"), ("d", "green"), ("b", "blue")] {
        let node = (team == "blue").then_some("far-away");
        x.step("create", Call::post(&*all, pod(name, node, json!({ "team": team, name: "yes" })))).await?;
    }
    names(x, "all, in the order of names", format!("{all}?")).await?;
    for selector in [
        "labelSelector=team%3Dred",
        "labelSelector=team%3D%3Dred%2Ca",
        "labelSelector=team!%3Dred",
        "labelSelector=team+in+(red%2Cgreen)",
        "labelSelector=team+notin+(red%2Cgreen)%2C!c",
        "labelSelector=missing",
        "labelSelector=!e",
        "fieldSelector=spec.nodeName%3Dfar-away",
        "fieldSelector=spec.nodeName%3D",
        "fieldSelector=metadata.name%3Dc",
        "fieldSelector=metadata.name!%3Dc",
        "fieldSelector=status.phase%3DPending",
        "fieldSelector=status.phase%3DRunning",
    ] {
        names(x, selector, format!("{all}?{selector}")).await?;
    }
    x.step("a bad label selector", Call::get(format!("{all}?labelSelector=%3D%3D"))).await?;
    x.step("a field that cannot be selected by", Call::get(format!("{all}?fieldSelector=spec.none%3Dx"))).await?;

    let mut token = String::new();
    for page in 1..=3 {
        let path = format!("{all}?limit=2&continue={token}");
        let answer = names(x, &format!("page {page} of 2 each"), path).await?;
        token = text(&answer, "/metadata/continue").replace('=', "%3D");
    }
    x.note("no token after the last page", token.is_empty());
    x.step("a token that is none", Call::get(format!("{all}?limit=2&continue=bogus"))).await?;
    let answer = names(x, "not older than a revision", format!("{all}?resourceVersion=0")).await?;
    x.note("the list has a revision", !revision(&answer).is_empty());
    x.step("a revision that is none", Call::get(format!("{all}?resourceVersion=abc"))).await?;
    x.step("a match without a revision", Call::get(format!("{all}?resourceVersionMatch=Exact")).hiding("items"))
        .await?;
    x.step("a revision of the far future", {
        let path = format!("{all}?resourceVersion=99999999999&resourceVersionMatch=NotOlderThan");
        Call::get(path).hiding("message").hiding("details")
    })
    .await?;
    x.step("a limit that is none", Call::get(format!("{all}?limit=many"))).await.map(drop)
}

async fn names(x: &mut Exchange, what: &str, path: String) -> Result<Value> {
    // The objects' contents are compared where they are written; here only their names and order.
    let answer = x.step(what, Call::get(path).hiding("spec").hiding("status")).await?;
    Ok(answer)
}

pub(crate) async fn tables(x: &mut Exchange) -> Result<()> {
    x.step("create a Pod", Call::post(x.path("pods"), pod("a", Some("far-away"), json!({})))).await?;
    x.step("create a ConfigMap", Call::post(x.path("configmaps"), config_map("a", json!({ "k": "v" })))).await?;
    let namespace = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{}", x.namespace);
    for path in [x.path("pods"), x.path("pods/a"), namespace] {
        x.step(&path, Call::get(&*path).accept(TABLE).hiding("description")).await?;
    }
    // A controller creates a ConfigMap in each namespace of only one server.
    x.step("one ConfigMap", Call::get(x.path("configmaps/a")).accept(TABLE).hiding("description")).await?;
    let path = format!("{}?includeObject=None", x.path("pods"));
    x.step("without the objects", Call::get(path).accept(TABLE).hiding("description")).await?;
    for path in [x.path("events"), x.path("serviceaccounts/none"), x.group_path("coordination.k8s.io/v1", "leases")] {
        x.step(&path, Call::get(&*path).accept(TABLE).hiding("description")).await?;
    }
    Ok(())
}

/// The resources that a client must find.
const KINDS: &[(&str, &[&str])] = &[
    (
        "/api/v1",
        &[
            "configmaps",
            "events",
            "namespaces",
            "nodes",
            "pods",
            "pods/eviction",
            "pods/status",
            "secrets",
            "serviceaccounts",
        ],
    ),
    ("/apis/apiextensions.k8s.io/v1", &["customresourcedefinitions"]),
    ("/apis/coordination.k8s.io/v1", &["leases"]),
    ("/apis/events.k8s.io/v1", &["events"]),
    ("/apis/policy/v1", &["poddisruptionbudgets"]),
    ("/apis/rbac.authorization.k8s.io/v1", &["clusterroles", "clusterrolebindings", "roles", "rolebindings"]),
];

pub(crate) async fn discovery(x: &mut Exchange) -> Result<()> {
    for (path, names) in KINDS {
        // The real server serves more kinds, so the whole list is not a step.
        let answer = x.look(Call::get(*path)).await?;
        for name in *names {
            let resources = answer["resources"].as_array().map_or(&[] as &[Value], Vec::as_slice);
            let mut found = resources.iter().find(|resource| resource["name"] == **name).cloned().unwrap_or_default();
            if let Some(fields) = found.as_object_mut() {
                // A hash that is equal on all servers of one cluster and irrelevant to a client.
                fields.remove("storageVersionHash");
            }
            x.note(&format!("{path} {name}"), format!("{found:#}"));
        }
    }
    let version = x.look(Call::get("/version")).await?;
    x.note("version", format!("{} {} {}", version["major"], version["minor"], version["gitVersion"]));
    for path in ["/healthz", "/livez", "/readyz", "/api"] {
        x.step(path, Call::get(path).hiding("serverAddress")).await?;
    }
    x.step("a group that is not served", Call::get("/apis/none.example/v1")).await.map(drop)
}
