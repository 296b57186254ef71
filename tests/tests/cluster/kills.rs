//! SIGKILLs of podium-host while Pods are deleted: every deletion is delivered to the plugin that ran on the Pod, and
//! none of a Pod that exists.
//!
//! Runs a bounded number of kills, with 50 deletions around each; `PODIUM_KILLS` sets it.

use std::{collections::BTreeSet, fs, io::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use podium_tests::{
    plugins::guest_yaml,
    process::{Host, HostOptions},
    wait::until,
};
use tokio::time::{Instant, timeout};

use crate::{
    exclusive,
    workloads::{host_account, label, namespace, pod},
};

const SHOP: &str = "kills";
const DEFAULT_KILLS: usize = 6;
/// The number of deletions around each kill.
const DELETIONS: usize = 50;
/// The number of Pods that are never deleted.
const STAYING: usize = 10;
const SEEN: &str = "guests.example/seen";
const NOTED: &str = "guests.example/deleted-";
/// Sufficient on a busy machine.
const WITHIN: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_around_sigkills_are_delivered_and_no_others() -> Result<()> {
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let kills = match std::env::var("PODIUM_KILLS") {
        Ok(text) => text.parse().context("PODIUM_KILLS is not a number")?,
        Err(_) => DEFAULT_KILLS,
    };
    let (plugins, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    namespace(&client, SHOP).await?;
    let register = pod(&client, SHOP, "register").await?.metadata.uid.context("a Pod without a uid")?;
    let more = format!("  config: {{ register: {register} }}\n  watch: {{ sections: [lifecycle] }}");
    fs::write(plugins.path().join("register.yaml"), guest_yaml("registrar", "register", &more)?)?;
    let flags = ["--state-dir", &state.path().display().to_string()].map(str::to_owned);
    let options = HostOptions {
        kubeconfig: host_account(&plane, &client).await?,
        plugins: vec![plugins.path().to_owned()],
        arguments: flags.into(),
    };
    let pods = Pods { api: Api::namespaced(client.clone(), SHOP), client };
    let staying: Vec<_> = (0..STAYING).map(|index| format!("staying-{index}")).collect();
    pods.create(&staying).await?;

    let mut deleted = BTreeSet::new();
    let (mut host, mut early) = (Host::spawn(&options).await?, 0);
    let began = Instant::now();
    for round in 0..kills {
        // The same names each time, so that a deletion could be mistaken for that of another incarnation.
        let names: Vec<_> = (0..DELETIONS).map(|index| format!("cart-{index}")).collect();
        deleted.extend(pods.create(&names).await?);
        pods.reconciled().await?;

        let (before, rest) = names.split_at(round * 7 % (DELETIONS - 20));
        let (meanwhile, rest) = rest.split_at(10);
        pods.delete(before).await?;
        let (killed, answered) = tokio::join!(host.kill(), pods.delete(meanwhile));
        killed.and(answered)?;
        let (down, starting) = rest.split_at(rest.len() / 2);
        pods.delete(down).await?;
        // New Pods of the same names, deleted after the next kill or at the end of the test.
        pods.create(&before[..before.len() / 2]).await?;
        // Every other time the next host is killed too, while it starts.
        if round % 2 == 1 {
            let moment = Duration::from_millis(100 + 150 * (round as u64 % 8));
            early += usize::from(timeout(moment, Host::spawn(&options)).await.is_err());
        }
        let (spawned, answered) = tokio::join!(Host::spawn(&options), pods.delete(starting));
        answered?;
        host = spawned?;
        let noted = pods.noted().await?;
        let wrong: Vec<_> = noted.difference(&deleted).collect();
        ensure!(wrong.is_empty(), "round {round}: reported as deleted, and never deleted: {wrong:?}");
        writeln!(std::io::stderr(), "kills: {} of {kills}, {} deletions noted", round + 1, noted.len())?;
    }
    until("the last deletions", WITHIN, async || {
        let noted = pods.noted().await?;
        let missing: Vec<_> = deleted.difference(&noted).collect();
        ensure!(missing.is_empty(), "{} of {} were not delivered: {missing:?}", missing.len(), deleted.len());
        Ok(())
    })
    .await?;
    let living = pods.living().await?;
    let noted = pods.noted().await?;
    ensure!(noted.is_disjoint(&living), "reported as deleted, and there: {:?}", noted.intersection(&living));
    ensure!(noted == deleted, "reported as deleted, and never deleted: {:?}", noted.difference(&deleted));
    ensure!(host.terminate().await?.success());
    let (kills, took) = (kills + early, began.elapsed());
    writeln!(std::io::stderr(), "kills: {kills} SIGKILLs, {} deletions, all delivered, {took:.0?}", deleted.len())?;
    Ok(())
}

struct Pods {
    client: kube::Client,
    api: Api<Pod>,
}

impl Pods {
    /// Creates Pods and returns their uids.
    async fn create(&self, names: &[String]) -> Result<BTreeSet<String>> {
        let created = stream::iter(names).map(|name| pod(&self.client, SHOP, name)).buffer_unordered(8);
        created.map(|pod| pod?.metadata.uid.context("a Pod without a uid")).try_collect().await
    }

    async fn delete(&self, names: &[String]) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let deleted = stream::iter(names).map(|name| self.api.delete(name, &now)).buffer_unordered(8);
        Ok(deleted.try_for_each(async |_| Ok(())).await?)
    }

    /// Returns when the plugin has run on every Pod.
    async fn reconciled(&self) -> Result<()> {
        until("a run on every Pod", WITHIN, async || {
            let pods = self.api.list(&ListParams::default()).await?.items;
            let new = pods.iter().filter(|pod| label(pod, SEEN) != pod.metadata.uid.as_deref()).count();
            ensure!(new == 0, "{new} of {} without", pods.len());
            Ok(())
        })
        .await
    }

    /// The uids of the deletions that the plugin received.
    async fn noted(&self) -> Result<BTreeSet<String>> {
        let register = self.api.get("register").await?;
        let annotations = register.metadata.annotations.unwrap_or_default();
        Ok(annotations.keys().filter_map(|key| key.strip_prefix(NOTED)).map(str::to_owned).collect())
    }

    async fn living(&self) -> Result<BTreeSet<String>> {
        let pods = self.api.list(&ListParams::default()).await?.items;
        Ok(pods.into_iter().filter_map(|pod| pod.metadata.uid).collect())
    }
}
