//! A small API server and kubelet in memory, which apply the changes of each step.

#![allow(dead_code, reason = "each suite uses its part")]

use std::collections::BTreeMap;

use podium_workloads::{Action, Change, Kind, Step, step};
use serde_json::{Value, json};

pub(crate) const START: i64 = 1_767_225_600;
/// No history of these tests has more steps; one that does never settles.
const MOST_STEPS: usize = 2_000;

type Key = (Kind, String);

/// The objects of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) objects: BTreeMap<Key, Value>,
    pub(crate) now: i64,
    revision: u64,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self { objects: BTreeMap::new(), now: START, revision: 0 }
    }

    pub(crate) fn create(&mut self, kind: Kind, mut object: Value) {
        self.revision += 1;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (api_version, text) = kind.type_meta();
        object["apiVersion"] = api_version.into();
        object["kind"] = text.into();
        let metadata = &mut object["metadata"];
        metadata["namespace"] = "shop".into();
        metadata["uid"] = format!("uid-{}", self.revision).into();
        metadata["resourceVersion"] = self.revision.to_string().into();
        metadata["generation"] = 1.into();
        metadata["creationTimestamp"] = time(self.now);
        assert!(self.objects.insert((kind, name.clone()), object).is_none(), "{name} exists");
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> &Value {
        &self.objects[&(kind, name.to_owned())]
    }

    /// Changes an object as a user does; a change of the spec counts as a generation.
    pub(crate) fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.revision += 1;
        let Some(object) = self.objects.get_mut(&(kind, name.to_owned())) else { return };
        let before = object["spec"].clone();
        change(object);
        if object["spec"] != before {
            object["metadata"]["generation"] = (object["metadata"]["generation"].as_i64().unwrap() + 1).into();
        }
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let released = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        if object["metadata"]["gone"] == true && released {
            self.objects.remove(&(kind, name.to_owned()));
        }
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Vec<&Value> {
        self.objects.iter().filter(|((its, _), _)| *its == kind).map(|(_, object)| object).collect()
    }

    pub(crate) fn names(&self, kind: Kind) -> Vec<String> {
        self.objects.keys().filter(|(its, _)| *its == kind).map(|(_, name)| name.clone()).collect()
    }

    /// Returns the Pods that are neither finished nor being deleted.
    pub(crate) fn active(&self) -> Vec<&Value> {
        let mut pods = self.of_kind(Kind::Pod);
        pods.retain(|pod| {
            let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            !finished && pod["metadata"]["deletionTimestamp"].is_null()
        });
        pods
    }

    pub(crate) fn ready(&self) -> usize {
        self.available(0)
    }

    /// Returns the number of active Pods that have been ready for this time, in seconds.
    pub(crate) fn available(&self, seconds: i64) -> usize {
        self.available_pods(seconds).len()
    }

    pub(crate) fn available_pods(&self, seconds: i64) -> Vec<&Value> {
        let ready = |pod: &&Value| {
            let condition = &pod["status"]["conditions"][0];
            condition["status"] == "True" && pod["status"]["readyAt"].as_i64().unwrap() + seconds <= self.now
        };
        self.active().into_iter().filter(ready).collect()
    }

    /// Runs the controllers once. Returns their changes.
    pub(crate) fn step(&mut self) -> Step {
        let step = step(self.objects.values(), self.now);
        step.changes.iter().for_each(|change| self.apply(change));
        self.collect();
        step
    }

    fn apply(&mut self, change: &Change) {
        let kind = change.kind;
        let name = change.name.as_str();
        match &change.action {
            Action::Create(object) => self.create(kind, object.clone()),
            Action::Patch(patch) => self.edit(kind, name, |object| merge(object, patch)),
            Action::Status(status, annotations) => self.edit(kind, name, |object| {
                object["status"] = status.clone();
                for (key, value) in annotations {
                    object["metadata"]["annotations"][key] = value.clone();
                }
            }),
            Action::Delete(uid) => {
                assert_eq!(self.get(kind, name)["metadata"]["uid"], uid.as_str());
                self.delete(kind, name);
            }
        }
    }

    /// Deletes an object; a Pod only begins to end.
    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        if kind == Kind::Pod {
            let now = time(self.now);
            self.edit(kind, name, |pod| pod["metadata"]["deletionTimestamp"] = now);
        } else {
            self.objects.remove(&(kind, name.to_owned()));
            self.collect();
        }
    }

    /// Deletes objects whose owner is gone.
    fn collect(&mut self) {
        loop {
            let uids: Vec<Value> = self.objects.values().map(|object| object["metadata"]["uid"].clone()).collect();
            let orphan = self.objects.iter().find(|(_, object)| {
                let owner = &object["metadata"]["ownerReferences"][0]["uid"];
                let ends = !object["metadata"]["deletionTimestamp"].is_null();
                !ends && !owner.is_null() && !uids.contains(owner)
            });
            let Some((kind, name)) = orphan.map(|(key, _)| key.clone()) else { return };
            self.delete(kind, &name);
        }
    }

    /// Does the next step of a Pod's life: it becomes ready unless its image is `bad`, or its deletion ends.
    pub(crate) fn kubelet(&mut self, name: &str) {
        let at = self.now;
        let now = time(at);
        let Some(pod) = self.objects.get(&(Kind::Pod, name.to_owned())) else { return };
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return self.edit(Kind::Pod, name, |pod| pod["metadata"]["gone"] = true.into());
        }
        if pod["status"]["phase"].is_null() {
            let ready = if pod["spec"]["containers"][0]["image"] == "bad" { "False" } else { "True" };
            self.edit(Kind::Pod, name, |pod| {
                pod["spec"]["nodeName"] = "node-0".into();
                let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": now});
                pod["status"] = json!({"phase": "Running", "conditions": [condition], "readyAt": at});
            });
        }
    }

    pub(crate) fn finish(&mut self, name: &str, phase: &str) {
        let now = time(self.now);
        self.edit(Kind::Pod, name, |pod| {
            let ended = json!({"state": {"terminated": {"finishedAt": now}}});
            pod["status"] = json!({"phase": phase, "containerStatuses": [ended]});
        });
    }

    /// Runs controllers and kubelet until nothing changes, also in the time to come.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MOST_STEPS {
            let before = self.objects.clone();
            let step = self.step();
            self.names(Kind::Pod).iter().for_each(|name| self.kubelet(name));
            if self.objects == before {
                match step.due {
                    Some(due) => self.now = due,
                    None => return,
                }
            }
        }
        panic!("the controllers never settle: {:#?}", self.step().changes);
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    for (key, change) in changes {
        merge(&mut target[key], change);
    }
}

/// Formats the time within the first hour of the tests' day.
pub(crate) fn time(now: i64) -> Value {
    let seconds = now - START;
    format!(
        "2026-01-{:02}T{:02}:{:02}:{:02}Z",
        1 + seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
    .into()
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

pub(crate) fn deployment(replicas: i64, strategy: Value) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("1"),
            "strategy": strategy,
        },
    })
}

pub(crate) fn stateful_set(replicas: i64, policy: &str) -> Value {
    json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("1"),
            "podManagementPolicy": policy, "updateStrategy": {"type": "RollingUpdate"}, "serviceName": "db",
        },
    })
}

pub(crate) fn job(completions: i64, parallelism: i64) -> Value {
    json!({
        "metadata": {"name": "backup"},
        "spec": {
            "completions": completions, "parallelism": parallelism, "backoffLimit": 2,
            "selector": {"matchLabels": {"app": "web"}}, "template": template("1"),
        },
    })
}
