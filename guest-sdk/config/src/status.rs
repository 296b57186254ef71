//! The status of a plugin object, as the host writes it.
//!
//! It has no counters and no times of success: a cluster in which nothing changes sees no write of a status.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::schema;

/// The end of a message about a failure that may pass.
pub const RETRIED: &str = "it is tried again with back-off";

/// The state of the plugin. Written by the host only.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The generation of the object that the conditions are about.
    pub observed_generation: i64,
    /// Fetched, Verified, Compiled, Granted, Ready and Healthy. `kubectl wait --for=condition=Ready` waits for the
    /// plugin to run; Healthy is False while its runs fail or the API server refuses its writes. A suspended plugin
    /// has Suspended instead of Ready. InputsReady is False while runs of the version that runs do not receive one of
    /// its inputs.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The version that runs. It is one of an earlier generation if the present one could not be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Active>,
    /// The failures of the version that runs, at most 8: one for each reason and message. An entry is removed 10
    /// minutes after its last occurrence, and does not change before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// The finalizers that the plugin may have put on Pods. The host removes them when the object is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizers: Option<Finalizers>,
    /// The kinds of writes that RBAC refuses, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_writes: Vec<RefusedWrite>,
}

/// The finalizers that the plugin may have put on Pods.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finalizers {
    /// Names, and prefixes that end with `*`.
    pub names: Vec<String>,
    /// When the host first let the plugin of this object put finalizers on Pods.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

/// The result of one step from the object to a plugin that runs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The step.
    pub r#type: &'static str,
    /// Unknown if the step was not attempted.
    #[schemars(schema_with = "schema::condition_status")]
    pub status: &'static str,
    /// The cause in one word, in CamelCase.
    pub reason: &'static str,
    /// The cause for people, with what to do.
    pub message: String,
    /// The generation of the object that the condition is about.
    pub observed_generation: i64,
    /// The last time that the status changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}

/// A version of the plugin that runs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Active {
    /// The digest of the component or script.
    pub digest: String,
    /// The runner of the script; absent for a component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<Runner>,
    /// The image that the component is from, with the digest of its manifest; absent if it is not from a registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The generation of the object that the version is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The functions of the host that the component imports; those of its runner for a script.
    pub imports: Vec<String>,
    /// The grants of the version, as spec.grants had them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub grants: Option<Value>,
}

/// The runner of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    /// The language of the script.
    pub language: String,
    /// The name of the runner.
    pub name: String,
    /// The digest of the runner.
    pub digest: String,
}

/// A failed run, or a write that the API server refused three times.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The reason of the run (retry, terminal, trap, cpu, deadline, memory, host), or the result of the write
    /// (forbidden, invalid, owned_by_other, blocked).
    pub reason: String,
    /// The message, with `*` instead of the Pod.
    pub message: String,
    /// The first Pod that was seen.
    pub pod: String,
    /// The time of the first occurrence.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// True for an entry of before the host's last start that has not occurred since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before_restart: bool,
}

/// A kind of writes that RBAC refuses.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedWrite {
    /// The account as RBAC names it; absent for the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The verb that is refused.
    pub verb: String,
    /// The resource, with subresource and group.
    pub resource: String,
    /// The namespace; absent for objects without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The right that is missing.
    pub message: String,
}
