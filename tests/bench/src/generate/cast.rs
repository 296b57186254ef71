//! The Pods and owners of a population, before any Pod has a state.

use rand::{Rng, rngs::SmallRng};

use super::{
    BEGIN, DAYS, Options, PopulationKind, real,
    state::Identity,
    suffix,
    template::mix,
    workload::{Kind, Workload},
};

/// The namespace of a hostile population's additional Pods.
const HOSTILE_NAMESPACE: &str = "hostile";

/// Owners and the identities of their Pods.
pub(super) struct Cast<'a> {
    pub(super) random: &'a mut SmallRng,
    pub(super) nodes: usize,
    pub(super) workloads: Vec<Workload>,
    pub(super) pods: Vec<Identity>,
}

impl Cast<'_> {
    /// Adds workloads: of 100 Pods about 75 belong to Deployments, 12 to DaemonSets, 8 to StatefulSets, 5 to Jobs.
    pub(super) fn synthetic(&mut self, options: &Options, namespaces: &[String]) {
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
                // Most are small, and some are large.
                Kind::Deployment | Kind::Real => {
                    let share: f64 = self.random.random_range(0.1..1.0);
                    ((usual as f64 * 0.2) / (share * share)) as usize
                }
                Kind::StatefulSet | Kind::Job => self.random.random_range(1..=usual.div_ceil(2)),
            };
            let namespace = &namespaces[self.random.random_range(0..namespaces.len())];
            let workload = Workload::synthetic(self.random, kind, options.kind, namespace, self.workloads.len());
            self.add(workload, size.clamp(1, options.pods - self.pods.len()));
        }
    }

    /// Adds Pods that all differ in structure, in their own namespace.
    pub(super) fn hostile(&mut self, options: &Options) {
        let all = self.pods.len() + options.hostile_pods;
        while self.pods.len() < all {
            let kind = PopulationKind::Structure;
            let number = self.workloads.len();
            let workload = Workload::synthetic(self.random, Kind::Deployment, kind, HOSTILE_NAMESPACE, number);
            self.add(workload, options.pods_per_workload.clamp(1, all - self.pods.len()));
        }
    }

    /// Adds workloads from real objects: each object is one workload per round, with another name.
    pub(super) fn real(&mut self, options: &Options, templates: &[real::Sample]) {
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
