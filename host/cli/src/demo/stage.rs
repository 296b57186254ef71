//! The stage of both demos: an API server in this process with the Pods of four tenants, a host, and the terminal.

use std::{convert::Infallible, sync::Arc, time::Duration};

use anyhow::bail;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use podium_devcluster::Pace;
use podium_host::app::{self, App};
use podium_vocabulary::PluginSpec;
use serde_json::json;

use super::{
    latency::{self, Comparison},
    progress::Progress,
    screen::Screen,
    workloads::{Cluster, SPINNING_NAMESPACE},
};
use crate::{args, cluster::Local, compilation, ui};

/// The namespace whose Pods are measured.
pub(super) const MEASURED_NAMESPACE: &str = "bank-ledger";
/// How often the state is read while something has to become true.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

const NODES: usize = 6;
/// The most attempts to load a plugin whose compilation times out. Each attempt may take 10 s.
const LOAD_ATTEMPTS: u32 = 12;
/// The most measurements while the measured plugin seems to be delayed.
const MEASUREMENTS: usize = 3;
/// How often a Pod changes that wakes the plugins of the spinning namespace.
const WAKE_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct Stage {
    pub(super) local: Local,
    pub(super) cluster: Cluster,
    pub(super) pods: usize,
    pub(super) app: App,
    pub(super) screen: Screen,
}

impl Stage {
    pub(super) async fn start(arguments: &args::Demo, now_millis: u64, pace: Pace) -> anyhow::Result<Self> {
        let screen = Screen::new();
        screen.step("a Kubernetes API server in this process, and 200 Pods of four tenants");
        let local = Local::start(podium_devcluster::Options {
            seed: arguments.seed,
            nodes: NODES,
            start_millis: i64::try_from(now_millis)?,
            pace,
            ..podium_devcluster::Options::default()
        })
        .await?;
        let cluster = Cluster::connect(local.client().await?).await?;
        let pods = cluster.seed().await?;
        screen.note(&format!("{pods} Pods in 6 namespaces on {NODES} nodes"));
        let app = App::start(app::Options {
            watch_client: local.client().await?.into(),
            workers: ui::WORKERS,
            compilation: compilation::compilation()?,
            ..app::Options::new(local.client().await?, arguments.seed, now_millis)
        })
        .await?;
        Ok(Self { local, cluster, pods, app, screen })
    }

    /// Loads a plugin. If a busy machine exceeds the host's time limit of a compilation, it is retried.
    pub(super) async fn load(&self, spec: &PluginSpec) -> Result<(), Arc<app::LoadFailure>> {
        let mut attempts = 1..LOAD_ATTEMPTS;
        loop {
            match self.app.prepare(spec.clone()).await {
                Ok(prepared) => {
                    self.app.install(prepared).await;
                    return Ok(());
                }
                Err(failure) if failure.is_passing() && attempts.next().is_some() => {
                    self.screen.note(&format!("trying again: {failure}"));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Waits until at least one of the Pods matches a selector, and each that does has a label.
    pub(super) async fn until_labelled(&self, pods: &Api<Pod>, selector: &str, label: &str) -> anyhow::Result<()> {
        let mut progress = Progress::new();
        loop {
            let listed = pods.list(&ListParams::default().labels(selector)).await?;
            let left = listed.iter().filter(|pod| !pod.labels().contains_key(label)).count();
            let all = listed.items.len();
            if all > 0 && left == 0 {
                return Ok(());
            }
            if !progress.continues((left, all)) {
                bail!(
                    "{left} of {all} Pods {selector} do not have the label {label}, and their number no longer falls"
                );
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Measures again while the measured plugin seems to be delayed, because the machine may be busy.
    pub(super) async fn measure(
        &self,
        mut once: impl AsyncFnMut() -> anyhow::Result<Comparison>,
    ) -> anyhow::Result<Vec<Comparison>> {
        let mut measured = Vec::new();
        loop {
            measured.push(once().await?);
            if !latency::held_up(&measured) || measured.len() == MEASUREMENTS {
                return Ok(measured);
            }
            self.screen.note("the plugin beside it was slow; measuring again, because the machine may be busy");
        }
    }

    /// Changes Pods of the spinning namespace until `work` is done, so that its plugins always have a reason to run.
    pub(super) async fn waking<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            failed = self.wake() => failed.map(|never| match never {}),
        }
    }

    async fn wake(&self) -> anyhow::Result<Infallible> {
        let pods = self.cluster.pods(SPINNING_NAMESPACE);
        let names: Vec<_> = pods.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
        for (turn, name) in names.iter().cycle().enumerate() {
            let label = Patch::Merge(json!({ "metadata": { "labels": { "changed": turn.to_string() } } }));
            pods.patch(name, &PatchParams::default(), &label).await?;
            tokio::time::sleep(WAKE_INTERVAL).await;
        }
        bail!("no Pod found in {SPINNING_NAMESPACE}")
    }
}
