//! The plugins of the cookbook in the host on the embedded cluster, each with its own configuration, and with an
//! account that has the rights of the page and no others.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{fs, time::Duration};

use podium_devcluster::{Cluster, Options};
use podium_tests::{
    embedded, plugins,
    process::{podium_command, workspace_dir},
    wire::Wire,
};
use podium_vocabulary::PluginSpec;
use serde_json::{Value, json};

/// Ten minutes before the evening of `night-scale`.
const START: &str = "2026-01-01T19:50:00Z";

/// One entry of the cookbook.
pub(super) struct Entry {
    name: String,
    pub(super) spec: PluginSpec,
    /// The rules of the page.
    rules: Vec<Value>,
    /// The objects that `podium inspect` prints.
    pub(super) inspected: Vec<Value>,
}

impl Entry {
    fn all() -> Vec<Self> {
        let folders = fs::read_dir(workspace_dir().join("docs/cookbook")).unwrap();
        let mut names: Vec<_> =
            folders.map(|folder| folder.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names.into_iter().map(Self::new).collect()
    }

    pub(super) fn new(name: String) -> Self {
        let page = fs::read_to_string(workspace_dir().join("docs/cookbook.md")).unwrap();
        let folder = workspace_dir().join("docs/cookbook").join(&name);
        let mut spec = plugins::configured(&plugins::yaml_of(&folder).unwrap()).unwrap();
        spec.impersonate = Some(format!("system:serviceaccount:shop:podium-plugin-{name}"));
        let folder = folder.to_str().unwrap();
        podium(&["check", folder, "--component", spec.source.file().unwrap().to_str().unwrap()]);
        let inspected = podium(&["inspect", folder, "--output", "yaml"]);
        let mut inspected: Vec<Value> = serde_saphyr::from_multiple(&inspected).unwrap();
        inspected.retain(|object| object["metadata"]["namespace"] == "shop");
        let section = page.split("\n## ").find(|section| section.contains(&format!("(cookbook/{name})"))).unwrap();
        let block = section.split("```yaml\n").find(|block| block.starts_with("rules:")).unwrap();
        let block: Value = serde_saphyr::from_str(block.split("```").next().unwrap()).unwrap();
        Self { rules: block["rules"].as_array().unwrap().clone(), name, spec, inspected }
    }

    /// Returns the Role of the plugin's account.
    pub(super) fn role(&mut self) -> &mut Value {
        let name = json!(format!("podium-plugin-{}", self.name));
        let role = |object: &&mut Value| object["kind"] == "Role" && object["metadata"]["name"] == name;
        self.inspected.iter_mut().find(role).unwrap()
    }
}

/// Returns the output of a command that succeeds.
fn podium(arguments: &[&str]) -> String {
    let output = podium_command().unwrap().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Creates a Deployment with its ReplicaSet and a StatefulSet. Returns the owner references to the two controllers, and
/// the Deployment's uid.
pub(super) async fn workloads(cluster: &Cluster) -> [Value; 3] {
    let labels = json!({ "app": "web" });
    let template = json!({
        "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "registry.example/c:1" }] },
    });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    let client = kube::Client::new(cluster.service(), "default");
    let create = async |kind: &str, name: &str, owners: &[&Value]| {
        let metadata = json!({ "namespace": "shop", "name": name, "ownerReferences": owners });
        let made = json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec });
        let path = format!("/apis/apps/v1/namespaces/shop/{}s/{name}?fieldManager=suite", kind.to_lowercase());
        let request = http::Request::patch(path).header(http::header::CONTENT_TYPE, "application/apply-patch+yaml");
        let stored: Value = client.request(request.body(made.to_string().into_bytes()).unwrap()).await.unwrap();
        let uid = embedded::uid(&stored).unwrap();
        json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true })
    };
    let deployment = create("Deployment", "web", &[]).await;
    let set = create("ReplicaSet", "web-7d9f8", &[&deployment]).await;
    [set, create("StatefulSet", "db", &[]).await, deployment["uid"].clone()]
}

/// Creates a Pod on a node; `more` is merged into its metadata.
pub(super) fn pod(cluster: &Cluster, name: &str, owner: Option<&Value>, more: &Value, status: &Value) {
    let mut metadata = json!({ "namespace": "shop", "name": name });
    metadata["ownerReferences"] = owner.into_iter().cloned().collect();
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let requests = json!({ "requests": { "cpu": "500m", "memory": "3Gi" } });
    let container = json!({ "name": "c", "image": "registry.example/c:1", "resources": requests });
    let spec = json!({ "nodeName": "node-0", "containers": [container] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status });
    cluster.create(pod).unwrap();
}

fn pods(cluster: &Cluster, [web, db]: [&Value; 2]) {
    let running = |ready: &str| {
        let condition = json!({ "type": "Ready", "status": ready });
        json!({ "phase": "Running", "conditions": [condition] })
    };
    let template = json!({
        "labels": { "pod-template-hash": "7d9f8", "topology.kubernetes.io/zone": "eu-1a" },
        "annotations": { "example.com/day-replicas": "3" },
    });
    pod(cluster, "web-7d9f8-x", Some(web), &template, &running("True"));
    pod(cluster, "web-7d9f8-y", Some(web), &template, &running("True"));
    for (index, ready) in ["True", "False", "False"].into_iter().enumerate() {
        pod(cluster, &format!("db-{index}"), Some(db), &json!({}), &running(ready));
    }
    let container = |state: Value, restarts: u32| {
        let image = "registry.example/c:1";
        json!([{
            "name": "c", "image": image, "imageID": image, "ready": false, "restartCount": restarts, "state": state,
        }])
    };
    let looping = container(json!({ "waiting": { "reason": "CrashLoopBackOff" } }), 5);
    pod(cluster, "looping", None, &json!({}), &json!({ "phase": "Running", "containerStatuses": looping }));
    let finished = container(json!({ "terminated": { "exitCode": 0, "finishedAt": START } }), 0);
    let kept = json!({ "annotations": { "example.com/ttl": "5m" } });
    pod(cluster, "report", None, &kept, &json!({ "phase": "Succeeded", "containerStatuses": finished }));
}

/// The page says that no entry needs them.
fn without_deletes_of_objects(rules: &[Value]) -> Value {
    let mut rules = json!(rules);
    for verbs in rules.as_array_mut().unwrap().iter_mut().map(|rule| rule["verbs"].as_array_mut().unwrap()) {
        let is_of_object = verbs.len() > 1;
        verbs.retain(|verb| !is_of_object || verb != "delete");
    }
    rules
}

/// Returns an object of the namespace.
pub(super) fn object(cluster: &Cluster, resource: &str, name: &str) -> Option<Value> {
    let (_, objects) = cluster.list(resource);
    objects.into_iter().find(|object| object["metadata"]["name"] == name && object["metadata"]["namespace"] == "shop")
}

#[tokio::test(start_paused = true)]
async fn each_entry_does_what_its_page_says_with_the_rights_of_the_page() {
    let start_millis = START.parse::<podium_wire::Timestamp>().unwrap().0;
    let cluster = Cluster::start(Options { simulate: false, start_millis, ..Options::default() }).unwrap();
    cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } })).unwrap();
    let [web, db, deployment] = workloads(&cluster).await;
    pods(&cluster, [&web, &db]);
    let mut entries = Entry::all();
    for entry in &mut entries {
        let rules = without_deletes_of_objects(&entry.rules);
        entry.role()["rules"] = rules;
        entry.inspected.iter().for_each(|object| drop(cluster.create(object.clone()).unwrap()));
    }
    let wire = Wire::new(&cluster);
    let specs: Vec<_> = entries.iter().map(|entry| entry.spec.clone()).collect();
    let app = embedded::host(&cluster, wire.client(), specs).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let of = |name: &str| object(&cluster, "pods", name);

    let web = of("web-7d9f8-x").unwrap()["metadata"].clone();
    assert_eq!(web["labels"]["example.com/workload"], "web");
    assert_eq!(web["annotations"]["example.com/zone"], "eu-1a");
    assert_eq!(web["labels"]["example.com/cost"], "18");
    let condition = of("looping").unwrap()["status"]["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["status"]), (&json!("example.com/RestartLoop"), &json!("True")));
    let budget = object(&cluster, "poddisruptionbudgets.policy", "deployment-web").unwrap();
    assert_eq!(budget["spec"]["selector"]["matchLabels"]["example.com/budget"], web["labels"]["example.com/budget"]);
    assert_eq!(budget["metadata"]["ownerReferences"][0]["uid"], deployment);
    let nodes = object(&cluster, "configmaps", "deployment-web-nodes").unwrap();
    assert_eq!(nodes["data"], json!({ "web-7d9f8-x": "node-0", "web-7d9f8-y": "node-0" }));
    assert_eq!(nodes["metadata"]["ownerReferences"][0]["uid"], deployment);
    for index in 0..3 {
        let labels = of(&format!("db-{index}")).unwrap()["metadata"]["labels"].clone();
        assert_eq!(labels["example.com/quorum"], "lost");
    }
    let replicas = || object(&cluster, "deployments.apps", "web").unwrap()["spec"]["replicas"].clone();
    assert_eq!((replicas(), of("report").is_some()), (json!(3), true));

    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!((replicas(), of("report").is_some()), (json!(1), false));
    let (_, events) = cluster.list("events");
    let mut reasons: Vec<_> = events.iter().map(|event| event["reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["Expired", "RestartLoop"]);
    for Entry { name, spec, .. } in &entries {
        let writes = app.status().plugin(&spec.id).writes();
        let is_done = |result: &&&str| matches!(**result, "applied" | "unchanged");
        assert!(
            writes.contains_key("applied") && writes.keys().filter(is_done).count() == writes.len(),
            "{name}: {writes:?}"
        );
    }
    app.shutdown().await;
    cluster.shutdown().await;
}

#[test]
fn the_rights_of_the_page_are_those_that_inspect_prints() {
    for mut entry in Entry::all() {
        let printed = entry.role()["rules"].as_array().unwrap().clone();
        let (own, more): (Vec<_>, Vec<_>) = entry.rules.iter().partition(|rule| printed.contains(rule));
        assert_eq!(own.len(), printed.len(), "{}: {printed:#?}", entry.name);
        // Those for the owner of an object, which inspect prints as a note.
        assert!(more.iter().all(|rule| rule["apiGroups"][0] == "apps" && rule["verbs"] == json!(["get"])), "{more:?}");
    }
}
