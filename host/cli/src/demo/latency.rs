//! Time from a new Pod to a plugin's response, measured by a client: it creates a Pod, and its own watch waits for the
//! label that the plugin sets. One Pod after the other, so that no probe waits for another. A label that is removed
//! repeatedly would be a write loop, which the host slows.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
};
use tokio::time::Instant;

/// The longest wait for a plugin. A slow plugin on a busy machine takes seconds.
const DEADLINE: Duration = Duration::from_secs(60);
/// Lifetime of the probe's watch in seconds. Afterwards it is opened again.
const WATCH_SECONDS: u32 = 60;

/// A plugin is delayed if its 99th percentile beside another plugin is this many times the one without: a plugin that
/// has to wait for another one's runs is tens of times slower, and a busy machine makes both a few times slower.
const HELD_UP: u32 = 10;
/// A latency below this does not count as a delay: two or three time slices of the operating system on a shared
/// processor.
const UNNOTICED: Duration = Duration::from_millis(50);

/// The times of many probes.
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

    /// Returns the time that `percent` of the probes did not exceed (nearest rank); zero without probes.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// Times of the same plugin under the same changes, without and beside another plugin.
#[derive(Debug, Clone, Default)]
pub(super) struct Comparison {
    pub(super) alone: Sample,
    pub(super) beside: Sample,
}

impl Comparison {
    /// Returns true if the plugin waited for the other one. A single measurement may be wrong by chance, if something
    /// else on the machine ran at that moment; see [`held_up`].
    pub(super) fn held_up(&self) -> bool {
        let alone = self.alone.percentile(99);
        let beside = self.beside.percentile(99);
        beside > UNNOTICED && beside > HELD_UP * alone
    }
}

/// Returns a time as programs and tables show it.
pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Returns true if every measurement shows a delay, and there is one.
pub(super) fn held_up(measured: &[Comparison]) -> bool {
    !measured.is_empty() && measured.iter().all(Comparison::held_up)
}

/// A watch that is opened again when the API server ends it.
struct Changes<'a> {
    pods: &'a Api<Pod>,
    revision: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<Pod>>>>,
}

impl Changes<'_> {
    /// Returns the next Pod that was modified.
    async fn next(&mut self) -> anyhow::Result<Pod> {
        loop {
            let events = match &mut self.events {
                Some(events) => events,
                closed => {
                    let parameters = WatchParams::default().timeout(WATCH_SECONDS);
                    closed.insert(self.pods.watch(&parameters, &self.revision).await?.boxed())
                }
            };
            match events.try_next().await? {
                Some(WatchEvent::Modified(pod)) => {
                    self.revision = pod.resource_version().context("a Pod has a resourceVersion")?;
                    return Ok(pod);
                }
                Some(WatchEvent::Added(pod) | WatchEvent::Deleted(pod)) => {
                    self.revision = pod.resource_version().context("a Pod has a resourceVersion")?;
                }
                Some(WatchEvent::Bookmark(bookmark)) => self.revision = bookmark.metadata.resource_version,
                Some(WatchEvent::Error(status)) => bail!("the probe's own watch failed: {}", status.message),
                None => self.events = None,
            }
        }
    }
}

/// Creates `count` Pods, one after the other, and measures the time until each has the label. `pod` makes the Pod of a
/// number that no other Pod has. The Pods are deleted again.
pub(super) async fn probe(
    pods: &Api<Pod>,
    label: &str,
    count: usize,
    pod: impl Fn(u64) -> anyhow::Result<Pod>,
) -> anyhow::Result<Sample> {
    let listed = pods.list(&ListParams::default().limit(1)).await?;
    let revision = listed.metadata.resource_version.context("a list has a resourceVersion")?;
    // Each new Pod is a revision, so that a later call begins with a greater number.
    let first: u64 = revision.parse().context("the simulated API server's revisions are numbers")?;
    let mut changes = Changes { pods, revision, events: None };
    let mut sample = Sample::default();
    for number in (first..).take(count) {
        let pod = pod(number)?;
        let name = pod.name_any();
        let began = Instant::now();
        pods.create(&PostParams::default(), &pod).await.with_context(|| format!("cannot create Pod {name}"))?;
        let labelled = async {
            loop {
                let pod = changes.next().await?;
                if pod.name_any() == name && pod.labels().contains_key(label) {
                    return anyhow::Ok(());
                }
            }
        };
        tokio::time::timeout(DEADLINE, labelled)
            .await
            .with_context(|| format!("Pod {name} did not have the label {label} after {DEADLINE:?}"))??;
        sample.add(began.elapsed());
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
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

    fn sample(millis: impl IntoIterator<Item = u64>) -> Sample {
        let mut sample = Sample::default();
        millis.into_iter().for_each(|millis| sample.add(Duration::from_millis(millis)));
        sample
    }

    /// Returns a comparison of 200 probes each with these times; `slow` of the second ones took a second.
    fn comparison(alone: u64, beside: u64, slow: usize) -> Comparison {
        let beside = std::iter::repeat_n(beside, 200 - slow).chain(std::iter::repeat_n(1_000, slow));
        Comparison { alone: sample([alone; 200]), beside: sample(beside) }
    }

    #[test]
    fn a_plugin_is_held_up_when_it_is_more_than_ten_times_slower() {
        assert!(!comparison(6, 60, 0).held_up());
        assert!(comparison(6, 61, 0).held_up());
    }

    #[test]
    fn a_machine_that_slows_both_plugins_is_not_a_delay() {
        assert!(!comparison(300, 900, 0).held_up());
    }

    #[test]
    fn a_latency_below_50_ms_is_never_a_delay() {
        assert!(!comparison(1, 50, 0).held_up());
    }

    #[test]
    fn two_slow_changes_of_200_are_tolerated_and_three_are_a_delay() {
        assert!(!comparison(6, 6, 2).held_up());
        assert!(comparison(6, 6, 3).held_up());
    }

    #[test]
    fn a_delay_must_appear_in_every_measurement() {
        let slow = comparison(6, 600, 0);
        let well = comparison(6, 12, 0);
        assert!(held_up(&[slow.clone(), slow.clone(), slow.clone()]));
        assert!(!held_up(&[slow.clone(), well, slow]));
        assert!(!held_up(&[]));
    }

    #[test]
    fn an_empty_sample_is_zero() {
        assert_eq!(Sample::default().percentile(99), Duration::ZERO);
    }
}
