//! Writes of objects of other kinds: to the granted resource, and to no other path.

use std::collections::BTreeMap;

use podium_devcluster::{Cluster, Options};
use podium_pods::model::LimitClass;
use podium_tests::{embedded, plugins, sandbox, wire::Wire};
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
        spec.config = json!(format!("apply {object}\ndrop ConfigMap b")).to_string();
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
