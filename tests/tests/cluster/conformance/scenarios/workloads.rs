//! Deployments, StatefulSets and Jobs: which the server accepts, and how they are after each step of a history, when
//! the controllers have settled. These are the real ones and those of the dev cluster, each with a simulated kubelet.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use podium_devcluster::BEHAVIOUR;
use serde_json::{Value, json};

use crate::conformance::exchange::{Call, Exchange, JSON_PATCH, MERGE, STRATEGIC, text};

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// The snapshot is compared when it has not changed for this time.
const QUIET: Duration = Duration::from_secs(2);
const SETTLED_WITHIN: Duration = Duration::from_secs(90);
const KINDS: [(&str, &str); 6] = [
    ("apps/v1", "deployments"),
    ("apps/v1", "replicasets"),
    ("apps/v1", "statefulsets"),
    ("apps/v1", "controllerrevisions"),
    ("batch/v1", "jobs"),
    ("v1", "pods"),
];

fn template(labels: &Value, image: &str) -> Value {
    json!({
        "metadata": { "labels": labels },
        "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": format!("registry.example/{image}") }],
        },
    })
}

fn deployment(replicas: u32) -> Value {
    let labels = json!({ "app": "web" });
    json!({
        "metadata": { "name": "web", "labels": labels, "annotations": { "kubernetes.io/change-cause": "made" } },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": template(&labels, "web:1") },
    })
}

fn stateful_set(replicas: u32) -> Value {
    let labels = json!({ "app": "db" });
    json!({
        "metadata": { "name": "db" },
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": { "matchLabels": labels },
            "template": template(&labels, "db:1"),
        },
    })
}

fn job(completions: u32, parallelism: u32) -> Value {
    let mut template = template(&json!({ "app": "backup" }), "backup:1");
    // KWOK ends the Pods of Jobs by itself.
    template["metadata"]["annotations"] = json!({ BEHAVIOUR: "finish" });
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "metadata": { "name": "backup" },
        "spec": { "completions": completions, "parallelism": parallelism, "template": template },
    })
}

/// Which objects are accepted, with which defaults, and the texts of refusals. It reads no object of a controller.
pub(crate) async fn validation(x: &mut Exchange) -> Result<()> {
    let deployments = x.group_path("apps/v1", "deployments");
    let dry = |path: &str| format!("{path}?dryRun=All");
    let sets = x.group_path("apps/v1", "statefulsets");
    let jobs = x.group_path("batch/v1", "jobs");
    let replicas = x.group_path("apps/v1", "replicasets");
    x.step("a Deployment", Call::post(dry(&deployments), deployment(3))).await?;
    let mut plain = deployment(3);
    plain["spec"]["strategy"] = json!({ "type": "Recreate" });
    x.step("a Deployment that recreates", Call::post(dry(&deployments), plain)).await?;
    x.step("a ReplicaSet", Call::post(dry(&replicas), deployment(3))).await?;
    x.step("a StatefulSet", Call::post(dry(&sets), stateful_set(3))).await?;
    x.step("a Job", Call::post(dry(&jobs), job(3, 2))).await?;
    let wrong: [(&str, &str, Value); 8] = [
        ("no selector", "/spec/selector", Value::Null),
        ("an empty selector", "/spec/selector", json!({})),
        ("a selector of other Pods", "/spec/selector/matchLabels/app", json!("other")),
        ("negative replicas", "/spec/replicas", json!(-1)),
        ("text as replicas", "/spec/replicas", json!("three")),
        ("no containers", "/spec/template/spec/containers", json!([])),
        ("no image", "/spec/template/spec/containers/0/image", json!("")),
        ("a name with capitals", "/metadata/name", json!("Web")),
    ];
    for (what, pointer, value) in wrong {
        for (path, object) in [(&deployments, deployment(3)), (&replicas, deployment(3)), (&sets, stateful_set(3))] {
            let mut object = object;
            *object.pointer_mut(pointer).unwrap_or(&mut Value::Null) = value.clone();
            x.step(what, Call::post(path.clone(), object)).await?;
        }
    }
    let mut never = deployment(1);
    never["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    x.step("a Deployment of Pods that end", Call::post(&*deployments, never)).await?;
    let mut always = job(1, 1);
    always["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    x.step("a Job of Pods that do not end", Call::post(&*jobs, always)).await?;
    let mut stuck = deployment(1);
    stuck["spec"]["strategy"] = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 0 } });
    x.step("a Deployment that cannot roll out", Call::post(&*deployments, stuck)).await?;
    let mut both = deployment(1);
    both["spec"]["strategy"] = json!({ "type": "Recreate", "rollingUpdate": {} });
    x.step("a Deployment with two strategies", Call::post(&*deployments, both)).await?;
    Ok(())
}

/// Changes of existing workloads that the server refuses.
pub(crate) async fn immutable(x: &mut Exchange) -> Result<()> {
    let deployments = x.group_path("apps/v1", "deployments");
    let sets = x.group_path("apps/v1", "statefulsets");
    let jobs = x.group_path("batch/v1", "jobs");
    x.look(Call::post(&*deployments, deployment(0))).await?;
    x.look(Call::post(&*sets, stateful_set(0))).await?;
    let mut suspended = job(1, 1);
    suspended["spec"]["suspend"] = json!(true);
    x.look(Call::post(&*jobs, suspended)).await?;
    let other = json!({ "spec": {
        "selector": { "matchLabels": { "tier": "front" } },
        "template": { "metadata": { "labels": { "tier": "front" } } },
    } });
    x.step("another selector", Call::patch(MERGE, format!("{deployments}/web"), other)).await?;
    let service = json!({ "spec": { "serviceName": "other" } });
    x.step("another service", Call::patch(MERGE, format!("{sets}/db"), service)).await?;
    let completions = json!({ "spec": { "completions": 5 } });
    x.step("another number of completions", Call::patch(MERGE, format!("{jobs}/backup"), completions)).await?;
    let size = json!({ "spec": { "replicas": -1 } });
    x.step("a negative scale", Call::patch(MERGE, format!("{deployments}/web/scale"), size)).await?;
    let missing = x.group_path("apps/v1", "deployments/none/scale");
    x.step("the scale of nothing", Call::get(missing)).await.map(drop)
}

/// Returns the objects of the namespace in a form in which both servers' are equal if they are alike.
async fn snapshot(x: &Exchange) -> Result<(bool, String)> {
    let mut objects = Vec::new();
    for (version, plural) in KINDS {
        let path = if version == "v1" { x.path(plural) } else { x.group_path(version, plural) };
        let mut list = x.look(Call::get(path)).await?;
        let Some(items) = list["items"].as_array_mut() else { anyhow::bail!("no list of {plural}: {list}") };
        for mut object in items.drain(..) {
            object["kind"] = json!(plural);
            objects.push(object);
        }
    }
    let restless = objects.iter().any(|object| {
        let phase = object["status"]["phase"].as_str();
        let running = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let pod = object["kind"] == "pods" && phase != Some("Succeeded") && !running;
        pod || object["metadata"]["deletionTimestamp"].is_string()
    });
    let names = names(&objects);
    let mut shown: Vec<String> = objects.into_iter().map(|object| format!("{:#}", reduced(object, &names))).collect();
    shown.sort();
    Ok((!restless, shown.join("\n")))
}

/// Returns the generated parts of names, and uids, each with a stable name.
fn names(objects: &[Value]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for object in objects {
        let name = text(object, "/metadata/name");
        let label = |key: &str| object["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
        let hash = match object["kind"].as_str() {
            Some("replicasets") => Some((
                label("pod-template-hash"),
                object["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
                    .as_str()
                    .unwrap_or_default()
                    .into(),
            )),
            Some("controllerrevisions") => {
                Some((label("controller.kubernetes.io/hash"), object["revision"].to_string()))
            }
            _ => None,
        };
        let uid = match &hash {
            Some((_, revision)) => format!("<uid of {} {revision}>", object["kind"]),
            None => format!("<uid of {} {name}>", object["kind"]),
        };
        names.insert(text(object, "/metadata/uid"), uid);
        if let Some((hash, revision)) = hash.filter(|(hash, _)| !hash.is_empty()) {
            names.insert(hash, format!("<hash {revision}>"));
        }
    }
    names
}

fn reduced(mut object: Value, names: &BTreeMap<String, String>) -> Value {
    let prefix = text(&object, "/metadata/generateName");
    let pod = object["kind"] == "pods";
    if pod && text(&object, "/metadata/labels/controller-revision-hash").is_empty() {
        object["metadata"]["name"] = format!("{prefix}<suffix>").into();
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !matches!(&**key, "uid" | "resourceVersion" | "managedFields" | "creationTimestamp"));
        if pod {
            metadata.remove("generation");
        }
    }
    if object["kind"] == "replicasets" {
        // The number of its changes in a rollout depends on the time that Pods take.
        let observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        object["status"]["observedGeneration"] = observed.into();
        object["metadata"]["generation"] = Value::Null;
    }
    if pod {
        object["status"] = json!({ "phase": object["status"]["phase"] });
        for field in ["nodeName", "tolerations"] {
            object["spec"].as_object_mut().map(|spec| spec.remove(field));
        }
    }
    visit(&mut object, names);
    object
}

fn visit(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !matches!(value, Value::Null) && *value != json!({}) && *value != json!([]));
            map.values_mut().for_each(|value| visit(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| visit(value, names)),
        Value::String(text) => {
            for (name, stable) in names {
                *text = text.replace(name, stable);
            }
            if text.parse::<jiff::Timestamp>().is_ok() && !text.starts_with("2020-") {
                *text = "<time>".to_owned();
            }
        }
        _ => {}
    }
}

/// Records the objects when they have settled.
async fn settle(x: &mut Exchange, what: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + SETTLED_WITHIN;
    let mut before = String::new();
    let mut since = tokio::time::Instant::now();
    loop {
        let (settled, now) = snapshot(x).await?;
        if now != before || !settled {
            since = tokio::time::Instant::now();
        } else if since.elapsed() >= QUIET {
            x.note(what, now);
            return Ok(());
        }
        ensure!(tokio::time::Instant::now() < deadline, "{what}: not settled: {now}");
        before = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub(crate) async fn rollouts(x: &mut Exchange) -> Result<()> {
    let all = x.group_path("apps/v1", "deployments");
    let web = format!("{all}/web");
    x.look(Call::post(&*all, deployment(3))).await?;
    settle(x, "created").await?;
    x.step("as a table", Call::get(&*web).accept(TABLE).hiding("object").hiding("metadata").hiding("description"))
        .await?;
    let scale = |replicas: u32| Call::patch(MERGE, format!("{web}/scale"), json!({ "spec": { "replicas": replicas } }));
    for replicas in [5, 2] {
        x.look(scale(replicas)).await?;
        settle(x, "scaled").await?;
    }
    x.step("its scale", Call::get(format!("{web}/scale")).hiding("resourceVersion")).await?;
    let image = |image: &str| {
        let containers = json!([{ "name": "main", "image": format!("registry.example/{image}") }]);
        Call::patch(STRATEGIC, &*web, json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
    };
    x.look(image("web:2")).await?;
    settle(x, "another image").await?;
    let restarted = json!({ "kubectl.kubernetes.io/restartedAt": "2020-01-01T00:00:00Z" });
    let restarted = json!({ "spec": { "template": { "metadata": { "annotations": restarted } } } });
    x.look(Call::patch(STRATEGIC, &*web, restarted)).await?;
    settle(x, "restarted").await?;
    let first = deployment(3)["spec"]["template"].clone();
    let undo = json!([{ "op": "replace", "path": "/spec/template", "value": first }]);
    x.look(Call::patch(JSON_PATCH, &*web, undo)).await?;
    settle(x, "undone").await?;
    for replicas in [0, 2] {
        x.look(scale(replicas)).await?;
        settle(x, "scaled to nothing and back").await?;
    }
    x.look(Call::patch(MERGE, &*web, json!({ "spec": { "paused": true } }))).await?;
    x.look(image("web:3")).await?;
    settle(x, "paused").await?;
    x.look(scale(4)).await?;
    settle(x, "scaled while paused").await?;
    x.look(Call::patch(MERGE, &*web, json!({ "spec": { "paused": null } }))).await?;
    settle(x, "resumed").await?;
    let history = json!({ "spec": {
        "revisionHistoryLimit": 1, "strategy": { "type": "Recreate", "rollingUpdate": null },
    } });
    x.look(Call::patch(MERGE, &*web, history)).await?;
    x.look(image("web:4")).await?;
    settle(x, "recreated").await?;
    x.look(Call::delete(&*web, json!({ "propagationPolicy": "Background" }))).await?;
    settle(x, "deleted").await
}

pub(crate) async fn ordinals(x: &mut Exchange) -> Result<()> {
    let all = x.group_path("apps/v1", "statefulsets");
    let db = format!("{all}/db");
    x.look(Call::post(&*all, stateful_set(3))).await?;
    settle(x, "created").await?;
    x.step("as a table", Call::get(&*db).accept(TABLE).hiding("object").hiding("metadata").hiding("description"))
        .await?;
    let change = |spec: Value| Call::patch(STRATEGIC, &*db, json!({ "spec": spec }));
    let image = |image: &str| {
        let containers = json!([{ "name": "main", "image": format!("registry.example/{image}") }]);
        json!({ "template": { "spec": { "containers": containers } } })
    };
    for (what, spec) in [
        ("scaled", json!({ "replicas": 1 })),
        ("scaled up", json!({ "replicas": 3 })),
        ("another image", image("db:2")),
        ("a partition", json!({ "updateStrategy": { "rollingUpdate": { "partition": 2 } } })),
        ("another image from the partition", image("db:3")),
        ("no partition", json!({ "updateStrategy": { "rollingUpdate": { "partition": 0 } } })),
        ("the first image again", image("db:1")),
        ("scaled to nothing", json!({ "replicas": 0 })),
    ] {
        x.look(change(spec)).await?;
        settle(x, what).await?;
    }
    x.look(Call::delete(&*db, json!({ "propagationPolicy": "Background" }))).await?;
    settle(x, "deleted").await
}

pub(crate) async fn completions(x: &mut Exchange) -> Result<()> {
    let all = x.group_path("batch/v1", "jobs");
    let backup = format!("{all}/backup");
    x.look(Call::post(&*all, job(3, 2))).await?;
    x.look_until(Call::get(&*backup), |job| job["status"]["completionTime"].is_string()).await?;
    settle(x, "complete").await?;
    let table = Call::get(&*backup).accept(TABLE);
    x.step("as a table", table.hiding("object").hiding("metadata").hiding("description").hiding("cells")).await?;
    x.look(Call::delete(&*backup, json!({ "propagationPolicy": "Background" }))).await?;
    settle(x, "deleted").await
}
