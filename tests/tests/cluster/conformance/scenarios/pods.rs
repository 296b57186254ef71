//! The requests by which the host writes to Pods, and the API server's responses.

use anyhow::Result;
use serde_json::{Value, json};

use super::pod;
use crate::conformance::exchange::{Call, Exchange, MERGE, STRATEGIC, revision, uid};

const OTHER_UID: &str = "00000000-0000-4000-8000-000000000001";

async fn make(x: &mut Exchange) -> Result<(Value, String)> {
    let made = x.step("create", Call::post(x.path("pods"), pod("a", None, json!({ "team": "red" })))).await?;
    Ok((made, format!("{}?fieldManager=podium%2Fshop.x", x.path("pods/a"))))
}

pub(crate) async fn metadata(x: &mut Exchange) -> Result<()> {
    let (made, path) = make(x).await?;
    let uid = uid(&made);
    for (what, patch) in [
        ("set a label", json!({ "metadata": { "uid": uid, "labels": { "k": "v" } } })),
        ("set it to the same", json!({ "metadata": { "uid": uid, "labels": { "k": "v" } } })),
        ("set an annotation", json!({ "metadata": { "uid": uid, "annotations": { "n": "w" } } })),
        (
            "several at once",
            json!({ "metadata": { "uid": uid, "labels": { "l": "1", "k": null }, "annotations": { "m": "2" } } }),
        ),
        ("remove a label", json!({ "metadata": { "uid": uid, "labels": { "l": null } } })),
        (
            "remove an absent value",
            json!({ "metadata": { "uid": uid, "labels": { "l": null }, "annotations": { "x": null } } }),
        ),
        ("a bad label value", json!({ "metadata": { "uid": uid, "labels": { "k": "-bad-" } } })),
        ("a bad label key", json!({ "metadata": { "uid": uid, "labels": { "a/b/c": "v" } } })),
        ("a bad annotation key", json!({ "metadata": { "uid": uid, "annotations": { "white space": "v" } } })),
        ("a label that is no text", json!({ "metadata": { "uid": uid, "labels": { "k": 1 } } })),
    ] {
        x.step(what, Call::patch(STRATEGIC, &*path, patch)).await?;
    }
    x.step("another's manager", {
        let patch = json!({ "metadata": { "uid": uid, "labels": { "theirs": "1" } } });
        Call::patch(STRATEGIC, format!("{}?fieldManager=other", x.path("pods/a")), patch)
    })
    .await?;
    x.step("the manager by the user agent", {
        Call::patch(MERGE, x.path("pods/a"), json!({ "metadata": { "labels": { "agent": "1" } } }))
    })
    .await?;
    let patch = json!({ "metadata": { "labels": { "dry": "1" } } });
    x.step("a dry run", Call::patch(STRATEGIC, format!("{path}&dryRun=All"), patch)).await?;
    x.step("it all, read back", Call::get(x.path("pods/a"))).await.map(drop)
}

pub(crate) async fn finalizers(x: &mut Exchange) -> Result<()> {
    let (made, path) = make(x).await?;
    let uid = uid(&made);
    for (what, patch) in [
        ("add one", json!({ "metadata": { "uid": uid, "finalizers": ["shop.example/one"] } })),
        ("add it again", json!({ "metadata": { "uid": uid, "finalizers": ["shop.example/one"] } })),
        ("add another", json!({ "metadata": { "uid": uid, "finalizers": ["shop.example/two"] } })),
        (
            "remove one",
            json!({ "metadata": { "uid": uid, "$deleteFromPrimitiveList/finalizers": ["shop.example/one"] } }),
        ),
        (
            "remove an absent value",
            json!({ "metadata": { "uid": uid, "$deleteFromPrimitiveList/finalizers": ["shop.example/one"] } }),
        ),
        (
            "add and remove in one patch",
            json!({ "metadata": {
                "uid": uid,
                "finalizers": ["shop.example/three"],
                "$deleteFromPrimitiveList/finalizers": ["shop.example/two"],
            } }),
        ),
        ("a bad name", json!({ "metadata": { "uid": uid, "finalizers": ["no domain"] } })),
        ("a name without a domain", json!({ "metadata": { "uid": uid, "finalizers": ["unqualified"] } })),
    ] {
        x.step(what, Call::patch(STRATEGIC, &*path, patch)).await?;
    }
    x.step("delete", Call::delete(x.path("pods/a"), json!({ "preconditions": { "uid": uid } }))).await?;
    let patch = json!({ "metadata": { "uid": uid, "finalizers": ["shop.example/late"] } });
    x.step("add one while terminating", Call::patch(STRATEGIC, &*path, patch)).await?;
    let patch = json!({ "metadata": { "uid": uid, "labels": { "still": "there" } } });
    x.step("label it while terminating", Call::patch(STRATEGIC, &*path, patch)).await?;
    let removed = ["shop.example/three", "unqualified"];
    let patch = json!({ "metadata": { "uid": uid, "$deleteFromPrimitiveList/finalizers": removed } });
    x.step("remove the rest", Call::patch(STRATEGIC, &*path, patch)).await?;
    x.step("it is gone", Call::get(x.path("pods/a"))).await.map(drop)
}

pub(crate) async fn status(x: &mut Exchange) -> Result<()> {
    let (made, path) = make(x).await?;
    let uid = uid(&made);
    let sub = format!("{}?fieldManager=podium%2Fshop.x", x.path("pods/a/status"));
    let condition = |status: &str, reason: &str| {
        json!({
            "type": "shop.example/Checked",
            "status": status,
            "reason": reason,
            "message": "said the plugin",
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        })
    };
    let with = |condition: Value| json!({ "metadata": { "uid": uid }, "status": { "conditions": [condition] } });
    x.step("set a condition", Call::patch(STRATEGIC, &*sub, with(condition("True", "Fine")))).await?;
    x.step("set it to the same", Call::patch(STRATEGIC, &*sub, with(condition("True", "Fine")))).await?;
    x.step("change it", Call::patch(STRATEGIC, &*sub, with(condition("False", "Bad")))).await?;
    let bare = json!({ "type": "shop.example/Bare" });
    x.step("one without status or time", Call::patch(STRATEGIC, &*sub, with(bare))).await?;
    let removed = |kind: &str| json!({ "type": kind, "$patch": "delete" });
    x.step("remove it", Call::patch(STRATEGIC, &*sub, with(removed("shop.example/Bare")))).await?;
    x.step("remove an absent value", Call::patch(STRATEGIC, &*sub, with(removed("shop.example/Bare")))).await?;
    let through_main = Call::patch(STRATEGIC, &*path, with(condition("True", "ThroughTheMainResource")));
    x.step("through the main resource: ignored", through_main).await?;
    let both = json!({ "metadata": { "uid": uid, "labels": { "by": "status" } }, "status": { "phase": "Running" } });
    x.step("a label through status", Call::patch(STRATEGIC, &*sub, both)).await?;
    let spec = json!({ "metadata": { "uid": uid }, "spec": { "priority": 7 } });
    x.step("the spec through status: ignored", Call::patch(STRATEGIC, &*sub, spec)).await?;
    let wrong = json!({ "metadata": { "uid": OTHER_UID }, "status": { "conditions": [condition("True", "Fine")] } });
    x.step("with another's uid", Call::patch(STRATEGIC, &*sub, wrong)).await?;
    x.step("get the status", Call::get(x.path("pods/a/status"))).await?;
    x.step("of an absent Pod", Call::patch(STRATEGIC, x.path("pods/none/status"), json!({}))).await.map(drop)
}

pub(crate) async fn preconditions(x: &mut Exchange) -> Result<()> {
    let (made, path) = make(x).await?;
    let (uid, old) = (uid(&made), revision(&made));
    let label = |uid: &str, revision: Option<&str>, value: &str| {
        let labels = json!({ "k": value });
        json!({ "metadata": { "uid": uid, "resourceVersion": revision, "labels": labels } })
    };
    x.step("another uid", Call::patch(STRATEGIC, &*path, label(OTHER_UID, None, "1"))).await?;
    x.step("the right revision", Call::patch(STRATEGIC, &*path, label(&uid, Some(&old), "2"))).await?;
    x.step("an old revision", Call::patch(STRATEGIC, &*path, label(&uid, Some(&old), "3"))).await?;
    x.step("another uid and an old revision", Call::patch(STRATEGIC, &*path, label(OTHER_UID, Some(&old), "4")))
        .await?;
    x.step("a revision that is none", Call::patch(STRATEGIC, &*path, label(&uid, Some("abc"), "5"))).await?;
    x.step("not there: a patch never creates", Call::patch(STRATEGIC, x.path("pods/none"), label(&uid, None, "6")))
        .await?;
    let precondition = |uid: &str, revision: Option<&str>| {
        let preconditions = json!({ "uid": uid, "resourceVersion": revision });
        json!({ "preconditions": preconditions, "gracePeriodSeconds": 0 })
    };
    x.step("delete another uid", Call::delete(x.path("pods/a"), precondition(OTHER_UID, None))).await?;
    x.step("delete an old revision", Call::delete(x.path("pods/a"), precondition(&uid, Some(&old)))).await?;
    x.step("nothing but one label changed", Call::get(x.path("pods/a"))).await?;
    x.step("delete the right one", Call::delete(x.path("pods/a"), precondition(&uid, None))).await?;

    let again = x.step("the next incarnation", Call::post(x.path("pods"), pod("a", None, json!({})))).await?;
    x.note("has another uid", uid != crate::conformance::exchange::uid(&again));
    x.step("a write to the last one", Call::patch(STRATEGIC, &*path, label(&uid, None, "7"))).await?;
    x.step("its deletion", Call::delete(x.path("pods/a"), precondition(&uid, None))).await.map(drop)
}

pub(crate) async fn logs(x: &mut Exchange) -> Result<()> {
    let mut body = pod("a", None, json!({}));
    x.step("create", Call::post(x.path("pods"), body.clone())).await?;
    x.step("of a Pod without a node", Call::get(x.path("pods/a/log"))).await?;
    x.step("of a container that is none", Call::get(x.path("pods/a/log?container=x")).with_message()).await?;
    body["metadata"]["name"] = json!("b");
    body["spec"]["initContainers"] = json!([{ "name": "init", "image": "registry.example/app:1" }]);
    x.step("create another", Call::post(x.path("pods"), body.clone())).await?;
    x.step("of the one that is no init container", Call::get(x.path("pods/b/log"))).await?;
    body["metadata"]["name"] = json!("d");
    let two = json!({ "name": "two", "image": "registry.example/app:1" });
    body["spec"]["containers"] = json!([body["spec"]["containers"][0], two]);
    x.step("create a third", Call::post(x.path("pods"), body)).await?;
    x.step("of one of several", Call::get(x.path("pods/d/log")).with_message()).await?;
    x.step("of a Pod that is none", Call::get(x.path("pods/c/log"))).await.map(drop)
}

pub(crate) async fn token(x: &mut Exchange) -> Result<()> {
    let mut body = pod("a", None, json!({}));
    let create = |body: &Value| Call::post(x.path("pods?dryRun=All"), body.clone());
    let mut answers = vec![("the Pod opts out", x.look(create(&body)).await?)];
    say_nothing(&mut body);
    answers.push(("the Pod says nothing", x.look(create(&body)).await?));
    body["spec"]["initContainers"] = json!([{ "name": "init", "image": "registry.example/app:1" }]);
    let directory = "/var/run/secrets/kubernetes.io/serviceaccount";
    body["spec"]["volumes"] = json!([{ "name": "own", "emptyDir": {} }]);
    body["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "own", "mountPath": directory }]);
    answers.push(("a container has something there", x.look(create(&body)).await?));
    let account = json!({ "automountServiceAccountToken": false });
    x.look(Call::patch(MERGE, x.path("serviceaccounts/default"), account)).await?;
    // Admission reads accounts from its own cache, which is updated slightly later.
    let opted_out = |answer: &Value| answer["spec"]["volumes"].as_array().is_some_and(|volumes| volumes.len() == 1);
    answers.push(("the account opts out", x.look_until(create(&body), opted_out).await?));
    body["spec"]["automountServiceAccountToken"] = json!(true);
    answers.push(("the Pod overrules the account", x.look(create(&body)).await?));
    for (what, answer) in answers {
        let shown = json!([answer["spec"]["volumes"], answer["spec"]["initContainers"], answer["spec"]["containers"]]);
        let name = answer["spec"]["volumes"].as_array().into_iter().flatten().filter_map(|v| v["name"].as_str());
        let name = name.clone().find(|name| name.starts_with("kube-api-access-")).unwrap_or("none").to_owned();
        x.note(what, format!("{shown:#}").replace(&name, "<volume>"));
    }
    Ok(())
}

/// Removes everything about the token.
fn say_nothing(body: &mut Value) {
    if let Some(spec) = body["spec"].as_object_mut() {
        spec.remove("automountServiceAccountToken");
    }
}

pub(crate) async fn validation(x: &mut Exchange) -> Result<()> {
    let all = x.path("pods");
    let mut bare = pod("bare", None, json!({}));
    bare["spec"]["containers"] = json!([]);
    x.step("no container", Call::post(&*all, bare)).await?;
    let mut twice = pod("twice", None, json!({}));
    twice["spec"]["containers"] = json!([{ "name": "a", "image": "a" }, { "name": "a", "image": "b" }]);
    x.step("two containers of one name", Call::post(&*all, twice)).await?;
    let mut nameless = pod("nameless", None, json!({}));
    nameless["spec"]["containers"] = json!([{ "image": "a" }]);
    x.step("a container without a name", Call::post(&*all, nameless)).await?;
    let mut kind = pod("kind", None, json!({}));
    kind["kind"] = "Service".into();
    x.step("another kind in the body", Call::post(&*all, kind)).await?;
    let mut rich = pod("rich", None, json!({}));
    rich["spec"]["containers"] = json!([{
        "name": "main",
        "image": "registry.example/app",
        "env": [{ "name": "A", "value": "b" }],
        "ports": [{ "containerPort": 80 }],
        "resources": { "limits": { "cpu": "1", "memory": "64Mi" } },
    }]);
    x.step("defaults are filled in", Call::post(&*all, rich)).await?;
    let image = json!({ "spec": { "containers": [{ "name": "main", "image": "registry.example/app:2" }] } });
    x.step("an image may change", Call::patch(STRATEGIC, x.path("pods/rich"), image)).await?;
    let account = json!({ "spec": { "serviceAccountName": "other" } });
    // The message contains the whole difference of both specs, as Go prints it.
    let account = Call::patch(STRATEGIC, x.path("pods/rich"), account).hiding("message");
    x.step("most of a spec may not", account).await.map(drop)
}
