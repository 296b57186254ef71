//! Objects that runs receive beside their Pod: a script that labels Pods with a price of a ConfigMap, in the host on
//! the embedded cluster, with an account of its own.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{fs, time::Duration};

use podium_devcluster::{Cluster, Options};
use podium_host::app::{self, App};
use podium_tests::{embedded, plugins, runner, wire::Wire};
use podium_vocabulary::{
    Input, InputObjects, LabelOperator, LabelRequirement, LabelSelector, Language, ObjectGrant, PluginId, PluginSpec,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const PODS: usize = 20;
const SOON: Duration = Duration::from_secs(2);
/// After so long, objects that were too many are listed again, and a sweep ends.
const RELIST: Duration = Duration::from_secs(425);
const SCRIPT: &str = r#"
import { writes } from "podium";
export default ({ pod, config }) => {
  if (!pod) return;
  const { prices } = config.inputs;
  const price = prices === undefined ? "unavailable" : prices === null ? "none" : prices.data.cart;
  writes.setLabel(pod, "example.com/price", price);
};
"#;

fn spec() -> PluginSpec {
    let input = json!({
        "id": "prices", "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": "prices",
    });
    document(SCRIPT, &input)
}

fn document(script: &str, input: &Value) -> PluginSpec {
    let document = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": "priced", "namespace": "shop" },
        "spec": {
            "source": { "script": { "language": "javascript", "inline": script } },
            "serviceAccountName": "priced",
            "inputs": [input],
            "grants": { "write": { "labels": ["example.com/price"] } },
        },
    });
    plugins::configured(&document.to_string()).unwrap()
}

struct Scene {
    cluster: Cluster,
    wire: Wire,
    app: App,
    _runners: TempDir,
}

impl Scene {
    async fn start() -> Self {
        Self::with_rights(&["list", "watch"], json!(["prices"])).await
    }

    /// `verbs` are those of the account on the objects of these names; on all with `null`.
    async fn with_rights(verbs: &[&str], names: Value) -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let create = |object: Value| drop(cluster.create(object).unwrap());
        create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }));
        for number in 0..PODS {
            let metadata = json!({ "namespace": "shop", "name": format!("cart-{number}") });
            let container = json!({ "name": "c", "image": "registry.example/c:1" });
            create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": { "containers": [container] },
            }));
        }
        let named = |name: &str| json!({ "namespace": "shop", "name": name });
        create(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": named("priced") }));
        let rbac = "rbac.authorization.k8s.io/v1";
        let write = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["patch"] });
        let read = json!({
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": verbs,
        });
        for (name, rule) in [("write", write), ("read", read)] {
            create(json!({ "apiVersion": rbac, "kind": "Role", "metadata": named(name), "rules": [rule] }));
            let subject = json!({ "kind": "ServiceAccount", "namespace": "shop", "name": "priced" });
            let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name });
            create(json!({
                "apiVersion": rbac, "kind": "RoleBinding", "metadata": named(name), "subjects": [subject],
                "roleRef": role,
            }));
        }
        let runners = tempfile::tempdir().unwrap();
        let component = runner::component(Language::JavaScript).unwrap().unwrap();
        fs::copy(component, runners.path().join("javascript-1.wasm")).unwrap();
        let wire = Wire::new(&cluster);
        let options = embedded::options(&cluster, wire.client());
        let options = app::Options { runners: Some(runners.path().to_owned()), ..options };
        let app = App::start_simulated(options).await.unwrap();
        Self { cluster, wire, app, _runners: runners }
    }

    async fn request(&self, method: &str, path: &str, body: &Value) {
        let merge = "application/merge-patch+json";
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, if method == "PATCH" { merge } else { "application/json" })
            .body(body.to_string().into_bytes())
            .unwrap();
        let _: Value = kube::Client::new(self.cluster.service(), "default").request(request).await.unwrap();
    }

    fn create_prices(&self, cart: &str) {
        self.create_labelled("prices", cart);
    }

    /// Creates a ConfigMap with a label that a selector matches.
    fn create_labelled(&self, name: &str, cart: &str) {
        let metadata = json!({ "namespace": "shop", "name": name, "labels": { "tier": "a" } });
        let data = json!({ "cart": cart });
        self.cluster
            .create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }))
            .unwrap();
    }

    async fn set_price(&self, cart: &str) {
        self.request("PATCH", "/api/v1/namespaces/shop/configmaps/prices", &json!({ "data": { "cart": cart } })).await;
    }

    /// The labels of all Pods, each different one once.
    fn labels(&self) -> Vec<String> {
        let (_, pods) = self.cluster.list("pods");
        let label = |pod: &Value| pod["metadata"]["labels"]["example.com/price"].as_str().map(str::to_owned);
        let mut labels: Vec<_> = pods.iter().map(|pod| label(pod).unwrap_or_default()).collect();
        labels.sort_unstable();
        labels.dedup();
        labels
    }

    fn runs(&self) -> u64 {
        self.app.status().plugin(&PluginId { namespace: Some("shop".into()), name: "priced".into() }).runs()
    }

    /// Waits until a change may have been answered.
    async fn settle(&self, time: Duration) {
        tokio::time::sleep(time).await;
        embedded::at_rest(&self.cluster, &self.app).await.unwrap();
    }

    async fn end(self) {
        self.app.shutdown().await;
        self.cluster.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_input_runs_the_plugin_once_on_each_pod() {
    let scene = Scene::start().await;
    scene.app.load(spec()).await.unwrap();
    scene.settle(SOON).await;
    assert_eq!(scene.labels(), ["none"]);
    scene.create_prices("3");
    scene.settle(SOON).await;
    assert_eq!(scene.labels(), ["3"]);
    let before = scene.runs();
    scene.set_price("4").await;
    scene.settle(SOON).await;
    assert_eq!((scene.labels(), scene.runs() - before), (vec!["4".to_owned()], PODS as u64));
    let annotated = json!({ "metadata": { "annotations": { "x": "y" } }, "binaryData": { "a": "YQ==" } });
    scene.request("PATCH", "/api/v1/namespaces/shop/configmaps/prices", &annotated).await;
    scene.settle(Duration::from_secs(120)).await;
    assert_eq!(scene.runs() - before, PODS as u64, "fields that it does not receive");
    let writes = scene.wire.writes().len();
    scene.request("DELETE", "/api/v1/namespaces/shop/configmaps/prices", &json!({})).await;
    scene.settle(SOON).await;
    assert_eq!((scene.labels(), scene.wire.writes().len() - writes), (vec!["none".to_owned()], PODS));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn constant_changes_cost_one_sweep_a_minute_and_the_last_one_counts() {
    let scene = Scene::start().await;
    scene.create_prices("0");
    scene.app.load(spec()).await.unwrap();
    scene.settle(SOON).await;
    let before = scene.runs();
    // A hundred a second, and then five.
    for number in 1..=1_300 {
        scene.set_price(&number.to_string()).await;
        tokio::time::sleep(Duration::from_millis(if number <= 1_000 { 10 } else { 200 })).await;
    }
    let sweeps = (scene.runs() - before) / PODS as u64;
    assert!((2..=4).contains(&sweeps), "{sweeps}");
    scene.settle(Duration::from_secs(61)).await;
    assert_eq!(scene.labels(), ["1300"]);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_there_is_no_load_and_no_copy_after_a_minute() {
    let scene = Scene::start().await;
    scene.create_prices("3");
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/read";
    scene.app.load(spec()).await.unwrap();
    scene.settle(SOON).await;
    assert_eq!(scene.labels(), ["3"]);
    scene.request("DELETE", binding, &json!({})).await;
    scene.settle(Duration::from_secs(62)).await;
    assert_eq!(scene.labels(), ["unavailable"]);
    scene.app.unload(&spec().id).await;
    scene.settle(Duration::from_secs(5)).await;
    let failure = scene.app.prepare(spec()).await.map(drop).unwrap_err();
    let message = failure.to_string();
    for part in ["spec.inputs[prices]", "system:serviceaccount:shop:priced may not list ConfigMap shop/prices"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(failure.is_passing());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_the_object_is_listed_every_half_minute() {
    let scene = Scene::with_rights(&["list"], json!(["prices"])).await;
    scene.create_prices("3");
    scene.app.load(spec()).await.unwrap();
    for price in ["3", "4", "5"] {
        scene.set_price(price).await;
        scene.settle(Duration::from_secs(40)).await;
        assert_eq!(scene.labels(), [price]);
    }
    let before = scene.runs();
    scene.settle(Duration::from_secs(300)).await;
    assert_eq!(scene.runs(), before, "it has not changed");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_input_that_is_too_large_is_named_and_not_received() {
    for bytes in [200 << 10, 5 << 20] {
        let scene = Scene::start().await;
        scene.create_prices(&"9".repeat(bytes));
        let failure = scene.app.prepare(spec()).await.map(drop).unwrap_err().to_string();
        assert!(failure.contains("ConfigMap shop/prices: has more than 131072 bytes"), "{failure}");
        scene.set_price("3").await;
        scene.app.load(spec()).await.unwrap();
        scene.settle(SOON).await;
        assert_eq!(scene.labels(), ["3"]);
        if bytes < 1 << 20 {
            scene.set_price(&"9".repeat(bytes)).await;
        } else {
            // No request may be as large.
            scene.request("DELETE", "/api/v1/namespaces/shop/configmaps/prices", &json!({})).await;
            scene.create_prices(&"9".repeat(bytes));
        }
        scene.settle(SOON).await;
        assert_eq!(scene.labels(), ["unavailable"]);
        scene.end().await;
    }
}

/// The first input is watched already, for the plugin that runs.
#[tokio::test(start_paused = true)]
async fn inputs_that_are_too_large_together_are_refused_in_any_order() {
    let scene = Scene::with_rights(&["list", "watch"], Value::Null).await;
    scene.create_prices(&"9".repeat(100 << 10));
    scene.create_labelled("other", &"9".repeat(100 << 10));
    let input = |name: &str| {
        json!({
            "id": name, "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": name,
        })
    };
    scene.app.load(document(SCRIPT, &input("prices"))).await.unwrap();
    scene.settle(SOON).await;
    let mut both = document(SCRIPT, &input("prices"));
    both.inputs.extend(document(SCRIPT, &input("other")).inputs);
    for _ in 0..2 {
        let failure = scene.app.prepare(both.clone()).await.map(drop).unwrap_err().to_string();
        assert!(failure.contains("the inputs up to this one have") && failure.contains("at most 131072"), "{failure}");
        both.inputs.reverse();
    }
    scene.end().await;
}

/// Labels Pods with the number of objects, and the values of the first two.
const LIST: &str = r#"
import { writes } from "podium";
export default ({ pod, config }) => {
  if (!pod) return;
  const list = config.inputs.prices;
  const values = list?.slice(0, 2).map(({ metadata, data }) => `${metadata.name}-${data.cart}`);
  writes.setLabel(pod, "example.com/price", list ? [list.length, ...values].join(".") : "unavailable");
};
"#;

/// The plugin with all objects of some labels as its input.
fn of_a_list() -> PluginSpec {
    let selector = json!({
        "matchLabels": { "tier": "a" },
        "matchExpressions": [
            { "key": "tier", "operator": "In", "values": ["a", "b"] }, { "key": "legacy", "operator": "DoesNotExist" },
        ],
    });
    let input = json!({
        "id": "prices", "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps", "selector": selector,
    });
    document(LIST, &input)
}

#[tokio::test(start_paused = true)]
async fn objects_with_some_labels_are_a_list_by_name() {
    let scene = Scene::with_rights(&["list", "watch"], Value::Null).await;
    scene.create_labelled("c", "3");
    scene.app.load(of_a_list()).await.unwrap();
    scene.settle(SOON).await;
    assert_eq!(scene.labels(), ["1.c-3"]);
    scene.create_labelled("a", "1");
    scene.create_labelled("b", "2");
    scene.settle(SOON).await;
    assert_eq!(scene.labels(), ["3.a-1.b-2"]);
    let path = |name: &str| format!("/api/v1/namespaces/shop/configmaps/{name}");
    let minute = Duration::from_secs(61);
    scene.request("PATCH", &path("a"), &json!({ "metadata": { "labels": { "legacy": "" } } })).await;
    scene.settle(minute).await;
    assert_eq!(scene.labels(), ["2.b-2.c-3"]);
    scene.request("PATCH", &path("b"), &json!({ "data": { "cart": "4" } })).await;
    scene.request("DELETE", &path("c"), &json!({})).await;
    scene.settle(minute).await;
    assert_eq!(scene.labels(), ["1.b-4"]);
    // One more than there may be, and then one less.
    for number in 0..64 {
        scene.create_labelled(&format!("x{number}"), "0");
    }
    scene.settle(minute).await;
    assert_eq!(scene.labels(), ["unavailable"]);
    scene.request("DELETE", &path("x0"), &json!({})).await;
    scene.settle(RELIST).await;
    assert_eq!(scene.labels(), ["64.b-4.x1-0"]);
    scene.request("PATCH", &path("x1"), &json!({ "data": { "cart": "9".repeat(200 << 10) } })).await;
    scene.settle(minute).await;
    assert_eq!(scene.labels(), ["unavailable"]);
    scene.request("DELETE", &path("x1"), &json!({})).await;
    scene.settle(RELIST).await;
    assert_eq!(scene.labels(), ["63.b-4.x10-0"]);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn too_many_objects_are_named_at_the_load() {
    let scene = Scene::with_rights(&["list", "watch"], Value::Null).await;
    for number in 0..65 {
        scene.create_labelled(&format!("x{number}"), "0");
    }
    let failure = scene.app.prepare(of_a_list()).await.map(drop).unwrap_err().to_string();
    let described = "ConfigMap shop/[tier in (a),tier in (a,b),!legacy]: more than 64 objects match";
    assert!(failure.contains(described), "{failure}");
    scene.end().await;
    let scene = Scene::start().await;
    let failure = scene.app.prepare(of_a_list()).await.map(drop).unwrap_err().to_string();
    assert!(failure.contains("list and watch on configmaps, and the host"), "{failure}");
    scene.end().await;
}

/// Counts in an object that is its own input.
const COUNTER: &str = r#"
import { writes } from "podium";
export default ({ pod, config }) => {
  if (!pod) return;
  const cart = Number(config.inputs.prices?.data.cart ?? 0) + 1;
  const metadata = { namespace: "shop", name: "prices" };
  writes.applyObject({ apiVersion: "v1", kind: "ConfigMap", metadata, data: { cart: String(cart) } });
};
"#;

#[tokio::test(start_paused = true)]
async fn a_plugin_that_changes_its_own_input_runs_once_a_minute() {
    let scene = Scene::with_rights(&["get", "list", "watch", "create", "patch"], Value::Null).await;
    let input = json!({
        "id": "prices", "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": "prices",
    });
    let mut spec = document(COUNTER, &input);
    let [api_version, kind, resource] = ["v1", "ConfigMap", "configmaps"].map(str::to_owned);
    spec.grants.write.objects = vec![ObjectGrant { api_version, kind, resource }];
    scene.app.load(spec).await.unwrap();
    scene.settle(SOON).await;
    let before = scene.runs();
    let minutes = 10;
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let sweeps = (scene.runs() - before).div_ceil(PODS as u64);
    assert!((minutes - 1..=minutes + 2).contains(&sweeps), "{sweeps} sweeps");
    scene.end().await;
}

/// The plugin of a list that had one object too many, which has just been deleted and will be noticed by a later list.
async fn with_one_too_many() -> Scene {
    let scene = Scene::with_rights(&["list", "watch"], Value::Null).await;
    scene.app.load(of_a_list()).await.unwrap();
    scene.settle(SOON).await;
    for number in 0..65 {
        scene.create_labelled(&format!("x{number}"), "0");
    }
    scene.settle(Duration::from_secs(61)).await;
    assert_eq!(scene.labels(), ["unavailable"]);
    scene.request("DELETE", "/api/v1/namespaces/shop/configmaps/x0", &json!({})).await;
    scene
}

#[tokio::test(start_paused = true)]
async fn a_right_that_ends_while_objects_are_too_many_is_noticed() {
    let scene = with_one_too_many().await;
    // Another plugin reads the same objects when it is loaded. The first one receives them with the next list.
    let mut other = of_a_list();
    other.id.name = "other".into();
    scene.app.load(other).await.unwrap();
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/read";
    scene.request("DELETE", binding, &json!({})).await;
    scene.settle(RELIST).await;
    assert_eq!(scene.labels(), ["unavailable"]);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_load_has_read_reaches_the_plugins_before_it() {
    let scene = with_one_too_many().await;
    let mut other = of_a_list();
    other.id.name = "other".into();
    other.watch.selector = LabelSelector(vec![LabelRequirement {
        key: "absent".into(),
        operator: LabelOperator::Exists,
        values: Vec::new(),
    }]);
    scene.app.load(other).await.unwrap();
    scene.settle(RELIST).await;
    assert_eq!(scene.labels(), ["64.x1-0.x10-0"]);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_sixteen_different_inputs() {
    let scene = Scene::with_rights(&["list", "watch"], Value::Null).await;
    let with_inputs = |plugin: usize| {
        let mut spec = spec();
        spec.id.name = format!("priced-{plugin}").into();
        let input = spec.inputs.remove(0);
        spec.inputs = (0..8)
            .map(|at| {
                let objects = InputObjects::Named(format!("prices-{plugin}-{at}"));
                Input { id: format!("i{at}"), objects, ..input.clone() }
            })
            .collect();
        spec
    };
    for plugin in 0..2 {
        scene.app.load(with_inputs(plugin)).await.unwrap();
    }
    let failure = scene.app.prepare(with_inputs(2)).await.map(drop).unwrap_err().to_string();
    assert!(failure.contains("spec.inputs[i0]: is beyond the 16 inputs of a tenant"), "{failure}");
    // Equal inputs of one account count once.
    let again = PluginSpec { id: with_inputs(3).id, ..with_inputs(1) };
    scene.app.load(again).await.unwrap();
    scene.end().await;
}
