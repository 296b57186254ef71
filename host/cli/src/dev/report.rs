//! The lines of `podium dev` about runs, and about changes that run nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podium_engine::queue::Why;
use podium_host::app::App;
use podium_pods::{
    cache::Snapshot,
    pod::{CachedPod, Change, PodView},
};
use podium_vocabulary::{Revision, text};

use crate::{runs, ui};

/// How often new runs are looked for.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);
/// The most Pods of a cluster whose changes are compared.
const MOST: usize = 1_000;

/// The runs and the Pods that were printed or compared so far.
#[derive(Default)]
pub(super) struct Report {
    /// The number of the last run.
    run: u64,
    /// That of the last snapshot.
    revision: Revision,
    pods: BTreeMap<Arc<str>, Arc<CachedPod>>,
}

impl Report {
    /// Prints the runs and changes since the last call.
    pub(super) fn print(&mut self, app: &App) {
        self.changes(app, &app.reader().snapshot()).iter().for_each(|line| ui::report(line));
        for run in app.runs_since(self.run) {
            self.run = run.number;
            ui::report(&format!("{}  by {}", runs::line(&run), run.plugin));
        }
    }

    /// Returns a line for each change that a plugin does not watch, although it runs on the Pod.
    fn changes(&mut self, app: &App, snapshot: &Snapshot) -> Vec<String> {
        if snapshot.revision() == self.revision || snapshot.len() > MOST {
            return Vec::new();
        }
        self.revision = snapshot.revision();
        let pods: BTreeMap<_, _> = snapshot.iter().map(|pod| (pod.key.uid.clone(), pod)).collect();
        let before = std::mem::replace(&mut self.pods, pods);
        let changes = self.pods.iter().filter_map(|(uid, pod)| {
            let change = Change::between(Some(before.get(uid)?.clone()), Some(pod.clone()))?;
            let asleep = app.unconcerned(&change).join(", ");
            let sections = Why::changed(change.sections).names().join(", ");
            (!asleep.is_empty())
                .then(|| text::line(&format!("{}  {sections} changed: not watched by {asleep}", pod.key)))
        });
        changes.collect()
    }
}
