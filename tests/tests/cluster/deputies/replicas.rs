//! The faults, each as what a plugin of one tenant asks the host for, and what each wall answers.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client};
use podium_tests::controlplane::AuditedWrite;
use serde_json::{Value, json};

/// The objects of the other tenant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Victims {
    /// `bank/vault/<uid>`.
    pod: String,
    /// Revisions of the Pod and of the ConfigMap.
    revisions: [Option<String>; 2],
    /// ConfigMaps, Namespaces, ClusterRoles and Events that plugins would have made.
    planted: Vec<String>,
}

impl Victims {
    pub(super) async fn read(client: &Client) -> Result<Self> {
        let pod = Api::<Pod>::namespaced(client.clone(), "bank").get("vault").await?;
        let ledger = Api::<ConfigMap>::namespaced(client.clone(), "bank").get("ledger").await?;
        let mut planted = Vec::new();
        for path in [
            "/api/v1/namespaces/bank/configmaps",
            "/api/v1/namespaces",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ] {
            let list: Value = client.request(http::Request::get(path).body(Vec::new())?).await?;
            let names = list["items"].as_array().context("a list")?.iter();
            let names = names.filter_map(|item| item["metadata"]["name"].as_str());
            planted.extend(names.filter(|name| name.starts_with("planted")).map(|name| format!("{path}/{name}")));
        }
        let events = "/apis/events.k8s.io/v1/namespaces/bank/events";
        let list: Value = client.request(http::Request::get(events).body(Vec::new())?).await?;
        let by_host = list["items"].as_array().context("a list")?.iter();
        planted.extend(by_host.filter(|event| event["reportingController"] == "podium.dev/host").map(Value::to_string));
        let uid = pod.metadata.uid.context("no uid")?;
        let revisions = [pod.metadata.resource_version, ledger.metadata.resource_version];
        Ok(Self { pod: format!("bank/vault/{uid}"), revisions, planted })
    }
}

/// A published fault.
pub(super) struct Replica {
    pub(super) fault: &'static str,
    plugins: fn(&Victims) -> Vec<(&'static str, &'static str, Value)>,
    /// The host's answer to each call, by plugin; `""` for any answer.
    by_host: &'static [(&'static str, &'static [&'static str])],
    /// Requests that RBAC refuses, each at least so often: plugin, verb, resource, namespace, name.
    by_rbac: &'static [(&'static str, usize, [&'static str; 4])],
}

const NOT_GRANTED: &str = "NotGranted)";

/// A ConfigMap, in the form that a plugin applies.
fn map(namespace: &str, name: &str) -> String {
    let metadata = json!({ "namespace": namespace, "name": name });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "a": "b" } }).to_string()
}

fn cluster_scoped(kind: &str, namespace: Option<&str>) -> String {
    let api_version = match kind {
        "Namespace" => "v1",
        "Realm" => "guests.example/v1",
        _ => "rbac.authorization.k8s.io/v1",
    };
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "planted" } });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object.to_string()
}

/// The calls of a plugin after it has staged the label that it may set.
fn calls(name: &str, calls: Value) -> Value {
    let mut all = vec![json!(["label", "own", format!("guests.example/{name}"), "yes"]), json!(["commit"])];
    all.extend(calls.as_array().cloned().unwrap_or_default());
    all.into()
}

fn one(name: &'static str, of: Value) -> Vec<(&'static str, &'static str, Value)> {
    vec![(name, "", calls(name, of))]
}

pub(super) const REPLICAS: &[Replica] = &[
    Replica {
        fault: "Kyverno CVE-2026-22039: calls of another namespace's API",
        plugins: |_| {
            one("kyverno", json!([["live", "bank", "vault"], ["apply", map("bank", "planted-a")], ["commit"]]))
        },
        by_host: &[("kyverno", &["", "", "live: Ok(None)", NOT_GRANTED, "commit: Ok([])"])],
        by_rbac: &[
            ("kyverno", 1, ["get", "pods", "bank", "vault"]),
            ("kyverno", 1, ["patch", "configmaps", "bank", "planted-a"]),
        ],
    },
    Replica {
        fault: "  the same by retries and resyncs",
        plugins: |_| {
            let attempt = |last: Value| json!([["apply", map("bank", "planted-b")], ["commit"], last]);
            let again = attempt(json!(["commit"]));
            vec![
                ("retry", "", calls("retry", attempt(json!(["retry", "once more"])))),
                ("resync", ", resyncSeconds: 10", calls("resync", again)),
            ]
        },
        // At least three runs each.
        by_host: &[
            ("retry", &["", "", NOT_GRANTED, "", "", "", NOT_GRANTED, "", "", "", NOT_GRANTED]),
            ("resync", &["", "", NOT_GRANTED, "", "", "", "", NOT_GRANTED]),
        ],
        by_rbac: &[
            ("retry", 3, ["patch", "configmaps", "bank", "planted-b"]),
            ("resync", 2, ["patch", "configmaps", "bank", "planted-b"]),
        ],
    },
    Replica {
        fault: "Capsule CVE-2026-22872: cluster-scoped kinds",
        plugins: |_| {
            let mut calls_of_all = Vec::new();
            for kind in ["Realm", "ClusterRole", "Namespace"] {
                for namespace in [None, Some("shop")] {
                    calls_of_all.extend([json!(["apply", cluster_scoped(kind, namespace)]), json!(["commit"])]);
                }
            }
            one("capsule", calls_of_all.into())
        },
        // With a namespace the request is one in that namespace, where no API server serves such a resource. The plugin
        // of a namespace has no grant of the other two, because a configuration with it is refused.
        by_host: &[(
            "capsule",
            &[
                "",
                "",
                NOT_GRANTED,
                "commit: Ok([])",
                "apply: Ok(",
                "are not served with a namespace",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
            ],
        )],
        by_rbac: &[
            ("capsule", 1, ["patch", "realms", "", "planted"]),
            ("capsule", 1, ["patch", "clusterroles", "", "planted"]),
            ("capsule", 1, ["patch", "namespaces", "planted", "planted"]),
        ],
    },
    Replica {
        fault: "Kubewarden GHSA-6r7f-3fwq-hq74: calls beside the checks",
        plugins: |victims| {
            one(
                "side-call",
                json!([
                    ["event", victims.pod, "Planted", "a note"],
                    ["commit"],
                    ["apply-owned", map("shop", "planted-c"), victims.pod],
                    ["commit"],
                    ["apply-owned", map("bank", "planted-c"), victims.pod],
                    ["commit"],
                    ["get", "bank", "vault"],
                    ["count", "bank"],
                    ["find", "bank"],
                    ["state", "bank/vault"]
                ]),
            )
        },
        by_host: &[(
            "side-call",
            &[
                "",
                "",
                NOT_GRANTED,
                "commit: Ok([])",
                "the owner must be in the object's namespace",
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                "get: Ok(None)",
                "count: Ok(0)",
                "find: Ok((0, None))",
                "state: Ok(false)",
            ],
        )],
        by_rbac: &[
            ("side-call", 1, ["create", "events", "bank", ""]),
            ("side-call", 1, ["patch", "configmaps", "bank", "planted-c"]),
        ],
    },
    Replica {
        fault: "Kubewarden CVE-2026-42541: reconnaissance",
        plugins: |victims| {
            let nothing = "bank/nothing/00000000-0000-4000-8000-000000000001";
            one(
                "recon",
                json!([
                    ["live", "bank", "vault"],
                    ["live", "bank", "nothing"],
                    ["apply", map("bank", "ledger")],
                    ["commit"],
                    ["apply", map("bank", "planted-d")],
                    ["commit"],
                    ["drop", "ConfigMap", "bank", "ledger"],
                    ["commit"],
                    ["drop", "ConfigMap", "bank", "planted-d"],
                    ["commit"],
                    // Only the host's own checks are asked from here on: it answers reads from its cache.
                    ["get", "bank", "vault"],
                    ["get", "bank", "nothing"],
                    ["count", "bank"],
                    ["count", "nowhere"],
                    ["find", "bank"],
                    ["find", "nowhere"],
                    ["label", victims.pod, "guests.example/planted", "a"],
                    ["label", nothing, "guests.example/planted", "a"],
                    ["delete", victims.pod],
                    ["delete", nothing],
                    ["event", victims.pod, "Planted", "a"],
                    ["event", nothing, "Planted", "a"]
                ]),
            )
        },
        by_host: &[(
            "recon",
            &[
                "",
                "",
                "live: Ok(None)",
                "live: Ok(None)",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                "get: Ok(None)",
                "get: Ok(None)",
                "count: Ok(0)",
                "count: Ok(0)",
                "find: Ok((0, None))",
                "find: Ok((0, None))",
                NOT_GRANTED,
                NOT_GRANTED,
                NOT_GRANTED,
                NOT_GRANTED,
                NOT_GRANTED,
                NOT_GRANTED,
            ],
        )],
        by_rbac: &[
            ("recon", 1, ["get", "pods", "bank", "vault"]),
            ("recon", 1, ["get", "pods", "bank", "nothing"]),
            ("recon", 1, ["patch", "configmaps", "bank", "ledger"]),
            ("recon", 1, ["patch", "configmaps", "bank", "planted-d"]),
            ("recon", 1, ["delete", "configmaps", "bank", "ledger"]),
            ("recon", 1, ["delete", "configmaps", "bank", "planted-d"]),
        ],
    },
    Replica {
        fault: "Argo CD CVE-2023-22736: another path to the same write",
        plugins: |victims| {
            one(
                "second-path",
                json!([
                    ["label", victims.pod, "guests.example/planted", "a"],
                    ["commit"],
                    ["condition", victims.pod, "guests.example/Planted", "a"],
                    ["commit"],
                    ["delete", victims.pod],
                    ["commit"],
                    ["evict", victims.pod],
                    ["commit"],
                    // Sent when the run has ended.
                    ["annotate", victims.pod, "guests.example/planted", "a"]
                ]),
            )
        },
        by_host: &[(
            "second-path",
            &[
                "",
                "",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
                "commit: Ok([])",
                NOT_GRANTED,
            ],
        )],
        by_rbac: &[
            // The label by a commit, and the annotation at the end.
            ("second-path", 2, ["patch", "pods", "bank", "vault"]),
            ("second-path", 1, ["patch", "pods/status", "bank", "vault"]),
            ("second-path", 1, ["delete", "pods", "bank", "vault"]),
            ("second-path", 1, ["create", "pods/eviction", "bank", "vault"]),
        ],
    },
];

impl Replica {
    /// The plugins of the replica: name, further fields of `watch`, calls.
    pub(super) fn plugins(&self, victims: &Victims) -> Vec<(&'static str, &'static str, Value)> {
        (self.plugins)(victims)
    }

    /// Each call must be answered as expected in the first runs.
    pub(super) fn refused_by_the_host(&self, plugin: &str, answers: &[String]) -> Result<()> {
        let (_, expected) = self.by_host.iter().find(|(name, _)| *name == plugin).context("no such plugin")?;
        ensure!(answers.len() >= expected.len(), "{plugin} made {} calls: {answers:#?}", answers.len());
        for (answer, expected) in answers.iter().zip(*expected) {
            ensure!(answer.contains(expected), "{plugin}: {answer}, expected {expected}");
        }
        Ok(())
    }

    /// Each request must have been sent and refused, and existence must make no difference.
    pub(super) fn refused_by_rbac(&self, plugin: &str, answers: &[String], sent: &[&AuditedWrite]) -> Result<()> {
        for (_, least, request) in self.by_rbac.iter().filter(|(name, ..)| *name == plugin) {
            let [verb, resource, namespace, name] = request;
            let is_it = |of: &&&AuditedWrite| {
                of.verb == *verb && of.resource == *resource && of.namespace == *namespace && of.name == *name
            };
            let codes: Vec<u16> = sent.iter().filter(is_it).map(|of| of.code).collect();
            let refused = codes.iter().all(|code| *code == 403);
            ensure!(refused && codes.len() >= *least, "{plugin}: {request:?} was answered {codes:?}: {answers:#?}");
        }
        if plugin == "recon" {
            // The API server names in its refusal the object that was asked for.
            let names = ["vault", "nothing", "ledger", "planted-d"];
            let same = |answer: &str| names.iter().fold(answer.to_owned(), |answer, name| answer.replace(name, "*"));
            // Behind the label: live reads, applies with commits, deletions with commits; present and missing.
            for (present, missing) in [(2, 3), (5, 7), (9, 11)] {
                let [present, missing] = [present, missing].map(|at| answers.get(at).map(|answer| same(answer)));
                ensure!(present.is_some() && present == missing, "{present:?} is not {missing:?}");
                ensure!(
                    present.is_some_and(|answer| answer.contains("403") || answer.contains("forbidden")),
                    "not 403"
                );
            }
        }
        Ok(())
    }
}
