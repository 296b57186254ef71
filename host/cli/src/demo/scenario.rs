//! The steps of the demo. The checks decide whether they succeeded.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use podium_engine::ports::FailureKind;
use podium_host::app::App;
use podium_vocabulary::PluginSpec;
use serde_json::json;
use tokio::time::Instant;

use super::{
    checks::{Evidence, WORKLOAD},
    latency::{self, Comparison, Sample},
    progress::Progress,
    table::{Screen, Statistics},
    workloads::{self, Cluster},
};
use crate::cluster::Local;

/// How often the cluster is read while something has to become true.
const INTERVAL: Duration = Duration::from_millis(50);

/// Changes per measurement: enough that the 99th percentile ignores two.
const PROBES: usize = 200;
/// The most measurements while the plugin seems to be delayed.
const MEASUREMENTS: usize = 3;
/// The namespace whose Pods are measured.
const MEASURED_NAMESPACE: &str = "bank-ledger";
/// How often the Pods that wake the spinner change.
const WAKE_INTERVAL: Duration = Duration::from_millis(50);

/// The steps of the demo and everything that they use.
pub(super) struct Scenario<'a> {
    pub(super) local: &'a Local,
    pub(super) cluster: &'a Cluster,
    pub(super) app: &'a App,
    pub(super) statistics: &'a Statistics,
    pub(super) spinner: PluginSpec,
    pub(super) screen: &'a Screen,
}

impl Scenario<'_> {
    /// Runs all steps in order; returns the observations that the final state does not show.
    pub(super) async fn run(&self) -> anyhow::Result<Evidence> {
        self.screen.step("a rollout, a crash loop, an unpinned image, a finished Pod, a crowded workload");
        for incident in [&workloads::CRASHING, &workloads::UNPINNED, &workloads::CROWDED] {
            self.cluster.inject(incident).await?;
        }
        let finished =
            self.cluster.inject(&workloads::FINISHED).await?.pop().context("the Pod that finishes was not created")?;
        self.cluster.roll_out().await?;
        self.screen.note("12 Pods of shop-front/web made place for 12 new ones; four incidents are under way");

        let evidence = Evidence { finished: Some(finished), ..self.measure().await? };
        self.lose_the_watch().await?;
        self.expire_the_revision().await?;
        Ok(evidence)
    }

    /// Measures one plugin's latency without the spinner, beside it, and without it again, under the same changes, so
    /// that the load of the machine affects both.
    async fn measure(&self) -> anyhow::Result<Evidence> {
        let mut evidence = Evidence::default();
        self.screen.step("from a new Pod to a plugin's write, with and without a plugin that loops without end");
        loop {
            let mut alone = self.probe(PROBES / 2).await.context("without the plugin that spins")?;
            super::load(self.app, self.screen, self.spinner.clone()).await.context("the plugin that spins")?;
            let beside = self.probe(PROBES).await.context("beside the plugin that spins");
            let spinner = self.app.status().plugin(&self.spinner.id);
            evidence.cut += spinner.failures_by(FailureKind::Cpu) + spinner.failures_by(FailureKind::Deadline);
            // The last row stays on the screen.
            self.statistics.rows();
            self.app.unload(&self.spinner.id).await;
            let beside = beside?;
            alone.extend(&self.probe(PROBES / 2).await.context("without the plugin that spins")?);
            evidence.measured.push(Comparison { alone, beside });
            if !latency::held_up(&evidence.measured) || evidence.measured.len() == MEASUREMENTS {
                self.screen.note(&format!("the spinner was cut {} times", evidence.cut));
                return Ok(evidence);
            }
            self.screen.note("the plugin beside it was slow; measuring again, because the machine may be busy");
        }
    }

    async fn probe(&self, count: usize) -> anyhow::Result<Sample> {
        let pods = self.cluster.pods(MEASURED_NAMESPACE);
        let probing = latency::probe(&pods, WORKLOAD, count, |number| workloads::measured(MEASURED_NAMESPACE, number));
        // Dropped when the probes are done.
        tokio::select! {
            biased;
            sample = probing => sample,
            error = self.wake_spinner() => Err(error),
        }
    }

    /// Changes Pods of the spinner's namespace forever, so that it always has a reason to run.
    async fn wake_spinner(&self) -> anyhow::Error {
        let pods = self.cluster.pods(workloads::SPINNING_NAMESPACE);
        let changes = async {
            let names: Vec<_> = pods.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
            for (turn, name) in names.iter().cycle().enumerate() {
                let label = Patch::Merge(json!({ "metadata": { "labels": { "changed": turn.to_string() } } }));
                pods.patch(name, &PatchParams::default(), &label).await?;
                tokio::time::sleep(WAKE_INTERVAL).await;
            }
            bail!("no Pod found in {}", workloads::SPINNING_NAMESPACE)
        };
        let result: anyhow::Result<std::convert::Infallible> = changes.await;
        match result {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn lose_the_watch(&self) -> anyhow::Result<()> {
        self.screen.step("the watch connection is lost, and a Pod is made meanwhile");
        self.local.cluster().faults().disconnect_watches();
        self.cluster.create(&workloads::UNWATCHED).await?;
        self.until_answered(&workloads::UNWATCHED).await
    }

    async fn expire_the_revision(&self) -> anyhow::Result<()> {
        self.screen.step("the watch is lost again, and its revision has expired: 410");
        let faults = self.local.cluster().faults();
        faults.next_watch_gone();
        faults.disconnect_watches();
        self.cluster.create(&workloads::EXPIRED).await?;
        faults.compact();
        self.until_answered(&workloads::EXPIRED).await
    }

    async fn until_answered(&self, workload: &workloads::Workload) -> anyhow::Result<()> {
        let began = Instant::now();
        let app = format!("app={}", workload.name);
        until(self.cluster, workload.name, &app).await?;
        self.screen.note(&format!("Pod {} was answered after {:.1?}", workload.name, began.elapsed()));
        Ok(())
    }
}

/// Waits until every Pod has its workload's name as a label.
pub(super) async fn until_labelled(cluster: &Cluster) -> anyhow::Result<()> {
    until(cluster, "every Pod is labelled", "").await
}

/// Waits until at least one Pod has these labels, and each of them has its workload's name as a label.
async fn until(cluster: &Cluster, what: &str, labels: &str) -> anyhow::Result<()> {
    let mut progress = Progress::new();
    let pods: Api<Pod> = Api::all(cluster.client());
    loop {
        let listed = pods.list(&ListParams::default().labels(labels)).await?;
        let left = listed.iter().filter(|pod| !pod.labels().contains_key(WORKLOAD)).count();
        if !listed.items.is_empty() && left == 0 {
            return Ok(());
        }
        if !progress.continues((left, listed.items.len())) {
            bail!(
                "{what}: {left} of {} Pods do not have the label {WORKLOAD}, and their number no longer falls",
                listed.items.len()
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
