//! Which Pods or groups a change wakes the plugin for: the rule of the host, without its queue. Runs follow changes
//! only; neither failures nor times.

use podium_vocabulary::{LabelSelector, PodKey, Relation, Scope, WatchSpec};
use podium_wire::{Pod, Section, SectionBytes, SectionSet, Workload};

use super::{
    Host, Run,
    fake::{Fake, Name},
};
use crate::{Outcome, Request, Result};

/// The most runs on one Pod until it must be settled.
const MOST_RUNS: usize = 100;

/// A change of a Pod, from its state before to that after; `None` if it was absent or is gone.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) name: Name,
    pub(super) before: Option<Pod>,
    pub(super) after: Option<Pod>,
}

impl Host {
    /// Runs a plugin's function for each Pod, or for each group of Pods (`watch.related`), that a change wakes it
    /// for, as the host would by the `watch` of its
    /// configuration, and executes its writes, until nothing more wakes it. Changes are those since the last run on the
    /// Pod: by the test, by the plugin itself, and at the start each Pod. Returns the runs in their order, each with
    /// `namespace/name` of its Pod.
    ///
    /// A run that failed or asked for a requeue is not repeated, because no time passes; use
    /// [`reconcile`](Self::reconcile) for it.
    ///
    /// # Panics
    /// Panics if the function panics, or if it wakes itself by its writes without end.
    #[track_caller]
    pub fn settle(&mut self, function: fn(&Request) -> Result<Outcome>) -> Vec<(String, Run)> {
        let mut runs: Vec<(String, Run)> = Vec::new();
        loop {
            let woken = self.fake().next_woken();
            let Some(Woken { name, ended }) = woken else { return runs };
            let pod = format!("{}/{}", name.0, name.1);
            let run = self.run(function, name, ended);
            runs.push((pod.clone(), run));
            let count = runs.iter().filter(|(other, _)| *other == pod).count();
            assert!(count < MOST_RUNS, "{pod} does not settle: the plugin woke itself with its writes {count} times");
        }
    }
}

/// The subject of a run.
#[derive(Debug)]
pub(super) struct Woken {
    name: Name,
    /// The last state of a group that has no Pod any more.
    ended: Option<Box<Pod>>,
}

impl Fake {
    /// Returns the Pod or the group of the oldest change that wakes the plugin, and forgets the changes before it.
    pub(super) fn next_woken(&mut self) -> Option<Woken> {
        if let Some(watch) = self.configuration.watch.clone().filter(|watch| watch.related.is_some()) {
            return self.next_group(&watch);
        }
        let wakes = |change: &Change| {
            self.configuration.scope.contains(&change.name.0) && wakes(change, self.configuration.watch.as_ref())
        };
        let first = self.changes.iter().position(wakes);
        let last = self.changes.drain(..first.map_or(self.changes.len(), |first| first + 1)).next_back()?;
        first.map(|_| Woken { name: last.name, ended: None })
    }

    /// Returns the next group that changes wake the plugin for, and no later change does too.
    fn next_group(&mut self, watch: &WatchSpec) -> Option<Woken> {
        let scope = self.configuration.scope.clone();
        while self.woken_groups.is_empty() {
            if self.changes.is_empty() {
                return None;
            }
            let change = self.changes.remove(0);
            let mut woken = groups(&change, watch, &scope);
            let later: Vec<_> = self.changes.iter().flat_map(|change| groups(change, watch, &scope)).collect();
            woken.retain(|(group, _)| later.iter().all(|(other, _)| other != group));
            self.woken_groups.extend(woken);
        }
        let (group, last) = self.woken_groups.remove(0);
        let is_member =
            |pod: &&Pod| watch.selector.matches(&pod.labels) && group_of(pod, watch, &scope).as_ref() == Some(&group);
        let members: Vec<&Pod> = self.pods.values().filter(is_member).collect();
        let living = members.iter().find(|pod| pod.lifecycle.deletion_timestamp.is_none());
        let first = living.or(members.first()).copied();
        let of = first.unwrap_or(&last).header.clone();
        let ended = first.is_none().then(|| Box::new(last));
        Some(Woken { name: (of.namespace, of.name), ended })
    }
}

/// Returns the group of a Pod, whatever the selector.
fn group_of(pod: &Pod, watch: &WatchSpec, scope: &Scope) -> Option<PodKey> {
    let relation = &watch.related.as_ref()?.by;
    let value = match relation {
        Relation::Workload => {
            let controller = Workload::controller(&pod.owners)?;
            Workload::above(controller, &pod.labels).owner_text()
        }
        Relation::Node => pod.spec.node_name.clone()?,
        Relation::Label(key) => pod.labels.get(key)?.clone(),
    };
    relation.group(scope, &pod.header.namespace.as_str().into(), &value)
}

/// Returns the groups that a change wakes the plugin for, each with a state of the Pod in it.
fn groups(Change { name, before, after }: &Change, watch: &WatchSpec, scope: &Scope) -> Vec<(PodKey, Pod)> {
    let of = |pod: &Option<Pod>| {
        let pod = pod.as_ref().filter(|pod| watch.selector.matches(&pod.labels) && scope.contains(&name.0))?;
        Some((group_of(pod, watch, scope)?, pod.clone()))
    };
    let [before, after] = [of(before), of(after)];
    match (before, after) {
        (Some((group, before)), Some((now, after))) if group == now => {
            let sections = watch.sections.with(Section::Lifecycle);
            let is_watched = |section| sections.contains(section) || sections.contains(Section::Full);
            let is_other = before.header.uid != after.header.uid;
            let wakes = is_other || changed(&before, &after).iter().any(is_watched);
            wakes.then_some((now, after)).into_iter().collect()
        }
        (before, after) => before.into_iter().chain(after).collect(),
    }
}

/// Without a configuration every change wakes.
fn wakes(Change { before, after, .. }: &Change, watch: Option<&WatchSpec>) -> bool {
    let every_pod = LabelSelector::default();
    let every_section = SectionSet::ALL;
    let (selector, sections) = watch.map_or((&every_pod, every_section), |watch| (&watch.selector, watch.sections));
    let matching = |pod: &Option<Pod>| pod.as_ref().filter(|pod| selector.matches(&pod.labels)).cloned();
    match (matching(before), matching(after)) {
        (Some(before), Some(after)) if before.header.uid == after.header.uid => {
            let changed = changed(&before, &after);
            let watched = sections.with(Section::Lifecycle);
            changed.iter().any(|section| watched.contains(section) || watched.contains(Section::Full))
        }
        (None, None) => false,
        _ => true,
    }
}

fn changed(before: &Pod, after: &Pod) -> SectionSet {
    match (SectionBytes::encode(after), SectionBytes::encode(before)) {
        (Ok(after), Ok(before)) => after.changed_from(&before),
        // Larger than any API server's Pod.
        _ => SectionSet::ALL,
    }
}
