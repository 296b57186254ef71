//! Changes of a cluster during which a sample plugin runs, and a check of the end state.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use podium_devcluster::Cluster;
use podium_tests::embedded;
use serde_json::{Value, json};
use tokio::time::sleep;

/// One change of the cluster.
#[derive(Debug, Clone)]
enum Change {
    Create(Value),
    /// A strategic merge patch of a Pod.
    Patch(&'static str, Value),
    /// A merge patch of a Pod's status. A text `NOW-n` is replaced by the time n seconds ago.
    Status(&'static str, Value),
    Delete(&'static str),
}

/// A check of the end state, by the Pod's name.
type Check = fn(&BTreeMap<String, Value>);

/// The story of one plugin.
#[derive(Debug, Clone)]
pub(super) struct Story {
    /// Before the host starts.
    first: Vec<Change>,
    /// By the second after the host's start.
    later: Vec<(u64, Change)>,
    /// Seconds after the last change until the plugin has nothing more to do.
    rest: u64,
    /// A replacement in the sample configuration.
    replace: Option<[&'static str; 2]>,
    check: Check,
}

impl Story {
    pub(super) fn configuration(&self, sample: &str) -> String {
        let Some([from, to]) = self.replace else { return sample.to_owned() };
        assert!(sample.contains(from), "the sample does not have {from}");
        sample.replace(from, to)
    }

    pub(super) async fn begin(&self, cluster: &Cluster) {
        for change in &self.first {
            change.make(cluster).await;
        }
    }

    pub(super) async fn tell(&self, cluster: &Cluster) {
        let mut now = 0;
        for (second, change) in &self.later {
            sleep(Duration::from_secs(second - now)).await;
            now = *second;
            change.make(cluster).await;
        }
    }

    pub(super) fn rest(&self) -> Duration {
        Duration::from_secs(self.rest)
    }

    pub(super) fn length(&self) -> Duration {
        let last = self.later.last().map_or(0, |(second, _)| *second);
        Duration::from_secs(last) + self.rest()
    }

    pub(super) fn check(&self, end: &BTreeMap<String, Value>) {
        (self.check)(end);
    }
}

impl Change {
    async fn make(&self, cluster: &Cluster) {
        let pods = embedded::pods(cluster, Some("default"));
        let params = PatchParams::default();
        match self {
            Self::Create(pod) => drop(cluster.create(with_times(cluster, pod)).unwrap()),
            Self::Patch(name, patch) => drop(pods.patch(name, &params, &Patch::Strategic(patch)).await.unwrap()),
            Self::Status(name, status) => {
                let patch = json!({ "status": with_times(cluster, status) });
                drop(pods.patch_status(name, &params, &Patch::Merge(patch)).await.unwrap());
            }
            // A plugin may have deleted it before.
            Self::Delete(name) => delete(&pods, name).await,
        }
    }
}

async fn delete(pods: &Api<k8s_openapi::api::core::v1::Pod>, name: &str) {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete(name, &now).await.unwrap();
}

/// Returns the value with each text `NOW-n` replaced by a time.
fn with_times(cluster: &Cluster, value: &Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("NOW-").and_then(|seconds| seconds.parse::<i64>().ok()) {
            Some(seconds) => {
                let time = jiff::Timestamp::from_second(cluster.now_millis() / 1000 - seconds).unwrap();
                Value::String(time.to_string())
            }
            None => value.clone(),
        },
        Value::Array(values) => values.iter().map(|value| with_times(cluster, value)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), with_times(cluster, value))).collect()
        }
        _ => value.clone(),
    }
}

/// A Pod of the workload `cart` on node-0.
fn pod(name: &str, image: &str, status: Value) -> Change {
    Change::Create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"app": "cart", "pod-template-hash": "5d9c"},
            "ownerReferences": [{
                "apiVersion": embedded::UNSERVED,
                "kind": "ReplicaSet", "name": "cart-5d9c", "uid": "c0ffee", "controller": true,
            }],
        },
        "spec": {
            "nodeName": "node-0",
            "containers": [{"name": "c", "image": image, "resources": {"limits": {"memory": "64Mi"}}}],
        },
        "status": status,
    }))
}

fn plain(name: &str) -> Change {
    pod(name, "registry.example/c:1", json!({"phase": "Running"}))
}

fn annotation<'a>(end: &'a BTreeMap<String, Value>, pod: &str, key: &str) -> Option<&'a str> {
    end[pod]["annotations"][key].as_str()
}

pub(super) fn label() -> Story {
    const KEY: &str = "podium.dev/workload";
    Story {
        first: vec![plain("a"), plain("b"), plain("c")],
        later: vec![
            (5, plain("d")),
            (8, Change::Patch("a", json!({"metadata": {"labels": {KEY: null}}}))),
            (11, Change::Delete("b")),
            (12, plain("b")),
        ],
        rest: 15,
        replace: None,
        check: |end| {
            assert_eq!(end.len(), 4);
            end.values().for_each(|pod| assert_eq!(pod["labels"][KEY], "cart"));
        },
    }
}

pub(super) fn policy() -> Story {
    const BAD: &str = "registry.example/c:latest";
    // Not one that the policy permits: whether the plugin says so depends on whether it saw the earlier one.
    const WORSE: &str = "registry.example/d:latest";
    Story {
        first: vec![plain("a"), pod("b", BAD, json!({})), pod("c", BAD, json!({}))],
        later: vec![
            (5, pod("d", BAD, json!({}))),
            (8, Change::Patch("b", json!({"spec": {"containers": [{"name": "c", "image": WORSE}]}}))),
            (11, Change::Delete("c")),
        ],
        rest: 15,
        replace: None,
        check: |end| {
            let message = |pod: &str| {
                let conditions = end[pod]["conditions"].as_array().into_iter().flatten();
                let own = conditions.filter(|condition| condition[0] == "podium.dev/ImagePolicy");
                own.map(|condition| condition[3].as_str().unwrap().to_owned()).collect::<String>()
            };
            assert_eq!(message("a"), "");
            assert!(message("b").contains(WORSE) && message("d").contains(BAD), "{end:#?}");
        },
    }
}

fn crashed(restarts: u32, reason: &str) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "c", "image": "registry.example/c:1", "imageID": "", "ready": false, "restartCount": restarts,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {
            "reason": reason, "exitCode": if reason == "OOMKilled" { 137 } else { 1 },
            "startedAt": "NOW-60", "finishedAt": "NOW-30",
        }},
    }]})
}

pub(super) fn triage() -> Story {
    const KEY: &str = "triage.podium.dev/diagnosis";
    let running = json!({"phase": "Running", "containerStatuses": [{
        "name": "c", "image": "registry.example/c:1", "imageID": "", "ready": true, "restartCount": 5,
        "state": {"running": {"startedAt": "NOW-0"}, "waiting": null},
    }]});
    Story {
        first: vec![plain("a"), pod("b", "registry.example/c:1", crashed(5, "Error")), plain("c")],
        later: vec![
            (5, Change::Status("a", crashed(2, "OOMKilled"))),
            (8, Change::Status("b", running)),
            (11, Change::Status("c", crashed(3, "Error"))),
        ],
        rest: 30,
        replace: Some(["recoverySeconds: 600", "recoverySeconds: 12"]),
        check: |end| {
            assert!(annotation(end, "a", KEY).is_some_and(|text| text.contains("OOMKilled")), "{end:#?}");
            assert_eq!(annotation(end, "b", KEY), None);
            assert!(annotation(end, "c", KEY).is_some());
        },
    }
}

pub(super) fn ttl() -> Story {
    let ended = |phase: &str, finished: &str| {
        json!({"phase": phase, "containerStatuses": [{
            "name": "c", "image": "registry.example/c:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "startedAt": "NOW-90000", "finishedAt": finished}},
        }]})
    };
    let image = "registry.example/c:1";
    Story {
        first: vec![
            plain("a"),
            pod("b", image, ended("Succeeded", "NOW-3590")),
            pod("c", image, ended("Failed", "NOW-3590")),
            pod("d", image, ended("Succeeded", "NOW-7200")),
        ],
        later: vec![(5, pod("e", image, ended("Failed", "NOW-86395"))), (8, pod("f", image, ended("Failed", "NOW-0")))],
        rest: 20,
        replace: None,
        check: |end| assert_eq!(end.keys().collect::<Vec<_>>(), ["a", "c", "f"]),
    }
}

pub(super) fn spread() -> Story {
    const KEY: &str = "podium.dev/crowded";
    Story {
        first: vec![plain("a"), plain("b"), plain("c"), plain("d")],
        later: vec![(20, Change::Delete("a")), (21, Change::Delete("b")), (30, plain("e"))],
        rest: 30,
        replace: Some(["settleSeconds: 30", "settleSeconds: 10"]),
        check: |end| {
            assert_eq!(end.len(), 3);
            end.keys().for_each(|pod| assert_eq!(annotation(end, pod, KEY), Some("node-0"), "{end:#?}"));
        },
    }
}
