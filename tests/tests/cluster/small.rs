//! One guarantee on one Pod each: labels of two runs are kept, a missing right is reported and backs off, and a write
//! never reaches another incarnation.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use podium_engine::ports::{Deliver, Sender, Staged};
use podium_pods::pod::{CachedPod, PodView, Slice};
use podium_tests::{
    process::{Host, HostOptions},
    wait::until,
};
use podium_vocabulary::{
    Action, Cursor, Grants, KeyPattern, PodKey, PodQuery, Revision, Scope, Write, WriteGrants, WriteResult,
    authz::{Authorized, authorize},
};
use podium_writeback::Writeback;
use tokio::time::sleep;

use crate::{
    cluster,
    plugins::{SEEN, write_labeller, write_own},
    workloads::{HOST, Shape, account, all, deployment, host_account, label, namespace, pod, pods},
};

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_that_two_runs_set_both_stay_also_across_a_restart() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(20).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let kubeconfig = host_account(&plane, &client).await?;
    namespace(&client, "two-labels").await?;
    write_labeller(directory.path(), "two-labels", None)?;
    write_own(directory.path(), "workload-label", &[])?;
    let options = HostOptions { kubeconfig, plugins: vec![directory.path().to_owned()], arguments: Vec::new() };
    deployment(&client, "two-labels", "web", 1, Shape::default()).await?;
    let both = async || {
        let found = pods(&client, "two-labels", "app=web").await?;
        let labels = |pod: &Pod| label(pod, SEEN).is_some() && label(pod, "podium.dev/workload") == Some("web");
        all(&found, 1, "it has both labels", labels)
    };
    let host = Host::spawn(&options).await?;
    until("both labels", SOON, both).await?;
    host.terminate().await?;
    both().await?;
    let host = Host::spawn(&options).await?;
    until("a run of each", SOON, async || {
        for controller in [r#"controller="two-labels/labeller""#, r#"controller="workload-label""#] {
            let runs = host.metric("controller_runtime_reconcile_total", &[controller]).await?;
            ensure!(runs >= 1.0, "none of {controller}");
        }
        Ok(())
    })
    .await?;
    both().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_patch_is_forbidden_and_backs_off() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(20).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let kubeconfig = host_account(&plane, &client).await?;
    namespace(&client, "walled").await?;
    account(&client, "walled", "plugin").await?;
    write_labeller(directory.path(), "walled", Some("plugin"))?;
    let options = HostOptions { kubeconfig, plugins: vec![directory.path().to_owned()], arguments: Vec::new() };
    pod(&client, "walled", "a").await?;
    let audit = plane.audit();
    let before = audit.now()?;
    let host = Host::spawn(&options).await?;
    until("the refusal in the metrics", SOON, async || {
        let forbidden = host.metric("podium_writes_total", &[r#"result="forbidden""#]).await?;
        ensure!(forbidden >= 1.0, "none");
        Ok(())
    })
    .await?;
    // A real wait, because the back-off is in the host's own time, in another process.
    sleep(Duration::from_secs(10)).await;
    let refused = audit.writes_of(HOST, before)?;
    let user = Some("system:serviceaccount:walled:plugin".to_owned());
    ensure!(refused.iter().all(|write| write.code == 403 && write.impersonated == user), "{refused:?}");
    // From 5 ms, doubled each time: about 11 in the first ten seconds.
    ensure!((2..=14).contains(&refused.len()), "{} attempts in 10 s", refused.len());
    ensure!(host.log().contains("forbidden"), "the log does not report it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_for_a_recreated_pod_does_not_reach_the_new_one() -> Result<()> {
    // Without nodes only this test changes its Pods: a simulated kubelet deletes by name, whatever the uid.
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, "recreated").await?;
    let old = key_of(&pod(&client, "recreated", "a").await?)?;
    let api: Api<Pod> = Api::namespaced(client.clone(), "recreated");
    api.delete("a", &DeleteParams::default().grace_period(0)).await?;
    let new = until("the new incarnation", SOON, async || {
        let new = pod(&client, "recreated", "a").await?;
        ensure!(key_of(&new)? != old, "still the old one");
        Ok(new)
    })
    .await?;

    // Writes of a run on the old incarnation, sent from a cache that has not seen the new one.
    let audit = plane.audit();
    let before = audit.now()?;
    let writeback = Writeback::new(&podium_api::Api::new(client.clone(), SOON), podium_vocabulary::Prune::NOTHING);
    let sender = Sender { manager: "podium/labeller".to_owned(), impersonate: None };
    let staged = Staged { writes: vec![authorised_label(&old)?], ..Staged::default() };
    let sent = writeback.deliver(&sender, &old, &Stale(cached(&old)?), staged, 0).await;
    let became: Vec<_> = sent.reports.into_iter().map(|report| report.result).collect();
    ensure!(became == [WriteResult::Gone], "{became:?}");

    // The API server refused it; the host did send it.
    until("the refusal in the audit log", SOON, async || {
        let mut refused = audit.writes_of("admin", before)?;
        refused.retain(|write| write.verb == "patch" && write.resource == "pods" && write.code == 422);
        ensure!(refused.len() == 1, "{refused:?}");
        Ok(())
    })
    .await?;
    let now = api.get("a").await?;
    ensure!(key_of(&now)? == key_of(&new)?, "recreated again");
    ensure!(label(&now, SEEN).is_none(), "the label of the old incarnation is on the new one");
    Ok(())
}

fn key_of(pod: &Pod) -> Result<PodKey> {
    let [namespace, name, uid] = [&pod.metadata.namespace, &pod.metadata.name, &pod.metadata.uid]
        .map(|text| text.as_deref().context("a Pod without namespace, name or uid"));
    Ok(PodKey::new(namespace?, name?, uid?))
}

fn authorised_label(target: &PodKey) -> Result<Authorized<Write>> {
    let write = WriteGrants { labels: vec![KeyPattern(SEEN.to_owned())], ..WriteGrants::default() };
    let grants = Grants { write, ..Grants::default() };
    let action = Action::SetLabel { target: target.clone(), key: SEEN.to_owned(), value: "yes".to_owned() };
    authorize(&Scope::Cluster, &grants, Write { id: 0, action })
        .map_err(|refused| anyhow!("the label was refused: {refused:?}"))
}

/// Returns the Pod as it was at its creation, without labels.
fn cached(key: &PodKey) -> Result<Arc<CachedPod>> {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = key.namespace.to_string();
    pod.header.name = key.name.to_string();
    pod.header.uid = key.uid.to_string();
    pod.header.resource_version = "1".to_owned();
    Ok(Arc::new(CachedPod::new(&pod)?))
}

/// An outdated view of one Pod.
struct Stale(Arc<CachedPod>);

impl PodView for Stale {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        (&*self.0.key.namespace == namespace && &*self.0.key.name == name).then(|| Arc::clone(&self.0))
    }

    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>> {
        (&*self.0.key.uid == uid).then(|| Arc::clone(&self.0))
    }

    fn search(&self, _: &PodQuery, _: usize, _: u64, _: Option<&Cursor>) -> Slice {
        Slice::default()
    }
    fn known_count(&self, _: &PodQuery) -> Option<u64> {
        Some(0)
    }

    fn revision(&self) -> Revision {
        self.0.revision
    }
}
