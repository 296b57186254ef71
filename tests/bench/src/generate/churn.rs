//! Pods that are deleted, and the Pods that their owners create instead.

use std::collections::HashSet;

use rand::{Rng, rngs::SmallRng};

use super::{
    state::{Identity, State},
    suffix,
    template::mix,
    workload::{Kind, Workload},
};

#[derive(Debug, Default)]
pub(super) struct Churn {
    /// The index of the Pod that the last event deleted.
    vacant: Option<usize>,
    /// All names that Pods have or had, because a generated name is not reused.
    names: HashSet<Box<str>>,
    nodes: usize,
    next_ip: u32,
}

impl Churn {
    pub(super) fn new(pods: &[(Identity, State)], nodes: usize) -> Self {
        let names = pods.iter().map(|(identity, _)| identity.name.clone()).collect();
        Self { vacant: None, names, nodes, next_ip: pods.len() as u32 }
    }

    pub(super) fn vacate(&mut self, at: usize) {
        self.vacant = Some(at);
    }

    pub(super) fn take_vacant(&mut self) -> Option<usize> {
        self.vacant.take()
    }

    /// Returns the Pod that the owner creates. Only a StatefulSet reuses the name.
    pub(super) fn successor(&mut self, random: &mut SmallRng, of: &Workload, old: &Identity, now: i64) -> Identity {
        let seed: u64 = random.random();
        let name = match of.kind {
            Kind::StatefulSet => old.name.clone(),
            _ => (0..)
                .map(|attempt| format!("{}{}", of.prefix, suffix(mix(seed.wrapping_add(attempt)))).into_boxed_str())
                .find(|name| self.names.insert(name.clone()))
                .unwrap_or_default(),
        };
        let node = match of.kind {
            Kind::DaemonSet => old.node,
            _ => random.random_range(0..self.nodes) as u32,
        };
        let ip = self.next_ip;
        self.next_ip += 1;
        Identity { workload: old.workload, name, ordinal: old.ordinal, node, ip, seed, created: now }
    }
}
