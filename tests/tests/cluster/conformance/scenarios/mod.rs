//! The operations by subject. Each scenario has its own namespace and does not depend on the server.

mod applies;
mod deletes;
mod kinds;
mod openapi;
mod pods;
mod reads;
mod rights;
mod validation;
mod watches;
mod workloads;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};

use crate::conformance::exchange::Exchange;

/// One subject.
pub(crate) struct Scenario {
    /// The name, also of its namespace.
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a mut Exchange) -> LocalBoxFuture<'a, Result<()>>,
}

macro_rules! scenarios {
    ($($name:literal: $run:path,)*) => {
        &[$(Scenario { name: $name, run: |exchange| Box::pin($run(exchange)) },)*]
    };
}

pub(crate) const SCENARIOS: &[Scenario] = scenarios! {
    "objects": reads::objects,
    "lists": reads::lists,
    "tables": reads::tables,
    "discovery": reads::discovery,
    "openapi": openapi::documents,
    "watches": watches::watches,
    "streaming lists": watches::streaming_lists,
    "pod metadata": pods::metadata,
    "pod finalizers": pods::finalizers,
    "pod status": pods::status,
    "pod preconditions": pods::preconditions,
    "pod validation": pods::validation,
    "pod token": pods::token,
    "pod logs": pods::logs,
    "unknown fields": validation::unknown_fields,
    "duplicate fields": validation::duplicate_fields,
    "wrong types": validation::wrong_types,
    "wrong types in patches": validation::wrong_types_in_patches,
    "apply of wrong fields": validation::apply,
    "apply as yaml": validation::yaml,
    "deletion": deletes::deletion,
    "graceful deletion": deletes::graceful,
    "last finalizer": deletes::last_finalizer,
    "eviction": deletes::eviction,
    "garbage collection": deletes::garbage,
    "server-side apply": applies::conflicts,
    "apply and uid": applies::incarnations,
    "apply on pods": applies::on_pods,
    "events": kinds::events,
    "leases": kinds::leases,
    "custom resources": kinds::custom,
    "rights": rights::rights,
    "pods status is more than status": rights::status_gap,
    "workload validation": workloads::validation,
    "workload updates": workloads::immutable,
};

/// Scenarios for servers with nodes and controllers.
pub(crate) const HISTORIES: &[Scenario] = scenarios! {
    "rollouts": workloads::rollouts,
    "ordinals": workloads::ordinals,
    "completions": workloads::completions,
};

/// Returns a Pod without volumes from admission plugins, on the node or unscheduled.
fn pod(name: &str, node: Option<&str>, labels: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "registry.example/app:1" }],
        },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

fn config_map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}
