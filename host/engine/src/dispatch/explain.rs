//! Why a plugin does not run on a Pod now. Asked for by people, and answered from the present state by the functions
//! that decide it for runs; nothing of it is recorded.

use std::{sync::Arc, time::Duration};

use podium_pods::pod::{CachedPod, Change, PodView};
use podium_vocabulary::PodKey;
use podium_wire::{Section, SectionSet};
use tokio::time::Instant;

use super::{Dispatch, Lane, LoadedPlugin, RunRecord, gate::Gate};
use crate::{
    queue::{Place, Waiting, Why},
    wake::Wake,
};

/// One reason why a plugin does not run on a Pod, or that it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// A word of `docs/observing.md`.
    pub name: &'static str,
    /// The reason for people. It may have names of plugins, which are not escaped.
    pub message: String,
    /// How long it will be in the way, if that is known.
    pub wait: Option<Duration>,
}

impl Reason {
    /// Returns a reason of unknown duration.
    #[must_use]
    pub fn new(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, message: message.into(), wait: None }
    }

    fn lasting(self, wait: impl Into<Option<Duration>>) -> Self {
        Self { wait: wait.into(), ..self }
    }
}

impl LoadedPlugin {
    /// Returns the interest of this plugin only.
    pub(crate) fn wake(&self) -> Wake<Lane> {
        let mut wake = Wake::new([]);
        wake.set(self.spec.id.namespace.as_ref(), [(self.lane, &*self.spec, self.selector.clone())]);
        wake
    }

    /// Returns true if a change of a Pod runs the plugin.
    #[must_use]
    pub fn watches(&self, change: &Change) -> bool {
        !self.wake().concerned(change).is_empty()
    }
}

impl Dispatch {
    /// Returns the reasons why a plugin does not run on a Pod now, the first one first in the way; never none.
    #[must_use]
    pub fn explain(&self, plugin: &LoadedPlugin, namespace: &str, name: &str) -> Vec<Reason> {
        let now = Instant::now();
        let wake = plugin.wake();
        if wake.in_scope(namespace).is_empty() {
            return vec![Reason::new("OtherNamespace", "the plugin runs only on Pods of its own namespace")];
        }
        let mut waiting = self.queue.waiting(plugin.lane, &(namespace.into(), name.into()));
        let snapshot = self.reader.snapshot();
        let Some(pod) = snapshot.get(namespace, name) else {
            let unknown = Reason::new("PodUnknown", "the cache has no Pod of this name");
            let deletions = waiting.iter().map(|of| self.place(plugin, of, now));
            return std::iter::once(unknown).chain(deletions).collect();
        };
        let group = plugin.group(&pod);
        let key = group.as_ref().unwrap_or(&pod.key);
        if group.is_some() {
            waiting = self.queue.waiting(plugin.lane, &(key.namespace.clone(), key.name.clone()));
        }
        let of_pod = waiting.iter().find(|of| of.item == key.uid);
        let mut reasons: Vec<Reason> = of_pod.map(|of| self.place(plugin, of, now)).into_iter().collect();
        if !pod.labels().is_ok_and(|labels| plugin.selector.matches(&labels)) {
            let message = "the Pod's labels do not match watch.selector";
            reasons.push(Reason::new("SelectorDoesNotMatch", message));
        } else if plugin.spec.watch.related.is_some() && group.is_none() {
            reasons.push(Reason::new("NoGroup", plugin.no_group()));
        } else if reasons.is_empty() {
            reasons.push(self.idle(plugin, &pod, key, &wake));
        }
        reasons.extend(self.obstacles(plugin, &pod.key, now));
        reasons.extend(group.map(|group| {
            let mut message = format!("the plugin runs for the group {} and not for each Pod", group.name);
            // Whoever asks may read about this namespace only.
            let first = plugin.present(&group, &*snapshot).filter(|first| *first.key.namespace == *namespace);
            message.extend(first.map(|first| format!(": on {}", first.key.name)));
            Reason::new("Group", message)
        }));
        reasons
    }

    /// Returns the reason why nothing asks for a run on a Pod that the plugin watches.
    fn idle(&self, plugin: &LoadedPlugin, pod: &Arc<CachedPod>, key: &PodKey, wake: &Wake<Lane>) -> Reason {
        let last = self.registry.last_run(&plugin.spec.id, |run| run.is_for(key));
        let has_stopped = |before: &Arc<LoadedPlugin>| {
            let skipped = |run: &RunRecord| run.is_for(key) && run.stopped.contains(&plugin.lane);
            let stop = self.registry.runs(&before.spec.id, 1, skipped).pop();
            stop.is_some_and(|stop| match &last {
                // A run that began before the stop may end after it.
                Ok(last) => last.read < stop.read,
                Err(number) => *number < stop.number,
            })
        };
        let predecessors = self.queue.predecessors(plugin.lane).into_iter();
        if let Some(before) = predecessors.filter_map(|lane| self.registry.get(lane)).find(has_stopped) {
            let message = format!("a run of {} on the Pod stopped it for the latest change", before.spec.id);
            return Reason::new("Stopped", message);
        }
        match last {
            Err(_) => Reason::new("NoRecord", "nothing asks for a run, and no record of the last one is kept"),
            Ok(run) if run.group.is_none() && run.read.max(run.wrote) < pod.revision => {
                let of = |section: &Section| {
                    let sections = SectionSet::EMPTY.with(*section);
                    Change { old: Some(pod.clone()), new: Some(pod.clone()), sections }
                };
                let watched = Section::ALL.iter().filter(|section| !wake.concerned(&of(section)).is_empty());
                let watched: Vec<_> = watched.map(|section| section.name()).collect();
                let message = format!(
                    "the Pod has changed since the plugin's last run, in sections that watch.sections does not have; \
                     the plugin watches: {}",
                    watched.join(", ")
                );
                Reason::new("SectionNotWatched", message)
            }
            Ok(run) => match &run.result {
                // Whoever asks may read about this namespace only.
                Err(_) if run.pod.namespace != pod.key.namespace => {
                    Reason::new("Failed", "the last run failed and is not retried")
                }
                Err(failure) => {
                    Reason::new("Failed", format!("the last run failed and is not retried: {}", failure.message))
                }
                Ok(_) => Reason::new("Settled", "nothing has changed since the plugin's last run"),
            },
        }
    }

    /// Returns what would make a run or its writes wait, whether or not one is due.
    fn obstacles(&self, plugin: &LoadedPlugin, key: &PodKey, now: Instant) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if plugin.is_revoked() {
            let message = "the plugin's configuration permits less than this version: runs wait for the next version";
            reasons.push(Reason::new("Revoked", message));
        }
        if let Some(wait) = self.held(plugin) {
            let message = "the API server answered Retry-After: runs that may write wait";
            reasons.push(Reason::new("RetryAfter", message).lasting(wait));
        }
        if self.expectations.gates.gate(plugin.lane, key, &*self.reader.snapshot(), now) != Gate::Open {
            let message = "the cache does not show yet what the plugin wrote to the Pod";
            reasons.push(Reason::new("Expectation", message));
        }
        if let Some(wait) = self.expectations.breaker.wait(plugin.lane, &key.uid, now) {
            let message = "the plugin changed the Pod too often: its next change of it is not sent yet";
            reasons.push(Reason::new("WriteLoop", message).lasting(wait));
        }
        reasons
    }

    /// Returns the reason for which an item of the queue does not run.
    fn place(&self, plugin: &LoadedPlugin, of: &Waiting<Lane, Arc<str>>, now: Instant) -> Reason {
        let why = of.why.names().join(", ");
        let name = |lane| self.registry.get(lane).map_or_else(String::new, |before| before.spec.id.to_string());
        match of.at {
            Place::Running => Reason::new("Running", format!("a run or its delivery is under way ({why})")),
            Place::Delayed(due) => {
                let (reason, message) = match of {
                    Waiting { attempt: 2.., .. } => ("BackOff", format!("waits before attempt {}", of.attempt)),
                    _ if of.why == Why::REQUEUE => ("RequeueAfter", "the last run asked for the next one".to_owned()),
                    _ if of.why == Why::WRITES => {
                        let message = "a write of the last run is not sent yet, or the cache does not show it yet";
                        ("WritesPending", message.to_owned())
                    }
                    _ if plugin.spec.watch.related.is_some() => {
                        let message = format!("waits for debounceSeconds since the last run ({why})");
                        ("Debounce", message)
                    }
                    _ => ("Postponed", format!("a run that could not start is tried again ({why})")),
                };
                Reason::new(reason, message).lasting(due.saturating_duration_since(now))
            }
            Place::Behind(lane, until) => {
                let message = format!("waits for the run of {} on this Pod ({why})", name(lane));
                Reason::new("Order", message).lasting(until.map(|until| until.saturating_duration_since(now)))
            }
            Place::BehindSlot => {
                Reason::new("EarlierPod", format!("waits for a run on an earlier Pod of this name ({why})"))
            }
            Place::Tokens => {
                let message = format!("the requests per second of {} or its tenant are used up", plugin.spec.id);
                Reason::new("RequestsPerSecond", message)
            }
            Place::Memory => Reason::new("Memory", format!("too little memory is free for a run ({why})")),
            Place::Turn => Reason::new("Turn", format!("waits for its turn, or for a free worker ({why})")),
        }
    }
}
