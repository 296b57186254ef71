//! The steps of the demo. The checks decide whether they succeeded.

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use podium_engine::ports::FailureKind;
use podium_vocabulary::PluginSpec;
use tokio::time::Instant;

use super::{
    checks::{Evidence, WORKLOAD},
    latency::{self, Comparison, Sample},
    stage::{MEASURED_NAMESPACE, Stage},
    table::Statistics,
    workloads,
};

/// Changes per measurement: enough that the 99th percentile ignores two.
const PROBES: usize = 200;

/// The steps of the demo and everything that they use.
pub(super) struct Scenario<'a> {
    pub(super) stage: &'a Stage,
    pub(super) statistics: &'a Statistics,
    pub(super) spinner: PluginSpec,
}

impl Scenario<'_> {
    /// Runs all steps in order; returns the observations that the final state does not show.
    pub(super) async fn run(&self) -> anyhow::Result<Evidence> {
        self.stage.screen.step("a rollout, a crash loop, an unpinned image, a finished Pod, a crowded workload");
        for incident in [&workloads::CRASHING, &workloads::UNPINNED, &workloads::CROWDED] {
            self.stage.cluster.inject(incident).await?;
        }
        let finished = self
            .stage
            .cluster
            .inject(&workloads::FINISHED)
            .await?
            .pop()
            .context("the Pod that finishes was not created")?;
        self.stage.cluster.roll_out().await?;
        self.stage.screen.note("12 Pods of shop-front/web made place for 12 new ones; four incidents are under way");

        let evidence = Evidence { finished: Some(finished), ..self.measure().await? };
        self.lose_the_watch().await?;
        self.expire_the_revision().await?;
        Ok(evidence)
    }

    /// Measures one plugin's latency without the spinner, beside it, and without it again, under the same changes, so
    /// that the load of the machine affects both.
    async fn measure(&self) -> anyhow::Result<Evidence> {
        let mut cut = 0;
        self.stage.screen.step("from a new Pod to a plugin's write, with and without a plugin that loops without end");
        let once = async || {
            let mut alone = self.probe(PROBES / 2).await.context("without the plugin that spins")?;
            self.stage.load(&self.spinner).await.context("the plugin that spins")?;
            let beside = self.probe(PROBES).await.context("beside the plugin that spins");
            let spinner = self.stage.app.status().plugin(&self.spinner.id);
            cut += spinner.failures_by(FailureKind::Cpu) + spinner.failures_by(FailureKind::Deadline);
            // The last row stays on the screen.
            self.statistics.rows();
            self.stage.app.unload(&self.spinner.id).await;
            let beside = beside?;
            alone.extend(&self.probe(PROBES / 2).await.context("without the plugin that spins")?);
            Ok(Comparison { alone, beside })
        };
        let measured = self.stage.measure(once).await?;
        self.stage.screen.note(&format!("the spinner was cut {cut} times"));
        Ok(Evidence { cut, measured, ..Evidence::default() })
    }

    async fn probe(&self, count: usize) -> anyhow::Result<Sample> {
        let pods = self.stage.cluster.pods(MEASURED_NAMESPACE);
        let pod = |number| workloads::measured(MEASURED_NAMESPACE, number);
        self.stage.waking(latency::probe(&pods, WORKLOAD, count, pod)).await
    }

    async fn lose_the_watch(&self) -> anyhow::Result<()> {
        self.stage.screen.step("the watch connection is lost, and a Pod is made meanwhile");
        self.stage.local.cluster().faults().disconnect_watches();
        self.stage.cluster.create(&workloads::UNWATCHED).await?;
        self.until_answered(&workloads::UNWATCHED).await
    }

    async fn expire_the_revision(&self) -> anyhow::Result<()> {
        self.stage.screen.step("the watch is lost again, and its revision has expired: 410");
        let faults = self.stage.local.cluster().faults();
        faults.next_watch_gone();
        faults.disconnect_watches();
        self.stage.cluster.create(&workloads::EXPIRED).await?;
        faults.compact();
        self.until_answered(&workloads::EXPIRED).await
    }

    async fn until_answered(&self, workload: &workloads::Workload) -> anyhow::Result<()> {
        let began = Instant::now();
        let pods: Api<Pod> = Api::all(self.stage.cluster.client());
        self.stage.until_labelled(&pods, &format!("app={}", workload.name), WORKLOAD).await?;
        self.stage.screen.note(&format!("Pod {} was answered after {:.1?}", workload.name, began.elapsed()));
        Ok(())
    }
}
