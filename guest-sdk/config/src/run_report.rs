//! The kind `RunReport`: a question about one Pod, which the host answers in the status of the object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{schema, text::DnsSubdomain};

/// The question. It cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// A Pod of the object's namespace, which does not need to exist any more.
    pub pod: Pod,
    /// Only this ReconcilePlugin of the object's namespace. Without it the answer is about all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<DnsSubdomain>,
}

/// The Pod that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pod {
    /// The name of the Pod.
    pub name: DnsSubdomain,
}

/// The answer. Written by the host only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// When the host answered. The host deletes the object a minute after it was made.
    #[schemars(extend("format" = "date-time"))]
    pub answered_at: String,
    /// The Pod and the ReconcilePlugins of its namespace, with reasons and latest runs, as /debug/pods has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub report: Option<Value>,
    /// Older runs, or plugins, are left out of the report, which would have more than 32 KiB with them.
    #[serde(default)]
    pub truncated: bool,
    /// Why there is no report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
