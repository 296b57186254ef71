//! Pods that come and go in all rounds, and the deletions of those that the plugin ran on.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use podium_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    objects::NAMESPACE,
    plugins::SEEN,
    workloads::{label, pod},
};

/// The Pod on which the plugin records deletions.
const REGISTER: &str = "register";
const NOTED: &str = "guests.example/deleted-";
/// The Pods that exist at a time. The oldest ones have their label, so deletions go on while no replica acts.
const POOL: usize = 40;
/// The Pods that are created at once.
const BURST: usize = 8;
/// Between a creation with a deletion and the next.
const PACE: Duration = Duration::from_millis(250);
/// Sufficient on a busy machine, and for an API server that starts meanwhile.
const WITHIN: Duration = Duration::from_secs(120);

pub(super) struct Churn {
    client: Client,
    api: Api<Pod>,
    /// The number of Pods so far.
    created: usize,
    /// Name and uid, the oldest first.
    living: VecDeque<(String, String)>,
    /// The Pods of the round, with the time before their creation.
    pub(super) fresh: BTreeMap<String, Timestamp>,
    /// The uids of Pods that were deleted in the round after the plugin had run on them.
    deleted: BTreeSet<String>,
}

impl Churn {
    /// Creates the register. Returns its uid too.
    pub(super) async fn start(client: &Client) -> Result<(Self, String)> {
        let register = pod(client, NAMESPACE, REGISTER).await?.metadata.uid.context("a Pod without a uid")?;
        let (created, living, fresh, deleted) = <_>::default();
        let api = Api::namespaced(client.clone(), NAMESPACE);
        Ok((Self { client: client.clone(), api, created, living, fresh, deleted }, register))
    }

    /// Creates the Pods with which the first round begins.
    pub(super) async fn fill(&mut self) -> Result<()> {
        self.create(POOL).await
    }

    /// Creates some Pods at once, so that the plugin's writes to them are under way when it returns.
    pub(super) async fn burst(&mut self) -> Result<()> {
        self.create(BURST).await
    }

    /// Creates and deletes Pods until it is over. Requests are repeated while the API server does not answer.
    pub(super) async fn run(&mut self, is_over: &Cell<bool>) -> Result<()> {
        while !is_over.get() {
            self.create(1).await?;
            self.delete_oldest().await?;
            sleep(PACE).await;
        }
        Ok(())
    }

    /// Creates Pods, as soon as the API server answers.
    pub(super) async fn create(&mut self, number: usize) -> Result<()> {
        let names = (self.created..self.created + number).map(|number| format!("cart-{number}"));
        self.created += number;
        let client = &self.client;
        let created = stream::iter(names).map(async |name| {
            let mut at = Timestamp::now();
            let pod = until("a new Pod", WITHIN, async || {
                at = Timestamp::now();
                pod(client, NAMESPACE, &name).await
            });
            let uid = pod.await?.metadata.uid.context("a Pod without a uid")?;
            anyhow::Ok((name, uid, at))
        });
        let created: Vec<_> = created.buffered(BURST).try_collect().await?;
        for (name, uid, at) in created {
            self.fresh.insert(name.clone(), at);
            self.living.push_back((name, uid));
        }
        Ok(())
    }

    async fn delete_oldest(&mut self) -> Result<()> {
        let Some((name, uid)) = self.living.front().filter(|_| self.living.len() > POOL).cloned() else {
            return Ok(());
        };
        let oldest = until("the oldest Pod", WITHIN, async || Ok(self.api.get(&name).await?)).await?;
        if label(&oldest, SEEN) != Some(&uid) {
            return Ok(());
        }
        self.living.pop_front();
        self.deleted.insert(uid);
        until("a deletion", WITHIN, async || match self.api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answered => Ok(answered.map(drop)?),
        })
        .await
    }

    /// Waits until each Pod has the right label, and each deletion was delivered. Returns the number of deletions.
    pub(super) async fn settled(&self) -> Result<usize> {
        until("the right labels and all deletions", WITHIN, async || {
            let pods = self.api.list(&ListParams::default()).await?.items;
            let wrong = pods.iter().filter(|pod| label(pod, SEEN) != pod.metadata.uid.as_deref()).count();
            let living: BTreeSet<_> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
            let noted = self.noted().await?;
            let missing = self.deleted.difference(&noted).count();
            let all = self.deleted.len();
            ensure!(wrong == 0, "{wrong} of {} Pods have not the right label", pods.len());
            ensure!(missing == 0, "{missing} of {all} deletions were not delivered");
            ensure!(self.deleted.is_disjoint(&living), "Pods are being deleted");
            Ok(all)
        })
        .await
    }

    /// Checks that no deletion of a Pod that exists was delivered.
    pub(super) async fn check_living(&self) -> Result<()> {
        let pods = self.api.list(&ListParams::default()).await?.items;
        let noted = self.noted().await?;
        let wrong = pods.iter().filter_map(|pod| pod.metadata.uid.as_ref()).filter(|uid| noted.contains(*uid)).count();
        ensure!(wrong == 0, "{wrong} Pods exist and are reported as deleted");
        Ok(())
    }

    /// Forgets the Pods and deletions of the round, and removes what the plugin recorded.
    pub(super) async fn forget(&mut self) -> Result<()> {
        self.fresh.clear();
        self.deleted.clear();
        let noted = self.noted().await?.into_iter().map(|uid| (format!("{NOTED}{uid}"), Value::Null));
        let annotations: serde_json::Map<_, _> = noted.collect();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        self.api.patch(REGISTER, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The uids of the deletions that the plugin received.
    async fn noted(&self) -> Result<BTreeSet<String>> {
        let annotations = self.api.get(REGISTER).await?.metadata.annotations.unwrap_or_default();
        Ok(annotations.keys().filter_map(|key| key.strip_prefix(NOTED)).map(str::to_owned).collect())
    }
}
