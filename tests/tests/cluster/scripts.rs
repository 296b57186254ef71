//! Scripts as objects of the API server: `kubectl apply` of one object is the deployment.

use std::{fs, sync::Arc};

use anyhow::{Result, ensure};
use podium_tests::{guests, process::Host, wait::until};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::Kubectl,
    objects::{NAMESPACE, SOON, apply, condition, config_map, digest, labelled, spec, start},
    workloads::pod,
};

/// The object's spec with a script of the test guest's language.
fn script(place: &Value) -> Value {
    let mut script = place.clone();
    script["language"] = "javascript".into();
    let mut spec = spec("");
    spec["source"] = json!({ "script": script });
    spec
}

fn inline(source: &str) -> Value {
    script(&json!({ "inline": source }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_of_an_object_is_changed_and_outlives_a_restart() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let (mut options, _) = start(&plane, &client).await?;
    let state = tempfile::tempdir()?;
    let runners = tempfile::tempdir()?;
    let runner = guests::component("runner")?;
    fs::write(runners.path().join("javascript-1.wasm"), &runner)?;
    for (flag, directory) in [("--state-dir", &state), ("--runners", &runners)] {
        options.arguments.extend([flag.to_owned(), directory.path().to_string_lossy().into_owned()]);
    }
    Kubectl::new(&plane).install(&["crds.yaml"])?;
    let first = "writes.set-label";
    until("the kind", SOON, async || apply(&client, &inline(first)).await).await?;
    pod(&client, NAMESPACE, "a").await?;
    let host = Host::spawn(&options).await?;
    let ready = condition(&client, "Ready", "True", "Running").await?;
    labelled(&client, "a").await?;
    let active = &ready["status"]["active"];
    ensure!(active["digest"] == format!("sha256:{}", digest(first.as_bytes())), "{active}");
    let shown = json!({
        "language": "javascript", "name": "javascript-1", "digest": format!("sha256:{}", digest(&runner)),
    });
    ensure!(active["runner"] == shown, "{active}");

    // The API server refuses what the schema knows.
    let map = json!({ "name": "labeller", "key": "plugin.wasm", "sha256": "0".repeat(64) });
    let mut ruby = inline(first);
    ruby["source"]["script"]["language"] = "ruby".into();
    let mut reused = inline(first);
    reused["limits"]["reuse"] = 2.into();
    for (refused, message) in [
        (ruby, "supported values: \"javascript\", \"python\""),
        (reused, "reuseInterpreter"),
        (script(&json!({})), "set inline or configMap"),
        (script(&json!({ "inline": first, "configMap": map })), "set inline or configMap"),
        (inline(&"x".repeat((64 << 10) + 1)), "Too long"),
    ] {
        let error = apply(&client, &refused).await.map(drop).unwrap_err().to_string();
        ensure!(error.contains(message), "{message}: {error}");
    }

    let mistaken = async || {
        let kept = condition(&client, "Ready", "False", "InvalidScript").await?;
        ensure!(kept.to_string().contains("line 3, column 14: SyntaxError: unexpected token"), "{kept}");
        ensure!(kept["status"]["active"]["generation"] == 1, "{}", kept["status"]);
        anyhow::Ok(())
    };
    apply(&client, &inline("mistake")).await?;
    mistaken().await?;
    pod(&client, NAMESPACE, "b").await?;
    labelled(&client, "b").await?;

    // A restart runs what ran before.
    ensure!(host.terminate().await?.success(), "it failed");
    let host = Host::spawn(&options).await?;
    pod(&client, NAMESPACE, "c").await?;
    labelled(&client, "c").await?;
    mistaken().await?;

    let source: Arc<[u8]> = format!("# of a ConfigMap\n{first}").into_bytes().into();
    let sha256 = config_map(&client, source).await?;
    let map = json!({ "name": "labeller", "key": "plugin.wasm", "sha256": sha256 });
    apply(&client, &script(&json!({ "configMap": map }))).await?;
    let ready = condition(&client, "Ready", "True", "Running").await?;
    ensure!(ready["status"]["active"]["digest"] == format!("sha256:{sha256}"), "{}", ready["status"]);
    pod(&client, NAMESPACE, "d").await?;
    labelled(&client, "d").await?;
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}
