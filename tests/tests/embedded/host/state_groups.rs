//! Two components that share a state, and others that do not.

use std::collections::BTreeMap;

use podium_devcluster::{Cluster, Options};
use podium_tests::{embedded, plugins, sandbox, wire::Wire};
use podium_vocabulary::{LimitClass, PluginSpec};
use serde_json::json;

/// A plugin that makes the host calls of a script.
fn probe(name: &str, script: &str, more: &str) -> PluginSpec {
    let mut spec = plugins::guest("probe", name, more).unwrap();
    (spec.limits.class, spec.grants) = (LimitClass::Interpreter, sandbox::everything());
    spec.config = json!(script).to_string().into();
    spec
}

#[tokio::test(start_paused = true)]
async fn a_stored_value_is_read_by_its_state_group_only() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let reader = |name: &str, more: &str| probe(name, &format!("state-label guests.example/{name} k"), more);
    let mut other_tenant = reader("tenant", "  stateGroup: carts");
    other_tenant.id.namespace = Some("default".into());
    let plugins = vec![
        probe("writer", "state-put k 3", "  stateGroup: carts"),
        reader("member", "  stateGroup: carts"),
        reader("group", "  stateGroup: orders"),
        reader("single", ""),
        other_tenant,
    ];
    let app = embedded::host(&cluster, Wire::new(&cluster).client(), plugins).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    // The value is stored, whichever plugin ran first.
    embedded::create_pod(&cluster, "cart-1", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let mut seen = BTreeMap::new();
    for name in ["member", "group", "single", "tenant"] {
        let label = embedded::label(&cluster, "cart-1", &format!("guests.example/{name}")).await.unwrap();
        seen.insert(name, label.unwrap_or_default());
    }
    let none = || "none".to_owned();
    assert_eq!(seen, [("member", "3".to_owned()), ("group", none()), ("single", none()), ("tenant", none())].into());
    app.shutdown().await;
    cluster.shutdown().await;
}
