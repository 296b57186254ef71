//! RBAC with impersonation: the second line of defence behind a plugin's grants, and its gap.

use anyhow::Result;
use serde_json::{Value, json};

use super::pod;
use crate::conformance::exchange::{APPLY, Call, Exchange, STRATEGIC, uid};

async fn allow(x: &mut Exchange, resources: Value, verbs: Value) -> Result<()> {
    let rbac = |rest: &str| x.group_path("rbac.authorization.k8s.io/v1", rest);
    let (roles, bindings) = (rbac("roles"), rbac("rolebindings"));
    let role = json!({
        "metadata": { "name": "plugin" },
        "rules": [{ "apiGroups": [""], "resources": resources, "verbs": verbs }],
    });
    let binding = json!({
        "metadata": { "name": "plugin" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "plugin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "plugin", "namespace": x.namespace }],
    });
    x.step("a Role", Call::post(roles, role)).await?;
    x.step("a RoleBinding", Call::post(bindings, binding)).await.map(drop)
}

pub(crate) async fn rights(x: &mut Exchange) -> Result<()> {
    let user = format!("system:serviceaccount:{}:plugin", x.namespace);
    let made = x.step("create", Call::post(x.path("pods"), pod("a", None, json!({})))).await?;
    let one = x.path("pods/a");
    let patch = json!({ "metadata": { "uid": uid(&made), "labels": { "k": "v" } } });
    let labelled = Call::patch(STRATEGIC, &*one, patch).impersonating(&user);
    x.step("nothing is allowed", labelled.clone()).await?;
    x.step("not even to read", Call::get(&*one).impersonating(&user)).await?;
    allow(x, json!(["pods"]), json!(["get", "patch"])).await?;
    // Authorizers see a new binding with a delay.
    x.eventually("a granted patch", 200, labelled).await?;
    x.step("to read", Call::get(&*one).impersonating(&user)).await?;
    x.step("but not to list", Call::get(x.path("pods")).impersonating(&user)).await?;
    x.step("nor to delete", Call::delete(&*one, json!({})).impersonating(&user)).await?;
    let condition = json!({ "status": { "conditions": [{ "type": "x.example/Y", "status": "True" }] } });
    x.step("nor a subresource", Call::patch(STRATEGIC, x.path("pods/a/status"), condition).impersonating(&user))
        .await?;
    let evict = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" } });
    x.step("nor to evict", Call::post(x.path("pods/a/eviction"), evict).impersonating(&user)).await?;
    let elsewhere = Call::patch(STRATEGIC, "/api/v1/namespaces/default/pods/a", json!({})).impersonating(&user);
    x.step("nor elsewhere", elsewhere).await?;
    let body = pod("new", None, json!({}));
    let create = Call::patch(APPLY, format!("{}?fieldManager=one", x.path("pods/new")), body);
    x.step("applying an absent object is creating", create.impersonating(&user)).await.map(drop)
}

pub(crate) async fn status_gap(x: &mut Exchange) -> Result<()> {
    let user = format!("system:serviceaccount:{}:plugin", x.namespace);
    let mut body = pod("a", None, json!({}));
    body["metadata"]["finalizers"] = json!(["shop.example/theirs"]);
    x.step("create", Call::post(x.path("pods"), body)).await?;
    allow(x, json!(["pods/status"]), json!(["patch"])).await?;
    let patch = json!({
        "metadata": {
            "labels": { "by": "status" },
            "annotations": { "by": "status" },
            "$deleteFromPrimitiveList/finalizers": ["shop.example/theirs"],
        },
    });
    let status = Call::patch(STRATEGIC, x.path("pods/a/status"), patch.clone()).impersonating(&user);
    x.eventually("metadata through status", 200, status).await?;
    let main = Call::patch(STRATEGIC, x.path("pods/a"), patch).impersonating(&user);
    x.step("the main resource is closed", main).await.map(drop)
}
