//! From a change to a plugin's answer, measured from outside: a label that a plugin keeps is taken away, and a watch of
//! its own waits until it is back. One Pod after the other, so that no probe waits for another.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::time::Instant;

/// A plugin that has not answered by then is not slow but silent.
const DEADLINE: Duration = Duration::from_secs(10);

/// What many probes took.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample(Vec<Duration>);

impl Sample {
    pub(super) fn add(&mut self, took: Duration) {
        let place = self.0.partition_point(|other| *other <= took);
        self.0.insert(place, took);
    }

    pub(super) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|took| self.add(*took));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that `percent` of the probes did not exceed (nearest rank); zero when there were none.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// Takes the label from `count` Pods, in turn, and measures until it is back.
pub(super) async fn probe(pods: &Api<Pod>, label: &str, count: usize) -> anyhow::Result<Sample> {
    let listed = pods.list(&ListParams::default().labels(label)).await?;
    let revision = listed.metadata.resource_version.clone().context("a list has a resourceVersion")?;
    let names: Vec<String> =
        listed.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect();
    if names.is_empty() {
        bail!("no Pod carries the label {label}");
    }
    let mut changes = pods.watch(&WatchParams::default().timeout(60), &revision).await?.boxed();
    let take_away = Patch::Merge(json!({ "metadata": { "labels": BTreeMap::from([(label, None::<String>)]) } }));
    let mut sample = Sample::default();
    for name in names.iter().cycle().take(count) {
        let began = Instant::now();
        pods.patch(name, &PatchParams::default(), &take_away).await?;
        let back = async {
            let mut away = false;
            while let Some(change) = changes.try_next().await? {
                let WatchEvent::Modified(pod) = change else { continue };
                if pod.name_any() == *name {
                    match (pod.labels().contains_key(label), away) {
                        (false, _) => away = true,
                        (true, true) => return Ok(()),
                        (true, false) => {}
                    }
                }
            }
            bail!("the probe's own watch ended")
        };
        tokio::time::timeout(DEADLINE, back)
            .await
            .with_context(|| format!("label {label} did not come back to Pod {name} in {DEADLINE:?}"))??;
        sample.add(began.elapsed());
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_percentile_of_two_hundred_leaves_two_out() {
        let mut sample = Sample::default();
        for millis in (1..=200).rev() {
            sample.add(Duration::from_millis(millis));
        }
        assert_eq!(sample.percentile(99), Duration::from_millis(198));
        assert_eq!(sample.percentile(50), Duration::from_millis(100));
    }

    #[test]
    fn an_empty_sample_is_zero() {
        assert_eq!(Sample::default().percentile(99), Duration::ZERO);
    }
}
