//! A host whose kubeconfig impersonates an administrator, on a real API server: a plugin's write has the rights of the
//! plugin's ServiceAccount and no others.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use podium_tests::{
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    plugins::{SEEN, write_labeller},
    workloads::{account, label, namespace, pod},
};

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_has_only_its_accounts_rights() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let plugins = directory.path().join("plugins");
    fs::create_dir(&plugins)?;
    namespace(&client, "lifted").await?;
    account(&client, "lifted", "plugin").await?;
    write_labeller(&plugins, "lifted", Some("plugin"))?;
    let mut config: Value = serde_json::from_slice(&fs::read(plane.kubeconfig_path())?)?;
    config["users"][0]["user"]["as"] = json!("admin@example.com");
    config["users"][0]["user"]["as-groups"] = json!(["system:masters"]);
    let kubeconfig = directory.path().join("kubeconfig");
    fs::write(&kubeconfig, config.to_string())?;
    pod(&client, "lifted", "a").await?;

    let audit = plane.audit();
    let before = audit.now()?;
    let host = Host::spawn(&HostOptions { kubeconfig, plugins: vec![plugins], arguments: Vec::new() }).await?;
    let refused = until("the refusal in the audit log", SOON, async || {
        let mut writes = audit.writes_of("admin", before)?;
        writes.retain(|write| write.verb == "patch" && write.resource == "pods");
        ensure!(!writes.is_empty(), "no write");
        Ok(writes)
    })
    .await?;
    let account = Some("system:serviceaccount:lifted:plugin".to_owned());
    ensure!(refused.iter().all(|write| write.code == 403 && write.impersonated == account), "{refused:?}");
    let agents = refused.iter().map(|write| &*write.user_agent);
    let named = |agent: &str| agent.starts_with("podium-host/") && agent.ends_with(" plugin/lifted/labeller");
    ensure!(agents.clone().all(named), "{:?}", agents.collect::<Vec<_>>());
    until("the refusal in the metrics", SOON, async || {
        let forbidden = host.metric("podium_writes_total", &[r#"result="forbidden""#]).await?;
        ensure!(forbidden >= 1.0, "none");
        Ok(())
    })
    .await?;
    let api: Api<Pod> = Api::namespaced(client.clone(), "lifted");
    ensure!(label(&api.get("a").await?, SEEN).is_none(), "the plugin wrote what its account may not");
    Ok(())
}
