//! The responses about runs, read at each request: records of runs from the registry, and the reasons why a plugin does
//! not run, from the engine and from the life of plugins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use podium_engine::{
    dispatch::{Dispatch, LoadedPlugin, Reason, RunRecord},
    ports::Outcome,
    status::{LoadState, PluginState, PluginStatus, RunResult},
};
use podium_pods::pod::{Change, PodView};
use podium_vocabulary::{PluginId, Revision};
use podium_writeback::ClosedKind;
use tokio::time::Instant;

use super::{
    operator::{Observed, stale},
    reconcile_status::{millis, shown},
};
use crate::admin::{
    ENTRIES, Inspected, Listed, Owners, PluginOnPod, PluginRuns, PluginUsed, PluginsUsed, PodRuns, ReconcileStatus,
    Run, RunWrite, WhyNot,
};

/// The most runs of one plugin in a response about all plugins of a Pod, about one of them, and about a plugin.
const OF_EACH: usize = 5;
const OF_ONE: usize = 20;
const OF_PLUGIN: usize = 100;

impl Inspected for Observed {
    fn reconcile_status(&self) -> ReconcileStatus {
        self.reconcile_status()
    }

    fn pod(&self, namespace: &str, name: &str, plugin: Option<&str>) -> Option<PodRuns> {
        self.pod_runs(namespace, name, plugin, true)
    }

    fn plugin(&self, plugin: &str) -> Option<PluginRuns> {
        self.plugin_runs(plugin)
    }

    fn used(&self) -> PluginsUsed {
        let figures: BTreeMap<_, _> = self.status.plugins().into_iter().collect();
        let of = |PluginState { id, load, .. }: PluginState| {
            let status = figures.get(&id);
            let loaded = self.registry.by_id(&id);
            let counter = |read: fn(&PluginStatus) -> u64| status.map_or(0, |status| read(status));
            PluginUsed {
                plugin: shown(&id.to_string()),
                state: load.name().to_owned(),
                runs: counter(PluginStatus::runs),
                failed: counter(|status| status.runs_by(RunResult::Error)),
                writes: counter(PluginStatus::writes_applied),
                requests: counter(|status| status.requests.get()),
                cpu_micros: counter(|status| micros(status.cpu())),
                running: status.map_or(0, |status| status.active()),
                waiting: loaded.map_or(0, |loaded| self.queue.depth(loaded.lane)),
            }
        };
        PluginsUsed {
            pods: self.reader.snapshot().len(),
            stale: stale(&self.reader).map(|reason| shown(&reason)),
            plugins: self.status.loads().into_iter().map(of).collect(),
        }
    }

    fn owners(&self) -> Option<Owners> {
        self.leadership.as_ref().map(|leadership| leadership.owners())
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
/// The reasons of writes that are not sent, by field manager.
type Forbidden = BTreeMap<String, Vec<Reason>>;

impl Observed {
    /// See [`Inspected::pod`]. Without `of_cluster` the answer about all plugins has none of the cluster.
    pub(super) fn pod_runs(
        &self,
        namespace: &str,
        name: &str,
        plugin: Option<&str>,
        of_cluster: bool,
    ) -> Option<PodRuns> {
        let other = plugin.filter(|plugin| plugin.split_once('/').is_some_and(|(of, _)| of != namespace));
        let may_concern = |state: &PluginState| match plugin {
            Some(plugin) => state.id.to_string() == plugin,
            None => state.id.namespace.as_deref().map_or(of_cluster, |of| of == namespace),
        };
        let mut states = self.status.loads();
        states.retain(|state| other.is_none() && may_concern(state));
        if plugin.is_some() && other.is_none() && states.is_empty() {
            return None;
        }
        states.sort_by_cached_key(|state| state.id.to_string());
        let unlisted = states.len().saturating_sub(ENTRIES);
        states.truncate(ENTRIES);
        let most = if plugin.is_some() { OF_ONE } else { OF_EACH };
        let snapshot = self.reader.snapshot();
        let pod = snapshot.get(namespace, name);
        let runs = states.iter().map(|state| {
            let loaded = self.registry.by_id(&state.id);
            let group = pod.as_ref().zip(loaded).and_then(|(pod, loaded)| loaded.group(pod));
            // A group may have Pods of other namespaces, of which a client of this one learns nothing.
            let of_pod = |run: &RunRecord| {
                &*run.pod.namespace == namespace
                    && (&*run.pod.name == name || (group.is_some() && run.group.as_deref() == group.as_ref()))
            };
            self.registry.runs(&state.id, most, of_pod)
        });
        let runs: Vec<_> = runs.collect();
        let writers = self.writers(runs.iter().flatten());
        let forbidden = forbidden(&(self.closed)(), namespace, name);
        let mut plugins: Vec<_> = states
            .into_iter()
            .zip(&runs)
            .map(|(state, runs)| PluginOnPod {
                plugin: shown(&state.id.to_string()),
                state: Some(state.load.name().to_owned()),
                reasons: self.reasons(&state, namespace, name, &forbidden).iter().map(why_not).collect(),
                runs: runs.iter().map(|record| run(record, &writers)).collect(),
            })
            .collect();
        // A client that may read about the Pods of one namespace learns nothing about the plugins of another one.
        plugins.extend(other.map(|plugin| PluginOnPod {
            plugin: shown(plugin),
            state: None,
            reasons: vec![why_not(&Reason::new("OtherNamespace", "a plugin runs only on Pods of its own namespace"))],
            runs: Vec::new(),
        }));
        Some(PodRuns {
            pod: shown(&format!("{namespace}/{name}")),
            uid: pod.as_ref().map(|pod| shown(&pod.key.uid)),
            revision: pod.as_ref().map(|pod| pod.revision.0),
            stale: stale(&self.reader).map(|reason| shown(&reason)),
            plugins: Listed::new(plugins, unlisted, |of: &PluginOnPod| of.plugin.clone()),
        })
    }

    /// See [`Inspected::plugin`].
    pub(super) fn plugin_runs(&self, plugin: &str) -> Option<PluginRuns> {
        let state = self.status.loads().into_iter().find(|state| state.id.to_string() == plugin)?;
        let runs = self.registry.runs(&state.id, OF_PLUGIN, |_| true);
        let writers = self.writers(&runs);
        Some(PluginRuns {
            plugin: shown(plugin),
            state: state.load.name().to_owned(),
            reason: state.load.reason().map(shown),
            runs: runs.iter().map(|record| run(record, &writers)).collect(),
        })
    }

    /// Returns the runs that ended after the one of this number, the earliest first.
    pub(super) fn runs_since(&self, number: u64) -> Vec<Run> {
        let runs = self.registry.runs_since(number, |_| true);
        let writers = self.writers(&runs);
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

    /// Returns whose writes made the states that runs read, by the kept records of all runs.
    fn writers<'a>(&self, runs: impl IntoIterator<Item = &'a Arc<RunRecord>>) -> Writers {
        let read: BTreeSet<_> = runs.into_iter().map(|run| run.read).filter(|read| read.0 > 0).collect();
        if read.is_empty() {
            return Writers::new();
        }
        let wrote = self.registry.runs_since(0, |run| read.contains(&run.wrote));
        wrote.into_iter().map(|run| (run.wrote, run.plugin.clone())).collect()
    }

    /// Returns the reasons why a plugin does not run on a Pod.
    fn reasons(&self, state: &PluginState, namespace: &str, name: &str, forbidden: &Forbidden) -> Vec<Reason> {
        let PluginState { id, load, runs } = state;
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
                reasons.extend(forbidden.get(&loaded.sender.manager).into_iter().flatten().cloned());
            }
        }
        reasons
    }
}

fn why_not(Reason { name, message, wait }: &Reason) -> WhyNot {
    WhyNot { reason: (*name).to_owned(), message: shown(message), wait_millis: wait.map(millis) }
}

/// Returns the reasons of writes that RBAC refused, as far as they may concern runs on a Pod.
fn forbidden(closed: &[ClosedKind], namespace: &str, name: &str) -> Forbidden {
    let mut reasons = Forbidden::new();
    for ClosedKind { manager, verb, resource, namespace: of, only, wait, .. } in closed {
        let is_pod = resource.split('/').next() == Some("pods");
        let is_other = is_pod && only.as_deref().is_some_and(|only| only != name);
        if is_other || of.as_deref().is_some_and(|of| of != namespace) {
            continue;
        }
        let only = only.as_ref().map_or_else(String::new, |only| format!(" {only}"));
        reasons.entry(manager.clone()).or_default().push(Reason {
            name: "Forbidden",
            message: format!(
                "RBAC does not permit the plugin's account to {verb} {resource}{only}: such writes are not sent"
            ),
            wait: Some(*wait),
        });
    }
    reasons
}

fn run(record: &RunRecord, writers: &Writers) -> Run {
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
        group: record.group.as_ref().map(|group| shown(&group.name)),
        deleted: record.deleted,
        causes: record.why.names().into_iter().map(str::to_owned).collect(),
        // It may be another Pod of the group that has changed.
        written_by: writers
            .get(&record.read)
            .filter(|_| record.group.is_none())
            .map(|writer| shown(&writer.to_string())),
        attempt: record.attempt,
        millis_ago: millis(Instant::now().saturating_duration_since(record.ended)),
        waited_micros: micros(record.waited),
        took_micros: micros(record.took),
        cpu_micros: micros(record.usage.cpu),
        fuel: record.usage.fuel,
        host_calls: record.usage.host_calls,
        result: record.result_name().to_owned(),
        requeue_after_millis,
        message: record.result.as_ref().err().map(|failure| shown(&failure.message)),
        writes: writes.collect(),
        writes_unlisted: record.unlisted,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use podium_engine::status::Status;
    use tokio::sync::watch;

    use super::*;
    use crate::app::{Phase, operator::tests::observed};

    #[test]
    fn nothing_is_said_about_plugins_of_other_namespaces() {
        let status = Arc::<Status>::default();
        let id = PluginId { namespace: Some("other".into()), name: "secret".into() };
        status.set_load(&id, LoadState::Refused { reason: "hidden".to_owned() }, false);
        let (_progress, phase) = watch::channel(Phase::Serving);
        let observed = observed(status, phase);
        let about = |plugin: &str| {
            let answer = serde_json::to_string(&observed.pod_runs("shop", "x", Some(plugin), true).unwrap()).unwrap();
            assert!(answer.contains("OtherNamespace") && !answer.contains("hidden"), "{answer}");
            assert!(!answer.contains("refused"), "{answer}");
            answer.replace(plugin, "")
        };
        assert_eq!(about("other/secret"), about("other/absent"));
        assert!(observed.pod_runs("shop", "x", Some("shop/absent"), true).is_none());
        assert_eq!(observed.pod_runs("other", "x", Some("other/secret"), true).unwrap().plugins.total, 1);
        assert_eq!(observed.pod_runs("shop", "x", None, true).unwrap().plugins.total, 0);
    }

    #[test]
    fn the_first_100_plugins_by_name_are_listed() {
        let status = Arc::<Status>::default();
        for number in 0..300 {
            let namespace = (number % 2 == 0).then(|| "shop".into());
            status.set_load(&PluginId { namespace, name: format!("{number:03}").into() }, LoadState::Loading, false);
        }
        let (_progress, phase) = watch::channel(Phase::Serving);
        let observed = observed(status, phase);
        assert_eq!(observed.pod_runs("shop", "x", None, false).unwrap().plugins.total, 150, "none of the cluster");
        let plugins = observed.pod_runs("shop", "x", None, true).unwrap().plugins;
        assert_eq!((plugins.total, plugins.left_out, plugins.items.len()), (300, 200, ENTRIES));
        assert_eq!((&*plugins.items[0].plugin, &*plugins.items[99].plugin), ("001", "199"));
    }

    #[test]
    fn a_missing_right_is_named_for_the_pods_that_it_concerns() {
        let closed = |resource: &str, namespace: &str, only: Option<&str>| ClosedKind {
            manager: "podium/shop/tidy".to_owned(),
            account: None,
            verb: "patch",
            resource: resource.to_owned(),
            namespace: Some(namespace.to_owned()),
            only: only.map(str::to_owned),
            wait: Duration::from_secs(1),
        };
        let named = |closed: ClosedKind| {
            let reasons = forbidden(&[closed], "shop", "cart").into_values().flatten();
            reasons.map(|reason| reason.message).collect::<Vec<_>>()
        };
        let of = |object| {
            vec![format!("RBAC does not permit the plugin's account to patch {object}: such writes are not sent")]
        };
        assert_eq!(named(closed("pods", "shop", None)), of("pods"));
        assert_eq!(named(closed("pods/status", "shop", Some("cart"))), of("pods/status cart"));
        assert_eq!(named(closed("configmaps", "shop", Some("settings"))), of("configmaps settings"));
        for (resource, namespace, only) in
            [("pods", "shop", Some("till")), ("pods/status", "shop", Some("till")), ("pods", "other", None)]
        {
            assert!(named(closed(resource, namespace, only)).is_empty(), "{resource} {namespace} {only:?}");
        }
    }
}
