//! Writes of objects of other kinds: to the granted resource, and to no other path.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use podium_devcluster::{Cluster, Options};
use podium_tests::{embedded, plugins, sandbox, wire::Wire};
use podium_vocabulary::LimitClass;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_to_the_resource_of_its_grant() {
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"},"data":{}}"#;
    for (resource, results, objects) in [
        ("configmaps", BTreeMap::from([("applied", 1), ("gone", 1)]), 1),
        // In the group of Pods, where such a path is answered like a missing object.
        ("configmap", BTreeMap::from([("invalid", 2)]), 0),
    ] {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
        let wire = Wire::new(&cluster);
        let mut spec = plugins::guest("probe", "probe", "").unwrap();
        (spec.limits.class, spec.grants) = (LimitClass::Interpreter, sandbox::everything());
        spec.grants.write.objects[0].resource = resource.to_owned();
        spec.config = json!(format!("apply {object}\ndrop ConfigMap b")).to_string().into();
        let id = spec.id.clone();
        let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
        embedded::at_rest(&cluster, &app).await.unwrap();
        let writes = app.status().plugin(&id).writes();
        let kinds: Vec<_> = writes.keys().collect();
        assert_eq!(kinds, results.keys().collect::<Vec<_>>(), "{resource}");
        assert!(results.iter().all(|(result, least)| writes[result] >= *least), "{resource}: {writes:?}");
        let sent = wire.writes();
        let path = |name: &str| format!("/api/v1/namespaces/default/{resource}/{name}?");
        assert!(sent[0].uri.starts_with(&path("a")) && sent[1].uri.starts_with(&path("b")), "{sent:?}");
        assert_eq!(cluster.list("configmaps").1.len(), objects);
        app.shutdown().await;
        cluster.shutdown().await;
    }
}

/// Returns the value of the ConfigMap `a`, and what the plugin's last apply of it resulted in.
async fn applied(cluster: &Cluster, edit: Option<serde_json::Value>, script: &str) -> (Option<String>, Vec<String>) {
    let wire = Wire::new(cluster);
    let mut spec = plugins::guest("probe", "probe", "").unwrap();
    (spec.limits.class, spec.grants) = (LimitClass::Interpreter, sandbox::everything());
    spec.config = json!(script).to_string().into();
    let id = spec.id.clone();
    let app = embedded::host(cluster, wire.client(), vec![spec]).await.unwrap();
    embedded::at_rest(cluster, &app).await.unwrap();
    if let Some(edit) = edit {
        patch(cluster, &edit).await;
        // The memory of the host lasts 10 minutes, and the plugin runs every 11.
        tokio::time::sleep(Duration::from_secs(12 * 60)).await;
        embedded::at_rest(cluster, &app).await.unwrap();
    }
    let writes = app.status().plugin(&id).writes().into_keys().filter(|result| *result != "unchanged");
    let writes = writes.map(Into::into).collect();
    app.shutdown().await;
    let (_, maps) = cluster.list("configmaps");
    let found = maps.iter().find(|map| map["metadata"]["name"] == "a");
    (found.and_then(|map| map["data"]["k"].as_str()).map(str::to_owned), writes)
}

/// Changes the ConfigMap `a` as `kubectl patch` does.
async fn patch(cluster: &Cluster, edit: &serde_json::Value) {
    let maps: Api<ConfigMap> = Api::namespaced(kube::Client::new(cluster.service(), "default"), "default");
    let by = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
    maps.patch("a", &by, &Patch::Merge(edit)).await.unwrap();
}

fn script(data: &serde_json::Value) -> String {
    let metadata = json!({ "name": "a", "namespace": "default" });
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
    format!("apply {object}\nrequeue 660000")
}

#[tokio::test(start_paused = true)]
async fn an_edited_object_is_repaired_if_the_plugin_created_it() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let own = script(&json!({ "k": "own" }));
    let edit = json!({ "data": { "k": "by hand" } });
    let repaired = (Some("own".to_owned()), vec!["applied".to_owned()]);
    assert_eq!(applied(&cluster, Some(edit.clone()), &own).await, repaired);
    // An edit while no host runs.
    patch(&cluster, &edit).await;
    assert_eq!(applied(&cluster, None, &own).await, repaired);
    // Without its annotation the object is no longer the plugin's.
    let mark = cluster.list("configmaps").1[0]["metadata"]["annotations"].clone();
    let (mark, _) = mark.as_object().unwrap().iter().next().unwrap();
    patch(&cluster, &json!({ "metadata": { "annotations": { mark: null } }, "data": { "k": "by hand" } })).await;
    let kept = (Some("by hand".to_owned()), vec!["owned_by_other".to_owned()]);
    assert_eq!(applied(&cluster, None, &own).await, kept);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_field_of_another_manager_in_another_clients_object_stays() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let metadata = json!({ "name": "a", "namespace": "default" });
    let theirs = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "k": "theirs" } });
    cluster.create(theirs).unwrap();
    let refused = (Some("theirs".to_owned()), vec!["owned_by_other".to_owned()]);
    assert_eq!(applied(&cluster, None, &script(&json!({ "k": "own" }))).await, refused);
    // A field beside it is applied, which does not make the object the plugin's.
    let beside = applied(&cluster, None, &script(&json!({ "other": "own" }))).await;
    assert_eq!(beside, (Some("theirs".to_owned()), vec!["applied".to_owned()]));
    assert_eq!(applied(&cluster, None, &script(&json!({ "k": "own", "other": "own" }))).await, refused);
    cluster.shutdown().await;
}
