//! Scaling of a Deployment. In the middle of a rollout its ReplicaSets share the difference in proportion.

use std::cmp::Reverse;

use super::{DESIRED, MAX, Rollout};
use crate::object;

impl Rollout<'_> {
    /// Returns true if the Deployment's size has changed since its ReplicaSets were sized.
    pub(super) fn is_scaled(&self) -> bool {
        self.sets.iter().filter(|set| set.replicas > 0).any(|set| {
            let desired = object::annotation(set.object, DESIRED).parse::<i64>();
            desired.is_ok_and(|desired| desired != self.replicas)
        })
    }

    /// Sizes the ReplicaSets for the Deployment's size without advancing the rollout.
    pub(super) fn scale(&mut self) {
        let size = self.size();
        let wanted = self.replicas;
        let active: Vec<usize> = (0..self.sets.len()).filter(|index| self.replicas_of(*index) > 0).collect();
        let only = match active.as_slice() {
            [only] => Some(*only),
            [] => self.new.or(self.sets.len().checked_sub(1)),
            _ => None,
        };
        if let Some(only) = only {
            return self.resize(only, wanted, &size);
        }
        let saturated = self.new_set().is_some_and(|set| {
            let desired = object::annotation(set.object, DESIRED).parse() == Ok(wanted);
            desired && set.replicas == wanted && set.counts.available == wanted
        });
        if saturated {
            self.old().for_each(|set| set.resize(0, &size));
        } else if !self.recreate {
            self.share(active, &size);
        }
    }

    /// Shares the Pods to add or to remove by the sizes of the ReplicaSets.
    fn share(&mut self, mut active: Vec<usize>, size: &[(&str, String)]) {
        let allowed = if self.replicas > 0 { self.replicas + self.surge } else { 0 };
        let missing = allowed - self.total();
        // The largest first. Of equal ones the newest grows and the oldest shrinks first.
        active.sort_by_key(|index| {
            (Reverse(self.replicas_of(*index)), if missing > 0 { usize::MAX - index } else { *index })
        });
        let mut left = missing;
        let mut sizes: Vec<(usize, i64)> = Vec::new();
        for index in active {
            let part = self.part(index);
            let part = if missing > 0 { part.clamp(0, left) } else { part.clamp(left, 0) };
            left -= part;
            sizes.push((index, self.replicas_of(index) + part));
        }
        if let Some((_, first)) = sizes.first_mut() {
            *first = (*first + left).max(0);
        }
        for (index, replicas) in sizes {
            self.resize(index, replicas, size);
        }
    }

    /// Returns the difference for a ReplicaSet that keeps its part of the whole.
    fn part(&self, index: usize) -> i64 {
        let own = self.replicas_of(index);
        if self.replicas == 0 {
            return -own;
        }
        let before = self.sets.get(index).and_then(|set| object::annotation(set.object, MAX).parse::<i64>().ok());
        let before = before.filter(|before| *before > 0).unwrap_or_else(|| self.total()).max(1);
        let after = own.saturating_mul(self.replicas + self.surge);
        // Rounded to the nearest.
        after.saturating_mul(2).saturating_add(before) / before.saturating_mul(2) - own
    }

    fn replicas_of(&self, index: usize) -> i64 {
        self.sets.get(index).map(|set| set.replicas).unwrap_or_default()
    }

    fn resize(&mut self, index: usize, replicas: i64, size: &[(&str, String)]) {
        let Some(set) = self.sets.get_mut(index) else { return };
        set.resize(replicas, size);
        for (key, value) in size {
            set.annotate(key, value);
        }
    }
}
