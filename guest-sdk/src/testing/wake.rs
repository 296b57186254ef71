//! Which Pods a change wakes the plugin for: the rule of the host, without its queue. Runs follow changes only; neither
//! failures nor times.

use podium_vocabulary::{LabelSelector, WatchSpec};
use podium_wire::{Pod, Section, SectionBytes, SectionSet};

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
    /// Runs a plugin's function for each Pod that a change wakes it for, as the host would by the `watch` of its
    /// configuration, and executes its writes, until nothing more wakes it. Changes are those since the last run on the
    /// Pod: by the test, by the plugin itself, and at the start each Pod. Returns the runs in their order, each with
    /// `namespace/name`.
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
            let Some((namespace, name)) = woken else { return runs };
            let run = self.reconcile(function, &namespace, &name);
            let pod = format!("{namespace}/{name}");
            runs.push((pod.clone(), run));
            let count = runs.iter().filter(|(other, _)| *other == pod).count();
            assert!(count < MOST_RUNS, "{pod} does not settle: the plugin woke itself with its writes {count} times");
        }
    }
}

impl Fake {
    /// Returns the Pod of the oldest change that wakes the plugin, and forgets the changes before it.
    pub(super) fn next_woken(&mut self) -> Option<Name> {
        let wakes = |change: &Change| {
            self.configuration.scope.contains(&change.name.0) && wakes(change, self.configuration.watch.as_ref())
        };
        let first = self.changes.iter().position(wakes);
        let last = self.changes.drain(..first.map_or(self.changes.len(), |first| first + 1)).next_back()?;
        first.map(|_| last.name)
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
