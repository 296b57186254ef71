//! A cluster's Pods and their events.

use anyhow::Context;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{
    BEGIN, EVENTS_PER_SECOND, FIRST_REVISION, Options, PODS_PER_NODE, PopulationKind,
    cast::Cast,
    churn::Churn,
    real,
    state::{Identity, State},
    workload::Workload,
};

/// A cluster's Pods in their present states. They are generated in the order of namespace, then name; a Pod that is
/// added later gets the index of the one that it replaces.
pub struct Population {
    kind: PopulationKind,
    workloads: Vec<Workload>,
    pods: Vec<(Identity, State)>,
    /// The indexes of Pods that events may change.
    changing: Vec<usize>,
    churn: Churn,
    random: SmallRng,
    revision: u64,
    events: u64,
}

/// The type of a Pod's event in a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Added,
    Modified,
    Deleted,
}

/// One event: the Pod at this index has this revision now. A deleted Pod stays at its index with its last state until
/// the next event, which adds another one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub action: Action,
    pub at: usize,
    pub revision: u64,
}

impl Population {
    /// Generates a population. The same options make the same Pods.
    ///
    /// # Errors
    /// Returns an error if the folder of real objects cannot be read, is empty, or cannot be used for this
    /// population.
    pub fn generate(options: &Options) -> anyhow::Result<Self> {
        let mut random = SmallRng::seed_from_u64(options.seed);
        let namespaces: Vec<String> = (0..options.namespaces.max(1))
            .map(|at| format!("{}-{at}", ["shop", "bank", "media", "ops"][at % 4]))
            .collect();
        let nodes = (options.pods / PODS_PER_NODE).max(3);
        let mut cast = Cast { random: &mut random, nodes, workloads: Vec::new(), pods: Vec::new() };
        if let Some(folder) = &options.from {
            anyhow::ensure!(
                options.kind.can_be_real(),
                "population {} cannot be made of the Pods of {}; use --from with status or churn",
                options.kind.name(),
                folder.display()
            );
            let templates = real::read(folder)
                .with_context(|| format!("cannot use the Pods of {}; --from takes a folder", folder.display()))?;
            cast.real(options, &templates);
        } else {
            cast.synthetic(options, &namespaces);
            if options.kind == PopulationKind::Hostile {
                cast.hostile(options);
            }
        }
        let Cast { workloads, pods: identities, .. } = cast;
        let mut revision = FIRST_REVISION;
        let mut pods: Vec<(Identity, State)> = identities
            .into_iter()
            .map(|identity| {
                revision += 1 + random.random_range(0..4);
                let state = State::new(&mut random, workloads[identity.workload as usize].kind, &identity, revision);
                (identity, state)
            })
            .collect();
        let name = |(identity, _): &(Identity, State)| {
            (workloads[identity.workload as usize].namespace.clone(), identity.name.clone())
        };
        pods.sort_by_cached_key(name);
        let may_change = |(identity, _): &(Identity, State)| {
            options.kind != PopulationKind::Hostile || workloads[identity.workload as usize].pods_are_alike()
        };
        let changing = pods.iter().enumerate().filter(|(_, pod)| may_change(pod)).map(|(at, _)| at).collect();
        let churn = match options.kind {
            PopulationKind::Churn => Churn::new(&pods, nodes),
            _ => Churn::default(),
        };
        Ok(Self { kind: options.kind, workloads, pods, changing, churn, random, revision, events: 0 })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Returns the newest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the number of owners.
    #[must_use]
    pub fn workloads(&self) -> usize {
        self.workloads.len()
    }

    /// Returns namespace and name.
    #[must_use]
    pub fn name(&self, at: usize) -> (&str, &str) {
        let (identity, _) = &self.pods[at];
        (&self.workloads[identity.workload as usize].namespace, &identity.name)
    }

    /// Returns how many bytes of the Pod's JSON, without managedFields, differ between the Pods of one owner because
    /// of the population. Names, uids, addresses and times of the status, which differ in every population, do not
    /// count.
    #[must_use]
    pub fn own_bytes(&self, at: usize) -> usize {
        let (identity, state) = &self.pods[at];
        self.workloads[identity.workload as usize].own_bytes(identity, state)
    }

    /// Writes the Pod's present state, with `kind` and `apiVersion` first as in an event; items of a list lack these.
    pub fn write(&self, at: usize, into: &mut String) {
        let (identity, state) = &self.pods[at];
        self.workloads[identity.workload as usize].write(identity, state, into);
    }

    /// Like [`Self::write`].
    #[must_use]
    pub fn json(&self, at: usize) -> String {
        let mut json = String::with_capacity(12 << 10);
        self.write(at, &mut json);
        json
    }

    /// Skips revisions of other kinds' objects.
    pub fn pass(&mut self, revisions: u64) {
        self.revision += revisions;
    }

    /// Makes the next event. Returns `None` if no Pod changes any more.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events += 1;
        let now = BEGIN + (self.events / EVENTS_PER_SECOND).cast_signed();
        let (action, at) = if let Some(at) = self.churn.take_vacant() {
            self.replace(at, now);
            (Action::Added, at)
        } else if self.kind == PopulationKind::Churn && self.random.random_ratio(1, 5) {
            let at = self.random.random_range(0..self.pods.len().max(1));
            self.pods.get(at)?;
            self.churn.vacate(at);
            (Action::Deleted, at)
        } else {
            (Action::Modified, self.modify(now)?)
        };
        self.revision += 1;
        self.pods[at].1.revision = self.revision;
        Some(Event { action, at, revision: self.revision })
    }

    /// Changes one Pod, as its kubelet does or as it is resized.
    fn modify(&mut self, now: i64) -> Option<usize> {
        // Pods of finished Jobs are skipped; if there are no others, nothing can be changed.
        for _ in 0..1_000 {
            let at = *self.changing.get(self.random.random_range(0..self.changing.len().max(1)))?;
            let (_, state) = self.pods.get_mut(at)?;
            let changed = match self.kind {
                PopulationKind::Resize => state.resize(now),
                _ => state.advance(&mut self.random, now),
            };
            if changed {
                return Some(at);
            }
        }
        None
    }

    /// Replaces a deleted Pod with a new one of the same owner.
    fn replace(&mut self, at: usize, now: i64) {
        let old = &self.pods[at].0;
        let workload = &self.workloads[old.workload as usize];
        let identity = self.churn.successor(&mut self.random, workload, old, now);
        self.pods[at] = (identity, State::created(now, self.revision));
    }
}
