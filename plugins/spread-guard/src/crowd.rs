//! [`Crowds`]: how a workload's Pods are spread over nodes. Uses only the names of the nodes.

use std::collections::BTreeMap;

/// The nodes with too many Pods.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Crowds<'a> {
    pods: usize,
    by_node: BTreeMap<&'a str, usize>,
}

impl<'a> Crowds<'a> {
    /// Counts the Pods by node. `nodes` is the node of each bound Pod.
    pub(crate) fn new(nodes: impl Iterator<Item = &'a str>, max_percent: u32, min_pods: usize) -> Self {
        let mut by_node = BTreeMap::new();
        for node in nodes {
            *by_node.entry(node).or_default() += 1;
        }
        let pods: usize = by_node.values().sum();
        let most = pods.saturating_mul(max_percent as usize);
        // One Pod is not a crowd, however small its workload.
        by_node.retain(|_, here: &mut usize| pods >= min_pods && *here > 1 && here.saturating_mul(100) > most);
        Self { pods, by_node }
    }

    /// Returns how many Pods are bound to a node.
    pub(crate) fn pods(&self) -> usize {
        self.pods
    }

    /// Returns how many of them are on this node, if these are too many.
    pub(crate) fn on(&self, node: &str) -> Option<usize> {
        self.by_node.get(node).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowds<'a>(nodes: &[&'a str]) -> Vec<&'a str> {
        Crowds::new(nodes.iter().copied(), 50, 3).by_node.into_keys().collect()
    }

    #[test]
    fn more_than_the_share_is_a_crowd_and_just_the_share_is_not() {
        assert_eq!(crowds(&["a", "a", "b"]), ["a"]);
        assert!(crowds(&["a", "a", "b", "b"]).is_empty());
        assert!(crowds(&["a", "b", "c"]).is_empty());
    }

    #[test]
    fn a_workload_too_small_to_be_spread_has_no_crowds() {
        assert!(crowds(&["a", "a"]).is_empty());
        assert_eq!(Crowds::new(["a"].into_iter(), 0, 0).on("a"), None);
    }
}
