//! Pods in any number, made from a seed and written as a real API server writes them: compact JSON in its own order of
//! fields, about half of it managedFields; and events that change their status.
//!
//! What Pods of one workload share is the same byte for byte, as in a real cluster; the rest differs as it does there:
//! names, uids, nodes, addresses, ids of containers, times. Not made: Pods that are added or deleted by an event.

mod json;
mod pod;
mod real;
mod state;
mod template;
mod workload;

use std::{fmt::Write, path::PathBuf};

use anyhow::Context;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use self::{
    state::{Identity, State},
    template::mix,
    workload::{Kind, SAFE, Workload},
};

/// Seconds since 1970 at which the generated cluster begins: 2026-03-01T00:00:00Z.
const BEGIN: i64 = 1_772_323_200;
/// Pods were created within so many days before events begin.
const DAYS: i64 = 60;
/// Revisions of etcd are shared by all kinds: those of Pods begin somewhere.
const FIRST_REVISION: u64 = 48_000_000;
/// Events within one second of the generated cluster's time.
const EVENTS_PER_SECOND: u64 = 20;
const PODS_PER_NODE: usize = 50;

#[derive(Debug, Clone)]
pub struct Options {
    pub pods: usize,
    pub seed: u64,
    /// Pods of one owner, on average. Largest for Deployments.
    pub pods_per_workload: usize,
    pub namespaces: usize,
    /// A folder of real Pod objects, one `.json` each, that are used as templates in the place of invented workloads.
    pub from: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { pods: 10_000, seed: 1, pods_per_workload: 70, namespaces: 20, from: None }
    }
}

/// A cluster's Pods, in the order of namespace, then name, each at its present state.
pub struct Population {
    workloads: Vec<Workload>,
    pods: Vec<(Identity, State)>,
    random: SmallRng,
    revision: u64,
    events: u64,
}

/// One event: the Pod at this place has this revision now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modified {
    pub at: usize,
    pub revision: u64,
}

impl Population {
    /// The same options make the same Pods.
    ///
    /// # Errors
    /// When the folder of real objects cannot be read or has none.
    pub fn generate(options: &Options) -> anyhow::Result<Self> {
        let mut random = SmallRng::seed_from_u64(options.seed);
        let namespaces: Vec<String> = (0..options.namespaces.max(1))
            .map(|at| format!("{}-{at}", ["shop", "bank", "media", "ops"][at % 4]))
            .collect();
        let nodes = (options.pods / PODS_PER_NODE).max(3);
        let (workloads, identities) = match &options.from {
            Some(folder) => {
                let templates = real::read(folder)
                    .with_context(|| format!("cannot use the Pods of {}; --from takes a folder", folder.display()))?;
                let mut cast = Cast { random: &mut random, nodes, workloads: Vec::new(), pods: Vec::new() };
                cast.real(options, &templates);
                (cast.workloads, cast.pods)
            }
            None => {
                let mut cast = Cast { random: &mut random, nodes, workloads: Vec::new(), pods: Vec::new() };
                cast.synthetic(options, &namespaces);
                (cast.workloads, cast.pods)
            }
        };
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
        Ok(Self { workloads, pods, random, revision, events: 0 })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The newest revision of all.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many owners the Pods have.
    #[must_use]
    pub fn workloads(&self) -> usize {
        self.workloads.len()
    }

    /// Namespace and name.
    #[must_use]
    pub fn name(&self, at: usize) -> (&str, &str) {
        let (identity, _) = &self.pods[at];
        (&self.workloads[identity.workload as usize].namespace, &identity.name)
    }

    /// The Pod's present state, with `kind` and `apiVersion` first as in an event; items of a list lack these.
    pub fn write(&self, at: usize, into: &mut String) {
        let (identity, state) = &self.pods[at];
        let template = self.workloads[identity.workload as usize].template(state.phase);
        template.fill(into, |hole, into| state::push(hole, identity, state, into));
    }

    /// As [`Self::write`].
    #[must_use]
    pub fn json(&self, at: usize) -> String {
        let mut json = String::with_capacity(12 << 10);
        self.write(at, &mut json);
        json
    }

    /// Revisions pass that are of other kinds' objects.
    pub fn pass(&mut self, revisions: u64) {
        self.revision += revisions;
    }

    /// The status of a Pod changes, as by its kubelet. None when no Pod changes any more.
    pub fn modify(&mut self) -> Option<Modified> {
        self.events += 1;
        let now = BEGIN + (self.events / EVENTS_PER_SECOND).cast_signed();
        // Pods of finished Jobs are passed over; with none but those there is nothing to change.
        for _ in 0..1_000 {
            let at = self.random.random_range(0..self.pods.len().max(1));
            let (_, state) = self.pods.get_mut(at)?;
            if state.advance(&mut self.random, now) {
                self.revision += 1;
                state.revision = self.revision;
                return Some(Modified { at, revision: self.revision });
            }
        }
        None
    }
}

/// Who is there, before anyone has a state.
struct Cast<'a> {
    random: &'a mut SmallRng,
    nodes: usize,
    workloads: Vec<Workload>,
    pods: Vec<Identity>,
}

impl Cast<'_> {
    /// Of 100 Pods about 75 are of Deployments, 12 of DaemonSets, 8 of StatefulSets, 5 of Jobs.
    fn synthetic(&mut self, options: &Options, namespaces: &[String]) {
        let usual = options.pods_per_workload.max(1);
        while self.pods.len() < options.pods {
            let kind = match self.random.random_range(0..100) {
                // DaemonSets are few and large.
                _ if self.pods.len() * 12 > self.of_daemon_sets() * 100 + self.nodes * 100 => Kind::DaemonSet,
                0..42 => Kind::Deployment,
                42..77 => Kind::StatefulSet,
                _ => Kind::Job,
            };
            let size = match kind {
                Kind::DaemonSet => self.nodes,
                // Most are small and some are large.
                Kind::Deployment | Kind::Real => {
                    let share: f64 = self.random.random_range(0.1..1.0);
                    ((usual as f64 * 0.2) / (share * share)) as usize
                }
                Kind::StatefulSet | Kind::Job => self.random.random_range(1..=usual.div_ceil(2)),
            };
            let namespace = &namespaces[self.random.random_range(0..namespaces.len())];
            let workload = Workload::synthetic(self.random, kind, namespace, self.workloads.len());
            self.add(workload, size.clamp(1, options.pods - self.pods.len()));
        }
    }

    /// Each object stands for one workload of each round, under another name.
    fn real(&mut self, options: &Options, templates: &[real::Sample]) {
        for round in 0.. {
            for sample in templates {
                if self.pods.len() >= options.pods {
                    return;
                }
                let share: f64 = self.random.random_range(0.1..1.0);
                let size = ((options.pods_per_workload.max(1) as f64 * 0.1) / (share * share)) as usize;
                let workload = sample.workload(round);
                self.add(workload, size.clamp(1, options.pods - self.pods.len()));
            }
        }
    }

    fn of_daemon_sets(&self) -> usize {
        self.workloads.iter().filter(|workload| workload.kind == Kind::DaemonSet).count() * self.nodes
    }

    fn add(&mut self, workload: Workload, pods: usize) {
        let number = u32::try_from(self.workloads.len()).unwrap_or(u32::MAX);
        let mut taken = std::collections::HashSet::new();
        for ordinal in 0..pods {
            let seed: u64 = self.random.random();
            let suffix = (0..)
                .map(|attempt| match workload.kind {
                    Kind::StatefulSet => ordinal.to_string(),
                    _ => suffix(mix(seed.wrapping_add(attempt))),
                })
                .find(|suffix| taken.insert(suffix.clone()))
                .unwrap_or_default();
            let node = match workload.kind {
                Kind::DaemonSet => ordinal % self.nodes,
                _ => self.random.random_range(0..self.nodes),
            };
            self.pods.push(Identity {
                workload: number,
                name: format!("{}{suffix}", workload.prefix).into(),
                ordinal: ordinal as u32,
                node: node as u32,
                ip: self.pods.len() as u32,
                seed,
                created: BEGIN - self.random.random_range(60..DAYS * 86_400),
            });
        }
        self.workloads.push(workload);
    }
}

/// The five characters at the end of a generated name.
fn suffix(mut seed: u64) -> String {
    let mut suffix = String::with_capacity(5);
    for _ in 0..5 {
        suffix.push(char::from(SAFE[(seed % SAFE.len() as u64) as usize]));
        seed /= SAFE.len() as u64;
    }
    suffix
}

fn push_uid(high: u64, low: u64, into: &mut String) {
    // Writing to a String does not fail.
    let _ = write!(
        into,
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        0x8000 | low >> 48 & 0x3fff,
        low & 0xffff_ffff_ffff
    );
}

fn push_time(seconds: i64, into: &mut String) -> std::fmt::Result {
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => write!(into, "{time:.0}"),
        Err(_) => Err(std::fmt::Error),
    }
}

#[cfg(test)]
mod tests;
