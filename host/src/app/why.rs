//! The responses about runs, read at each request: records of runs from the registry, and the reasons why a plugin does
//! not run, from the engine and from the life of plugins.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podium_engine::{
    dispatch::{Dispatch, LoadedPlugin, Reason, RunRecord},
    ports::Outcome,
    status::{LoadState, PluginState},
};
use podium_pods::pod::{Change, PodView};
use podium_vocabulary::{PluginId, Revision};
use tokio::time::Instant;

use super::{
    operator::{Observed, stale},
    reconcile_status::{millis, shown},
};
use crate::admin::{Inspected, Listed, PluginOnPod, PluginRuns, PodRuns, ReconcileStatus, Run, RunWrite, WhyNot};

/// The most runs of one plugin in a response about all plugins of a Pod, about one of them, and about a plugin.
const OF_EACH: usize = 5;
const OF_ONE: usize = 20;
const OF_PLUGIN: usize = 100;

impl Inspected for Observed {
    fn reconcile_status(&self) -> ReconcileStatus {
        self.reconcile_status()
    }

    fn pod(&self, namespace: &str, name: &str, plugin: Option<&str>) -> Option<PodRuns> {
        self.pod_runs(namespace, name, plugin)
    }

    fn plugin(&self, plugin: &str) -> Option<PluginRuns> {
        self.plugin_runs(plugin)
    }
}

/// Returns why a plugin does not run on the Pod of a namespace and name.
pub(super) type Explain = Box<dyn Fn(&LoadedPlugin, &str, &str) -> Vec<Reason> + Send + Sync>;

/// Returns the function that asks dispatch.
pub(super) fn explain(dispatch: &Arc<Dispatch>) -> Explain {
    let dispatch = dispatch.clone();
    Box::new(move |plugin, namespace, name| dispatch.explain(plugin, namespace, name))
}

/// The plugins whose writes made revisions.
type Writers = BTreeMap<Revision, PluginId>;

impl Observed {
    /// See [`Inspected::pod`].
    pub(super) fn pod_runs(&self, namespace: &str, name: &str, plugin: Option<&str>) -> Option<PodRuns> {
        let loads = self.status.loads();
        let may_concern = |state: &PluginState| match plugin {
            Some(plugin) => state.id.to_string() == plugin,
            None => state.id.namespace.as_deref().is_none_or(|of| of == namespace),
        };
        let states: Vec<_> = loads.into_iter().filter(may_concern).collect();
        if plugin.is_some() && states.is_empty() {
            return None;
        }
        let most = if plugin.is_some() { OF_ONE } else { OF_EACH };
        let of_pod = |run: &RunRecord| &*run.pod.namespace == namespace && &*run.pod.name == name;
        let runs: Vec<_> = states.iter().map(|state| self.registry.runs(&state.id, most, of_pod)).collect();
        let writers = writers(runs.iter().flatten());
        let plugins = states.into_iter().zip(&runs).map(|(state, runs)| PluginOnPod {
            plugin: shown(&state.id.to_string()),
            state: state.load.name().to_owned(),
            reasons: self.reasons(&state, namespace, name).iter().map(why_not).collect(),
            runs: runs.iter().map(|record| run(record, &writers)).collect(),
        });
        let snapshot = self.reader.snapshot();
        let pod = snapshot.get(namespace, name);
        Some(PodRuns {
            pod: shown(&format!("{namespace}/{name}")),
            uid: pod.as_ref().map(|pod| shown(&pod.key.uid)),
            revision: pod.as_ref().map(|pod| pod.revision.0),
            stale: stale(&self.reader).map(|reason| shown(&reason)),
            plugins: Listed::new(plugins.collect(), 0, |of: &PluginOnPod| of.plugin.clone()),
        })
    }

    /// See [`Inspected::plugin`].
    pub(super) fn plugin_runs(&self, plugin: &str) -> Option<PluginRuns> {
        let state = self.status.loads().into_iter().find(|state| state.id.to_string() == plugin)?;
        let runs = self.registry.runs(&state.id, OF_PLUGIN, |_| true);
        let writers = writers(&runs);
        Some(PluginRuns {
            plugin: shown(plugin),
            state: state.load.name().to_owned(),
            reason: state.load.reason().map(shown),
            runs: runs.iter().map(|record| run(record, &writers)).collect(),
        })
    }

    /// Returns the runs that ended after the one of this number, the earliest first.
    pub(super) fn runs_since(&self, number: u64) -> Vec<Run> {
        let runs = self.registry.runs_since(number);
        let writers = writers(&runs);
        runs.iter().map(|record| run(record, &writers)).collect()
    }

    /// Returns the loaded plugins that run on the changed Pod, and that the change does not wake.
    pub(super) fn unconcerned(&self, change: &Change) -> Vec<String> {
        let Some(pod) = &change.new else { return Vec::new() };
        let Some(added) = Change::between(None, Some(pod.clone())) else { return Vec::new() };
        let plugins = self.registry.all().into_iter();
        let asleep = plugins.filter(|plugin| plugin.watches(&added) && !plugin.watches(change));
        asleep.map(|plugin| shown(&plugin.spec.id.to_string())).collect()
    }

    /// Returns the reasons why a plugin does not run on a Pod.
    fn reasons(&self, PluginState { id, load, runs }: &PluginState, namespace: &str, name: &str) -> Vec<Reason> {
        let not_ready = match load {
            LoadState::Loaded => None,
            LoadState::Loading => Some(Reason::new("Loading", "the plugin is being loaded")),
            LoadState::Standby => Some(Reason::new("Standby", "another replica of the host runs the plugins")),
            LoadState::Suspended => Some(Reason::new("Suspended", "spec.suspend is true")),
            LoadState::Waiting { reason, .. } | LoadState::Refused { reason } => {
                let earlier = if *runs { ", an earlier version runs" } else { "" };
                Some(Reason::new("NotReady", format!("the plugin could not be loaded{earlier}: {reason}")))
            }
        };
        let mut reasons: Vec<_> = not_ready.into_iter().collect();
        match self.registry.by_id(id).filter(|_| *runs) {
            None if reasons.is_empty() => reasons.push(Reason::new("Loading", "the plugin is being loaded")),
            None => {}
            Some(loaded) => {
                reasons.extend((self.explain)(&loaded, namespace, name));
                let manager = &loaded.sender.manager;
                let closed = (self.closed)().into_iter();
                let of_plugin = closed.filter(|closed| {
                    closed.manager == *manager && closed.namespace.as_deref().is_none_or(|of| of == namespace)
                });
                reasons.extend(of_plugin.map(|closed| Reason {
                    name: "Forbidden",
                    message: format!(
                        "RBAC does not permit the plugin's account to {} {}: such writes are not sent",
                        closed.verb, closed.resource
                    ),
                    wait: Some(closed.wait),
                }));
            }
        }
        reasons
    }
}

fn why_not(Reason { name, message, wait }: &Reason) -> WhyNot {
    WhyNot { reason: (*name).to_owned(), message: shown(message), wait_millis: wait.map(millis) }
}

fn writers<'a>(runs: impl IntoIterator<Item = &'a Arc<RunRecord>>) -> Writers {
    let wrote = runs.into_iter().filter(|run| run.wrote.0 > 0);
    wrote.map(|run| (run.wrote, run.plugin.clone())).collect()
}

fn run(record: &RunRecord, writers: &Writers) -> Run {
    let result = match &record.result {
        Err(failure) => failure.kind.name(),
        Ok(_) if record.unsettled => "unsettled",
        Ok(Outcome::Settled) => "settled",
        Ok(Outcome::Stop) => "stop",
        Ok(Outcome::RequeueAfter(_)) => "requeueAfter",
    };
    let requeue_after_millis = match &record.result {
        Ok(Outcome::RequeueAfter(after)) => Some(millis(*after)),
        Ok(Outcome::Settled | Outcome::Stop) | Err(_) => None,
    };
    let writes = record.writes.iter().map(|report| RunWrite {
        write: shown(&report.description),
        result: report.result.name().to_owned(),
        message: Some(report.result.text()).filter(|text| !text.is_empty()).map(shown),
    });
    Run {
        number: record.number,
        plugin: shown(&record.plugin.to_string()),
        pod: shown(&record.pod.to_string()),
        uid: shown(&record.pod.uid),
        deleted: record.deleted,
        causes: record.why.names().into_iter().map(str::to_owned).collect(),
        written_by: writers.get(&record.read).map(|writer| shown(&writer.to_string())),
        attempt: record.attempt,
        millis_ago: millis(Instant::now().saturating_duration_since(record.ended)),
        waited_micros: micros(record.waited),
        took_micros: micros(record.took),
        cpu_micros: micros(record.usage.cpu),
        fuel: record.usage.fuel,
        host_calls: record.usage.host_calls,
        result: result.to_owned(),
        requeue_after_millis,
        message: record.result.as_ref().err().map(|failure| shown(&failure.message)),
        writes: writes.collect(),
        writes_unlisted: record.unlisted,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
