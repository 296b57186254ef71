//! Bodies that do not match a kind's type: unknown fields, duplicate fields, values of another type.

use anyhow::Result;
use serde_json::{Value, json};

use super::{config_map, pod};
use crate::conformance::exchange::{APPLY, Call, Exchange, JSON_PATCH, MERGE, STRATEGIC};

const DIRECTIVES: [&str; 5] =
    ["", "&fieldValidation=Ignore", "&fieldValidation=Warn", "&fieldValidation=Strict", "&fieldValidation=strict"];

/// Returns a Pod with misspelt fields at several depths.
fn misspelt(name: &str) -> Value {
    let mut misspelt = pod(name, None, json!({}));
    misspelt["kin"] = json!("Pod");
    misspelt["metadata"]["lables"] = json!({ "a": "b" });
    misspelt["spec"]["contaners"] = json!([{ "name": "x" }]);
    misspelt["spec"]["containers"][0]["imag"] = json!("x");
    misspelt["spec"]["containers"][0]["resources"] = json!({ "limit": { "cpu": "1" } });
    misspelt["spec"]["volumes"] = json!([{ "name": "v", "emptyDir": {}, "emptydir": {} }]);
    misspelt
}

pub(crate) async fn unknown_fields(x: &mut Exchange) -> Result<()> {
    for (index, directive) in DIRECTIVES.iter().enumerate() {
        let create = Call::post(format!("{}?dryRun=All{directive}", x.path("pods")), misspelt(&format!("a{index}")));
        x.step(&format!("create {directive}"), create.with_message()).await?;
    }
    x.step("create", Call::post(x.path("pods"), misspelt("a"))).await?;
    for directive in DIRECTIVES {
        let one = format!("{}?dryRun=All{directive}", x.path("pods/a"));
        let live = x.look(Call::get(x.path("pods/a"))).await?;
        let mut replaced = live.clone();
        replaced["spec"]["contaners"] = json!([]);
        x.step(&format!("replace {directive}"), Call::put(&*one, replaced).with_message()).await?;
        // The message of a JSON patch or a merge patch contains the whole object with its times.
        let patch = json!({ "metadata": { "lables": { "a": "b" } }, "spec": { "b": 1, "a": [{ "c": 1 }] } });
        x.step(&format!("merge {directive}"), Call::patch(MERGE, &*one, patch.clone()).hiding("message")).await?;
        x.step(&format!("strategic merge {directive}"), Call::patch(STRATEGIC, &*one, patch)).await?;
        let operations = json!([{ "op": "add", "path": "/spec/contaners", "value": [], "vale": 1 }]);
        x.step(&format!("JSON patch {directive}"), Call::patch(JSON_PATCH, &*one, operations).hiding("message"))
            .await?;
        let evict = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a", "nam": "b" } });
        let eviction = format!("{}?dryRun=All{directive}", x.path("pods/a/eviction"));
        x.step(&format!("evict {directive}"), Call::post(eviction, evict).with_message()).await?;
    }
    let lease = json!({ "metadata": { "name": "a" }, "spec": { "holder": "me" }, "status": {} });
    let leases = x.group_path("coordination.k8s.io/v1", "leases?fieldValidation=Strict");
    x.step("a Lease", Call::post(leases, lease).with_message()).await?;
    let role = json!({ "metadata": { "name": "a" }, "rules": [{ "verb": ["get"], "verbs": ["get"] }] });
    let roles = x.group_path("rbac.authorization.k8s.io/v1", "roles?fieldValidation=Strict");
    x.step("a Role", Call::post(roles, role).with_message()).await.map(drop)
}

pub(crate) async fn duplicate_fields(x: &mut Exchange) -> Result<()> {
    let body = r#"{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "name": "b", "labels": {"l": "1",
        "l": "2"}, "nam": 1, "nam": 2}, "data": {"k": "1", "k": "2"}, "data": {"j": "1"}}"#;
    for directive in DIRECTIVES {
        let create = Call::post(format!("{}?dryRun=All{directive}", x.path("configmaps")), json!({}));
        x.step(&format!("create {directive}"), create.with_body(body).with_message()).await?;
    }
    x.step("create", Call::post(x.path("configmaps"), config_map("a", json!({ "k": "v" })))).await?;
    for directive in DIRECTIVES {
        let one = format!("{}?dryRun=All{directive}", x.path("configmaps/a"));
        for media in [MERGE, STRATEGIC] {
            let patch = Call::patch(media, &*one, json!({})).with_body(r#"{"data": {"k": "1", "k": "2"}}"#);
            x.step(&format!("{media} {directive}"), patch.hiding("message")).await?;
        }
        let operations = r#"[{"op": "add", "path": "/data/x", "op": "add", "value": "y"}]"#;
        let patch = Call::patch(JSON_PATCH, &*one, json!({})).with_body(operations);
        x.step(&format!("JSON patch {directive}"), patch.hiding("message")).await?;
        let applied =
            r#"{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v", "k": "v"}}"#;
        let apply = Call::patch(APPLY, format!("{one}&fieldManager=m"), json!({})).with_body(applied);
        x.step(&format!("apply {directive}"), apply.with_message()).await?;
    }
    Ok(())
}

pub(crate) async fn wrong_types(x: &mut Exchange) -> Result<()> {
    for data in
        [json!({ "a": 1 }), json!({ "a": true }), json!({ "a": {} }), json!({ "a": null }), json!([]), json!("x")]
    {
        let create = Call::post(x.path("configmaps?dryRun=All"), config_map("a", data.clone()));
        x.step(&format!("data {data}"), create.with_message()).await?;
    }
    for (pointer, value) in [
        ("/spec", json!("x")),
        ("/spec/containers", json!({})),
        ("/spec/containers", json!(["a"])),
        ("/spec/containers/0/image", json!(1)),
        ("/spec/containers/0/command", json!("sh")),
        ("/spec/containers/0/command", json!([1])),
        ("/spec/containers/0/ports", json!([{ "containerPort": "http" }])),
        ("/spec/containers/0/ports", json!([{ "containerPort": 1.5 }])),
        ("/spec/containers/0/ports", json!([{ "containerPort": 5_000_000_000_i64 }])),
        ("/spec/containers/0/imagePullPolicy", json!(1)),
        ("/spec/containers/0/stdin", json!("yes")),
        ("/spec/containers/0/resources", json!({ "limits": { "cpu": "much" } })),
        ("/spec/containers/0/resources", json!({ "limits": { "cpu": "1 Gi" } })),
        ("/spec/containers/0/resources", json!({ "limits": { "cpu": "" } })),
        ("/spec/containers/0/resources", json!({ "limits": { "cpu": true } })),
        ("/spec/containers/0/resources", json!({ "limits": ["cpu"] })),
        ("/spec/containers/0/livenessProbe", json!({ "httpGet": { "port": {} } })),
        ("/spec/containers/0/livenessProbe", json!({ "httpGet": { "port": 1.5 } })),
        ("/spec/volumes", json!([{ "name": "v", "hostPath": "/" }])),
        ("/spec/volumes", json!([{ "name": "v", "hostPath": { "path": 1 } }])),
        ("/spec/automountServiceAccountToken", json!("false")),
        ("/spec/nodeSelector", json!({ "a": 1 })),
        ("/spec/tolerations", json!([{ "tolerationSeconds": "1" }])),
        ("/metadata/labels", json!(["a"])),
        ("/metadata/annotations", json!({ "a": ["b"] })),
        ("/metadata/finalizers", json!("a.example/b")),
        ("/metadata/creationTimestamp", json!("soon")),
        ("/metadata/creationTimestamp", json!("2026-13-01T00:00:00Z")),
        ("/metadata/creationTimestamp", json!("2026-01-01")),
        ("/metadata/creationTimestamp", json!(1)),
        ("/metadata/ownerReferences", json!([{ "controller": 1 }])),
        ("/metadata/name", json!(1)),
        ("/metadata", json!([])),
        ("/status", json!({ "phase": 1 })),
    ] {
        let mut body = pod("a", None, json!({}));
        set(&mut body, pointer, value.clone());
        let create = Call::post(x.path("pods?dryRun=All"), body);
        x.step(&format!("{pointer} {value}"), create.with_message()).await?;
    }
    let mut two = pod("a", None, json!({}));
    two["spec"]["hostname"] = json!(1);
    two["spec"]["overhead"] = json!({ "cpu": "much" });
    two["spec"]["subdomain"] = json!(2);
    x.step("two of them", Call::post(x.path("pods?dryRun=All"), two).with_message()).await?;
    let lease = |time: Value| json!({ "metadata": { "name": "a" }, "spec": { "renewTime": time } });
    let leases = x.group_path("coordination.k8s.io/v1", "leases?dryRun=All");
    for time in [json!("2020-01-01T00:00:00Z"), json!("2020-01-01T00:00:00.000001+01:00"), json!(1), json!("")] {
        x.step(&format!("a Lease of {time}"), Call::post(&*leases, lease(time)).with_message()).await?;
    }
    for data in
        [json!({ "a": "YWI=" }), json!({ "a": "$" }), json!({ "a": "YWI" }), json!({ "a": 1 }), json!({ "a": null })]
    {
        let secret = json!({ "metadata": { "name": "a" }, "data": data });
        let create = Call::post(x.path("secrets?dryRun=All"), secret);
        x.step(&format!("a Secret of {data}"), create.with_message()).await?;
    }
    for body in ["[]", "1", "null", "\"x\"", "{", "{} {}", "", "{\"kind\": 1}"] {
        let create = Call::post(x.path("configmaps?dryRun=All"), json!({})).with_body(body);
        x.step(&format!("the body {body}"), create).await?;
    }
    Ok(())
}

pub(crate) async fn wrong_types_in_patches(x: &mut Exchange) -> Result<()> {
    x.step("create", Call::post(x.path("pods"), pod("a", None, json!({ "l": "1" })))).await?;
    let one = x.path("pods/a?dryRun=All");
    for patch in [
        json!({ "metadata": { "labels": { "l": 1 } } }),
        json!({ "metadata": { "labels": ["l"] } }),
        json!({ "metadata": { "finalizers": "x" } }),
        json!({ "spec": "x" }),
        json!({ "spec": { "hostname": 1 } }),
        json!({ "spec": { "hostname": true } }),
        json!({ "spec": { "hostname": {} } }),
        json!({ "spec": { "restartPolicy": 1 } }),
        json!({ "spec": { "priority": "x" } }),
        json!({ "spec": { "priority": 1.5 } }),
        json!({ "spec": { "hostNetwork": "x" } }),
        json!({ "spec": { "nodeSelector": "x" } }),
        json!({ "spec": { "securityContext": 1 } }),
        json!({ "spec": { "activeDeadlineSeconds": 1.0 } }),
        json!({ "spec": { "containers": [{ "name": "main", "command": "sh" }] } }),
        json!({ "spec": { "containers": [{ "name": "main", "ports": [{ "containerPort": "x" }] }] } }),
    ] {
        x.step(&format!("strategic merge {patch}"), Call::patch(STRATEGIC, &*one, patch.clone())).await?;
        // The message contains the whole object with its times.
        x.step(&format!("merge {patch}"), Call::patch(MERGE, &*one, patch).hiding("message")).await?;
    }
    for (path, value) in
        [("/metadata/labels/l", json!(1)), ("/spec/containers/0/image", json!(null)), ("/spec", json!([]))]
    {
        let operations = json!([{ "op": "replace", "path": path, "value": value }]);
        let patch = Call::patch(JSON_PATCH, &*one, operations).hiding("message");
        x.step(&format!("JSON patch {path} {value}"), patch).await?;
    }
    Ok(())
}

pub(crate) async fn apply(x: &mut Exchange) -> Result<()> {
    let bodies = [
        ("/metadata/lables", json!({})),
        ("/metadata/labels", json!({ "l": 1 })),
        ("/metadata/labels", json!("x")),
        ("/spec/contaners", json!([])),
        ("/spec/containers/0/imag", json!("x")),
        ("/spec/containers/0/command", json!("sh")),
        ("/spec/containers/0/command", json!([1])),
        ("/spec/containers/0/stdin", json!("yes")),
        ("/spec/containers/0/ports", json!([{ "containerPort": "http" }])),
        ("/spec/containers/0/ports", json!([{ "containerPort": 80 }, { "containerPort": 80 }])),
        ("/spec/containers/0/env", json!([{ "name": "a", "valu": "x" }])),
        ("/spec/containers", json!(["x"])),
        ("/spec/volumes", json!([{ "name": "v", "hostPath": "/" }])),
        ("/spec/hostname", json!({ "a": [1, "b", null] })),
        ("/spec", json!([])),
    ];
    for directive in ["", "&fieldValidation=Ignore", "&fieldValidation=Strict"] {
        for (pointer, value) in &bodies {
            let mut body = pod("a", None, json!({}));
            set(&mut body, pointer, value.clone());
            let path = format!("{}?dryRun=All&fieldManager=m{directive}", x.path("pods/a"));
            let call = Call::patch(APPLY, path, body).with_message();
            x.step(&format!("apply {pointer} {value} {directive}"), call).await?;
        }
    }
    let map = |data: Value| config_map("a", data);
    for data in [json!({ "a": 1 }), json!({ "a": null }), json!({ "a": {} }), json!([1]), json!(true)] {
        let path = x.path("configmaps/a?dryRun=All&fieldManager=m");
        let call = Call::patch(APPLY, path, map(data.clone())).with_message();
        x.step(&format!("apply data {data}"), call).await?;
    }
    Ok(())
}

pub(crate) async fn yaml(x: &mut Exchange) -> Result<()> {
    let path = x.path("configmaps/a?dryRun=All&fieldManager=m");
    for value in [
        "a\u{85}b",
        "a \u{85} b",
        "a\u{85}\u{85}b",
        "a\u{85}\u{85}\u{85}b",
        "\u{85}a\u{85}",
        "a \u{2028} b",
        "a\u{2029}\u{85}b",
        "a\u{85}\u{2028}b",
        "a\u{7f}b",
        "a\u{80}b",
        "a\u{a0}b",
        "a\u{feff}b",
        "\u{feff}",
        "a\u{fffd}b",
        "a\u{fffe}b",
        "a\u{ffff}b",
        "\u{e9}\u{1f600}",
        "\u{10ffff}",
        " a  b ",
        "a\tb\nc",
        "# no comment: {[&*!|>%@`",
    ] {
        let call = Call::patch(APPLY, &*path, config_map("a", json!({ "k": value }))).with_message();
        x.step(&format!("a value {value:?}"), call).await?;
    }
    let with = |entry: &str| {
        format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "a"}}, "data": {{{entry}}}}}"#)
    };
    for entry in [
        r#""k": "\ud83d\ude00""#,
        r#""k": "\u00e9\u0085\u007f\ufffe""#,
        r#""k": "a\/b""#,
        "\"k\u{85}l\": \"v\"",
        r#""k": 1e3"#,
        r#""k":"v","l":"w""#,
    ] {
        let call = Call::patch(APPLY, &*path, json!({})).with_body(&with(entry)).with_message();
        x.step(&format!("an entry {entry:?}"), call).await?;
    }
    let long = with(&format!("\"{}\": \"v\"", "k".repeat(1100)));
    x.step("a long key", Call::patch(APPLY, &*path, json!({})).with_body(&long).hiding("message")).await?;
    let plain = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v # why\n";
    x.step("YAML", Call::patch(APPLY, &*path, json!({})).with_body(plain)).await.map(drop)
}

/// Sets a value at a JSON pointer, whose parent must exist.
fn set(body: &mut Value, pointer: &str, value: Value) {
    let (parent, last) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(parent) = body.pointer_mut(parent) {
        parent[last] = value;
    }
}
